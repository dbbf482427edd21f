package lua

import (
	"context"
	_ "embed"
	"time"
)

//go:embed count.lua
var countSource string

//go:embed retain.lua
var retainSource string

var (
	countScript  = newScript("count", nothingSource+countSource, 0)
	retainScript = newScript("retain", announceSource+retainSource, 0)
)

// Count makes n the hold count of g.Owner and extends the lease to at least the given
// lease. ErrNotOwner: there is no such grant, and none was made.
func Count(ctx context.Context, r Runner, g Grant, lease time.Duration, n int) error {
	return owned(countScript.run(ctx, r, []string{g.Key}, millis(lease), g.Owner, n))
}

// Retain notes an idle grant: g.Owner keeps the lock without a hold. A refused acquirer then
// recalls the lock: g.Owner's client gets a [Message] with the name of g.Owner. kept is false
// if nothing was changed: somebody waits for the lock, or g.Owner does not hold the lock.
func Retain(ctx context.Context, r Runner, g Grant) (kept bool, err error) {
	answer, err := retainScript.run(ctx, r, []string{g.Key, g.Queue}, g.Owner, g.ChannelKind.Publish())
	return answer.done, err
}
