package lua

import (
	"context"
	_ "embed"
	"time"
)

//go:embed confirm.lua
var confirmSource string

var confirmScript = newScript("confirm", nothingSource+confirmSource, 0)

// Left is the answer of [Renew] to a [Confirmation] of the present owner: the rest of the lease,
// negative for a lease without end. Code without a case for Left sees an error.
type Left time.Duration

// Error tells the rest.
func (l Left) Error() string { return "lua: " + time.Duration(l).String() + " of the lease left" }

// Confirm asks whether g.Owner holds the lock, and returns the rest of the lease, negative for
// a lease without end. ErrNotOwner: there is no such grant. Confirm changes nothing, but a server
// without the right to change the lock (a replica) does not answer.
func Confirm(ctx context.Context, r Runner, g Grant) (time.Duration, error) {
	answer, err := confirmScript.run(ctx, r, []string{g.Key}, 0, g.Owner)
	if err = owned(answer, err); err != nil {
		return 0, err
	}
	return answer.millis(1), nil
}

// Confirmation is [Confirm] among the renewals of [Renew]. The answer is [Left] or ErrNotOwner.
func Confirmation(g Grant) Renewal {
	return Renewal{Grant: g, other: &confirmScript}
}
