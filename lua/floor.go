package lua

import (
	"context"
	_ "embed"
)

//go:embed floor.lua
var floorSource string

var floorScript = newScript("floor", tokenSource+floorSource, 0)

// Floor raises the fencing counter of g to a token from another server of a quorum lock, so that this server
// gives only greater tokens from then on. Floor never lowers the counter.
func Floor(ctx context.Context, r Runner, g Grant, token int64) error {
	_, err := floorScript.run(ctx, r, []string{g.Counter}, token)
	return err
}
