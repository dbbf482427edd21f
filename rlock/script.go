package rlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/reach"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// Script is a Lua script that Redis executes only while a hold still holds its lock. So Redis itself
// refuses the writes of a former holder, even if a write arrives an hour late, and you need no fencing
// token. Use a Script for data that is in the same Redis as the lock. Its methods are safe for
// concurrent use.
type Script struct{ script *lua.Script }

// NewScript returns a script. In the source, KEYS[1] is the key of the lock, KEYS[2] and the following
// are the keys that you pass to [Script.Run], and ARGV contains the other arguments of Run. NewScript
// sends nothing to Redis. If the source has a mistake, Run returns the error.
func NewScript(source string) *Script { return &Script{lua.NewGuarded(source)} }

var errNoScript = errors.New("a Script is for holds of plain and fair locks")

// Run executes the script if h still holds its lock in Redis, and returns the reply of the script. It
// takes one round trip, or two if the server does not know the script yet. In a cluster, the keys must
// be in the slot of the lock. For a lock with the name order, a key can be {order}:balance, with the
// braces.
//
// Redis executes the script no more than once. The errors say what happened:
//
//   - [ErrLeaseLost] means that h no longer holds the lock in Redis. The script was not executed, and
//     the context of the hold has ended.
//   - [ErrNotHeld] means that the hold was already unlocked. The script was not executed.
//   - A [redis.Error] is the error reply of the script. Your own error replies must not begin with a
//     code with which Redis refuses a script, such as BUSY or TRYAGAIN, because the client then repeats
//     the script.
//   - [ErrUnavailable] means that there was no answer within 2 s, or before ctx ended or the client was
//     closed, or that the connection was closed. Redis may have executed the script, or may still do
//     so, but not after another owner has acquired the lock. If a connection was closed while it was
//     idle, go-redis replaces it before it sends the script. This does not work for TLS connections,
//     because go-redis cannot see that such a connection was closed.
//   - [ErrInvalidOption] means that h is a hold of a read/write or quorum lock, which do not support
//     scripts.
//   - [ErrClosed] means that the client is closed. If it does not match [ErrUnavailable] as well, the
//     script was not executed.
//
// Redis executes the script even if it has no memory left, because the check comes first and counts as
// a write, and Redis refuses only the first write of a script.
//
// After a call of Run, the lock is not passed on in memory, so the next goroutine that acquires the
// lock has another owner.
func (s *Script) Run(ctx context.Context, h *Hold, keys []string, args ...any) (any, error) {
	if h == nil {
		return nil, ErrNotHeld
	}
	g, l := h.grant, h.lock
	if _, ok := g.lock.wire.(kind.Joinable); !ok {
		return nil, &lockError{l.name, ErrInvalidOption, errNoScript}
	}
	over := func() error { return cmp.Or(g.lossOrNil(), error(&lockError{l.name, ErrNotHeld, nil})) }
	if h.Proof() == "" {
		return nil, over()
	}
	args = append([]any{g.owner}, args...)
	p := request.Policy{
		// Without Client: an attempt that failed on a closed connection may have been executed.
		Attempt: kind.MaxAttempt, Total: kind.MaxAttempt, Stop: l.client.closing,
		Classify: func(err error) (request.Outcome, bool) {
			o, final := l.client.classify(err)
			return o, final || o == request.Unknown // the script may not be safe to repeat
		},
	}
	reply, err := l.script(ctx, p, func(ctx context.Context, r lua.Runner) (any, error) {
		return s.script.Run(ctx, sentOnce{r}, slices.Concat([]string{g.lock.key}, keys), args...)
	})
	if errors.Is(err, lua.ErrNotOwner) {
		g.lose(errGone)
		return nil, over() // no loss if an Unlock was faster
	}
	return reply, err
}

// sentOnce sends a command without copies: see [request.Copies].
type sentOnce struct{ lua.Runner }

// Process hides that the command is a [request.Twin].
func (r sentOnce) Process(ctx context.Context, cmd redis.Cmder) error {
	return r.Runner.Process(ctx, struct{ redis.Cmder }{cmd})
}

// script runs a script. The error is an error reply of the script, [lua.ErrNotOwner], or an error of this
// package.
func (l *Lock) script(ctx context.Context, p request.Policy, run func(context.Context, lua.Runner) (any, error)) (any, error) {
	if err := l.begin(); err != nil {
		return nil, err
	}
	defer l.client.done()
	if ctx.Err() != nil {
		return nil, l.noAnswer(ctx, nil)
	}
	type answer struct {
		reply   any
		refusal error // the error reply of the script
	}
	a := request.Do(ctx, p, func(ctx context.Context, o request.Options, late func(answer, error)) (answer, bool, error) {
		a, err := attempt(ctx, l, o.Bound, o.Stop, func(ctx context.Context, r lua.Runner) (answer, error) {
			reply, err := run(ctx, r)
			if reply, ok := errors.AsType[redis.Error](err); ok && !request.LacksRights(reply) {
				if o, final := l.client.classify(err); o == request.Unknown && final {
					return answer{refusal: reply}, nil
				}
			}
			return answer{reply: reply}, err
		}, late)
		return a, false, err
	}, nil)
	switch {
	case a.End == request.Left && a.Doubt && ctx.Err() == nil: // the client closes
		return nil, &lockError{l.name, ErrUnavailable, ErrClosed}
	case a.End == request.Left:
		return nil, l.noAnswer(ctx, a.Err)
	case a.End != request.Done:
		return nil, l.failed(a.Err)
	case a.Err != nil:
		return nil, l.translate(a.Err)
	}
	return a.Value.reply, a.Value.refusal
}

// noAnswer is the error of a script that was left because ctx or the client has ended. If ctx ended by the
// loss of a hold, the error does not match [ErrLeaseLost], because the script may have been executed before.
func (l *Lock) noAnswer(ctx context.Context, trouble error) error {
	if ownershipEnded(ctx) {
		return &lockError{l.name, ErrUnavailable, fmt.Errorf("no answer: %w: %v", ctx.Err(), context.Cause(ctx))}
	}
	return l.givenUp(ctx, trouble)
}

func init() {
	reach.Of = func(lock any) (reach.Lock, error) {
		l := lock.(*Lock)
		if l.err != nil {
			return reach.Lock{}, l.err
		}
		p := l.policy
		p.Client, p.Classify = l.client.server.RDB, l.client.classify
		return reach.Lock{
			Key: l.key,
			Run: func(ctx context.Context, s *lua.Script, keys []string, args ...any) (any, error) {
				return l.script(ctx, p, func(ctx context.Context, r lua.Runner) (any, error) { return s.Run(ctx, r, keys, args...) })
			},
			RunReplicated: func(ctx context.Context, s *lua.Script, keys []string, args ...any) (any, error) {
				return l.script(ctx, p, func(ctx context.Context, r lua.Runner) (reply any, err error) {
					run := func(r lua.Runner) error {
						reply, err = s.Run(ctx, r, keys, args...)
						return err
					}
					if replicated, ok := l.wire.(*kind.Replicated); ok {
						err = replicated.Acknowledged(run)
						return reply, err
					}
					err = run(r)
					return reply, err
				})
			},
			Log:       l.client.log,
			Subscribe: l.client.server.Hub.Subscribe,
			Publish:   func() any { return l.client.server.Channels.Now().Publish() },
		}, nil
	}
}
