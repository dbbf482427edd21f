package lua

import (
	"context"
	_ "embed"
	"time"
)

//go:embed confirm.lua
var confirmSource string

var confirmScript = newScript("confirm", nothingSource+confirmSource, 0)

// Left is the time that is left of a lease, and is negative if the lease has no end. [Renew] returns it for a
// [Confirmation] if the owner still holds the lock. Code that does not know Left treats it as an error.
type Left time.Duration

// Error returns a text with the rest of the lease.
func (l Left) Error() string { return "lua: " + time.Duration(l).String() + " of the lease left" }

// Confirm asks whether g.Owner holds the lock, and returns the rest of the lease, which is negative if the
// lease has no end. ErrNotOwner means that g.Owner does not hold the lock. Confirm changes nothing. However, a
// server that must not change the lock, such as a replica, refuses the request.
func Confirm(ctx context.Context, r Runner, g Grant) (time.Duration, error) {
	answer, err := confirmScript.run(ctx, r, []string{g.Key}, 0, g.Owner)
	if err = owned(answer, err); err != nil {
		return 0, err
	}
	return answer.millis(1), nil
}

// Confirmation returns a [Renewal] that does not extend the lease. For a Confirmation, [Renew] only asks
// whether g.Owner holds the lock, as [Confirm] does, and returns [Left] or ErrNotOwner.
func Confirmation(g Grant) Renewal {
	return Renewal{Grant: g, other: &confirmScript}
}
