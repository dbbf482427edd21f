package rlock

import (
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

// Script is a Lua script that acts only while a hold is live on the server. Redis itself then refuses
// the writes of a former holder, and needs no fencing token for that: a write that was delayed for an
// hour has no effect. A Script is for data in the same Redis as the lock, and any number of goroutines
// may use it.
type Script struct{ script *lua.Script }

// NewScript returns a script. In the source, KEYS[1] is the key of the lock, KEYS[2] and the following
// are the keys of [Script.Run], and ARGV are its arguments. Nothing is sent; a mistake in the source is
// an error of Run.
func NewScript(source string) *Script { return &Script{lua.NewGuarded(source)} }

var errNoScript = errors.New("a Script is for holds of plain and fair locks")

// Run runs the script if h is live on the server, and returns the script's reply. It takes one round trip,
// and two if the server does not know the script yet. In a cluster the keys must be in the slot of the
// lock, as {name}:balance is for a lock name.
//
// The script is executed once at most. The errors tell what happened:
//
//   - [ErrLeaseLost]: the server knows of no such holder. Nothing was executed, and the context of the
//     hold has ended.
//   - [ErrNotHeld]: the hold was unlocked before. Nothing was sent.
//   - a [redis.Error]: the error reply of the script. An error of your own must not begin with a code by
//     which Redis refuses a script, such as BUSY or TRYAGAIN: then the script is executed again.
//   - [ErrUnavailable]: there was no answer within 2 s, or within the time of ctx, or the connection was
//     closed. The script may have been executed, or may still be, but not after another owner has the lock.
//     go-redis replaces connections that were closed while they were idle. With TLS it cannot see them.
//   - [ErrInvalidOption] for holds of read/write and quorum locks, and [ErrClosed].
//
// As after [Hold.Proof], the grant is not passed on in memory: the next goroutine with the lock has
// another owner.
func (s *Script) Run(ctx context.Context, h *Hold, keys []string, args ...any) (any, error) {
	if h == nil {
		return nil, ErrNotHeld
	}
	g, l := h.grant, h.lock
	if _, ok := g.lock.wire.(kind.Joinable); !ok {
		return nil, &lockError{l.name, ErrInvalidOption, errNoScript}
	}
	if h.Proof() == "" {
		if loss := g.lossOrNil(); loss != nil {
			return nil, loss
		}
		return nil, &lockError{l.name, ErrNotHeld, nil}
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
		return nil, g.lossOrNil()
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
