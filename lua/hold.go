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
	countScript  = newScript("count", countSource, 0)
	retainScript = newScript("retain", announceSource+retainSource, 0)
)

// Count makes n the hold count of g.Owner and extends its lease to at least the
// given one. ErrNotOwner: there is no such grant, and none was made.
func Count(ctx context.Context, r Runner, g Grant, lease time.Duration, n int) error {
	return owned(countScript.run(ctx, r, []string{g.Key}, millis(lease), g.Owner, n))
}

// Retain notes that nobody holds the lock although g.Owner keeps it, so that whoever is
// refused recalls it: then g.Owner's client hears a [Message] that names g.Owner. kept is
// false if nothing was changed: somebody waits for the lock, or g.Owner does not hold it.
func Retain(ctx context.Context, r Runner, g Grant) (kept bool, err error) {
	answer, err := retainScript.run(ctx, r, []string{g.Key, g.Queue}, g.Owner, g.ChannelKind.publish())
	return answer.done, err
}
