package lua

import (
	"context"
	_ "embed"
	"time"
)

//go:embed confirm.lua
var confirmSource string

var confirmScript = newScript("confirm", confirmSource, 0)

// Left is what [Renew] returns for a [Confirmation] of an owner that holds the lock: so
// much was left of its lease; negative if that has no end. Code that does not know it
// takes it for an error.
type Left time.Duration

// Error says what is left.
func (l Left) Error() string { return "lua: " + time.Duration(l).String() + " of the lease left" }

// Confirm asks whether g.Owner holds the lock, and returns what is left of its lease,
// negative if that has no end. ErrNotOwner: there is no such grant. Nothing is changed,
// but only a server that could change it answers.
func Confirm(ctx context.Context, r Runner, g Grant) (time.Duration, error) {
	answer, err := confirmScript.run(ctx, r, []string{g.Key}, 0, g.Owner)
	if err = owned(answer, err); err != nil {
		return 0, err
	}
	return answer.millis(1), nil
}

// Confirmation is [Confirm] among the renewals of [Renew], which answers it with [Left] or
// ErrNotOwner.
func Confirmation(g Grant) Renewal {
	return Renewal{Grant: g, other: &confirmScript}
}
