package lua

import (
	"cmp"
	"context"
	_ "embed"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed nothing.lua
var nothingSource string

//go:embed renew.lua
var renewSource string

var renewScript = newScript("renew", nothingSource+renewSource, 0)

// Renewal is a lease to extend. If you make a Renewal as a literal, it is for a plain lock. For other kinds of
// lock, use functions such as [RenewalRW].
type Renewal struct {
	Grant Grant
	Lease time.Duration

	other *script  // in place of renewScript
	keys  []string // after Grant.Key
	args  []any    // after lease and owner
}

func (r Renewal) script() *script { return cmp.Or(r.other, &renewScript) }

func (r Renewal) command(ctx context.Context, f form) *once {
	args := append([]any{millis(r.Lease), r.Grant.Owner}, r.args...)
	return r.script().command(ctx, f, append([]string{r.Grant.Key}, r.keys...), args)
}

// answer turns the reply to cmd into an error.
func (r Renewal) answer(cmd *once) error {
	if err := cmd.Err(); err != nil {
		return err
	}
	answer, err := r.script().read(cmd)
	if err = owned(answer, err); r.script() == &confirmScript && err == nil {
		return Left(answer.millis(1))
	}
	return err
}

// Renew extends leases in one pipeline. The errors are in the order of due. nil means that the lease was
// renewed, and ErrNotOwner that the owner no longer holds the lock. If the server does not know the script, or
// if a cluster slot is moving, Renew sends a second pipeline. While a slot moves, a script with two keys is
// refused if one of them does not exist, such as the read hold of a writer, so the second time the script has
// only the key of the lock.
func Renew(ctx context.Context, r Runner, due []Renewal) []error {
	errs := make([]error, len(due))
	all := make([]int, len(due))
	for i := range due {
		all[i] = i
	}
	again := renew(ctx, r, due, all, byHash, errs)
	if len(again) > 0 {
		due = slices.Clone(due)
		for _, n := range again {
			if redis.HasErrorPrefix(errs[n], slotMoves) {
				due[n].keys = nil
			}
		}
		renew(ctx, r, due, again, bySource, errs)
	}
	return errs
}

// renew sends the chosen renewals, fills in the errors, and returns the renewals to send once more in
// another form, as the server has not executed these.
func renew(ctx context.Context, r Runner, due []Renewal, chosen []int, f form, errs []error) (again []int) {
	pipe := r.Pipeline()
	cmds := make([]*once, len(chosen))
	for i, n := range chosen {
		cmds[i] = due[n].command(ctx, f)
		_ = pipe.Process(ctx, cmds[i]) // only queues
	}
	_ = Exec(ctx, pipe) // each command has its own error
	for i, n := range chosen {
		err := cmds[i].Err()
		if redis.HasErrorPrefix(err, unknownScript) || redis.HasErrorPrefix(err, slotMoves) && len(due[n].keys) > 0 {
			again = append(again, n)
		}
		errs[n] = due[n].answer(cmds[i])
	}
	return again
}
