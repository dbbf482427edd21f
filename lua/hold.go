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

// Count sets the hold count of g.Owner to n and extends the lease to at least the given length. ErrNotOwner
// means that g.Owner does not hold the lock, and that nothing was changed.
func Count(ctx context.Context, r Runner, g Grant, lease time.Duration, n int) error {
	return owned(countScript.run(ctx, r, []string{g.Key}, millis(lease), g.Owner, n))
}

// Retain records that the client of g.Owner keeps the lock after the last hold was unlocked. If another client
// then requests the lock, the script of that request asks for it: the client of g.Owner receives a [Message]
// with the name of g.Owner. kept is false if nothing was changed, because another client waits for the lock or
// g.Owner does not hold it.
func Retain(ctx context.Context, r Runner, g Grant) (kept bool, err error) {
	answer, err := retainScript.run(ctx, r, []string{g.Key, g.Queue}, g.Owner, g.ChannelKind.Publish())
	return answer.done, err
}
