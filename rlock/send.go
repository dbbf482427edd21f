package rlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// Pipelines under way at once. In go-redis they have a pool of ten connections; four are
// left to renewals, see [kind.Places].
const (
	maxSenders = 4 // of what callers wait for
	maxSweeps  = 2 // of what they have left behind
	maxTrailed = 4 // of attempts with a command behind each, and as many more overdue: see [request.Trailer]
)

// newCarrier returns a carrier that sends the scripts of a client, those for one server
// together.
func newCarrier(c *Client, senders int) request.Carrier {
	_, single := c.server.RDB.(*redis.Client)
	return request.NewCarrier(request.Config{
		Client: c.server.RDB, Begin: c.more, End: c.done, Senders: senders,
		Callers: c.opts.Trace.Start != nil, Copies: &c.copies,
		Reload: func() { c.reloads.Reload(c.server.RDB) },
		Send: func(ctx context.Context, rdb redis.UniversalClient, cmds []redis.Cmder, combined bool) bool {
			return lua.Send(ctx, rdb, cmds, combined && single)
		},
	})
}

// outcomeOf reads the error of a request. final says that repeating it would not
// help.
func (c *Client) outcomeOf(err error) (o request.Outcome, final bool) {
	if errors.Is(err, ErrClosed) {
		return request.NotExecuted, true
	}
	return c.server.Classify(err)
}

// stays reports whether nobody can remove the cause of a final error while a call waits: the client is
// closed, or the keys are in different slots.
func stays(err error) bool {
	var reply redis.Error
	return errors.Is(err, redis.ErrClosed) || errors.Is(err, ErrClosed) || errors.As(err, &reply) && request.HasCode(reply, "CROSSSLOT")
}

// send repeats a request, which ask makes by a runner, until an answer, until the request cannot
// succeed, or until ctx or the policy, one made from l.policy, ends. The Err of the answer is [lua.ErrNotOwner], or an error
// with the name of the lock. late, if set, gets the result of an attempt after the caller has left;
// request.ErrUnread stands for an answer nobody has read. A hook of the client that panics, or ends
// the goroutine, makes the caller leave: callers of send clean up by defer.
func send[T any](ctx context.Context, l *Lock, p request.Policy, ask func(context.Context, lua.Runner) (T, error), late func(T, error)) request.Answer[T] {
	gathers := l.gathers.rest
	if p.Leaves { // as what acquires may do
		gathers = l.gathers.acquire
	}
	returned := false
	defer func() {
		if !returned && late != nil {
			var none T
			late(none, request.ErrNoAnswer)
		}
	}()
	a := request.Do(ctx, p, func(ctx context.Context, o request.Options, late func(T, error)) (value T, copied bool, err error) {
		if gathers {
			o.Key = l.slot
			if late != nil {
				o.Late = func(err error) {
					var none T
					late(none, err)
				}
			}
			call := l.client.scripts.Call(o)
			defer call.Put()
			value, err = ask(ctx, call)
			copied = call.Copied()
		} else {
			ctx, doubtful := request.Doubtful(ctx)
			value, err = attempt(ctx, l, o.Bound, o.Stop, ask, late)
			copied = doubtful()
		}
		if err != nil {
			l.client.unanswered(err)
		}
		return value, copied, err
	}, late)
	returned = true
	if a.End == request.Done && a.Err == nil {
		return a
	}
	return explained(ctx, l, p, a)
}

// explained is an answer with the error for the caller, with the name of the lock.
func explained[T any](ctx context.Context, l *Lock, p request.Policy, a request.Answer[T]) request.Answer[T] {
	switch a.End {
	case request.Done:
		a.Err = l.translate(a.Err)
	case request.Left:
		a.Cut = a.Err == nil && ctx.Err() != nil
		if a.Cut && p.Leaves && time.Since(a.Sent) < answerTime { // of a request to acquire
			a.Err = tooLate(l.name, ctx)
		} else {
			a.Err = l.givenUp(ctx, a.Err)
		}
	default:
		a.Err = l.failed(a.Err)
	}
	return a
}

// failed is the error of a request that cannot succeed.
func (l *Lock) failed(err error) error {
	switch {
	case errors.Is(err, ErrClosed):
		return l.isClosed()
	case errors.Is(err, kind.ErrSameServer):
		return &lockError{l.name, ErrInvalidOption, err}
	}
	return &lockError{l.name, ErrUnavailable, l.advise(err)}
}

// unanswered makes the client of a cluster look for the masters anew if err says that a
// request got no answer.
func (c *Client) unanswered(err error) {
	if o, _ := c.classify(err); o != request.Answered && err != request.ErrAbandoned && err != request.ErrNotSent {
		c.reloads.Reload(c.server.RDB)
	}
}

// attempt makes a request in a goroutine of its own. It ends early when another master of a
// cluster has taken over the lock's slot.
func attempt[T any](ctx context.Context, l *Lock, bound time.Duration, stop <-chan struct{}, ask func(context.Context, lua.Runner) (T, error), late func(T, error)) (T, error) {
	c := l.client
	a := request.Alone{Background: l.background, Bound: bound, Stop: stop, Watch: c.reloads.Watch(c.server.RDB, l.slot)}
	return request.Detached(ctx, a, func(ctx context.Context) (T, error) { return ask(ctx, c.scripts) }, late)
}

// answerTime is how long Redis has to answer before a call can say that Redis did not answer. If the
// context of the call ends sooner, that says nothing about Redis, so the error is the same as if the
// context had ended just before the request. For example, a loop calls Lock until a deadline:
//
//	Redis answers each request within 0.1 ms
//	the last call sends its request 0.05 ms before the deadline
//	the call returns without an answer: ErrNotAcquired, because Redis is well
const answerTime = 5 * time.Millisecond

// givenUp is the error of a call that ended without an answer: because ctx is over or, if it
// is not, because the client closes. trouble is the error of the last attempt, if it failed.
// If ctx ended because the ownership that it stands for has, the error says that, as Redis
// need not be at fault.
func (l *Lock) givenUp(ctx context.Context, trouble error) error {
	switch {
	case ctx.Err() == nil:
		return &lockError{l.name, ErrClosed, trouble}
	case ownershipEnded(ctx):
		return tooLate(l.name, ctx)
	case trouble == nil:
		return &lockError{l.name, ErrUnavailable, fmt.Errorf("no answer: %w", ended(ctx))}
	}
	return &lockError{l.name, ErrUnavailable, fmt.Errorf("%w; last error: %w", ended(ctx), l.advise(trouble))}
}

// ownershipEnded reports whether ctx is over because a lock that it owned was unlocked or
// lost.
func ownershipEnded(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, ErrUnlocked) || errors.Is(cause, ErrLeaseLost)
}

// advise adds to a refusal what an operator can do about it. It makes it match [ErrRefused] if that has to be done first.
func (l *Lock) advise(err error) error {
	var reply redis.Error
	switch {
	case err == nil: // no attempt was made: the lease was over
		return nil
	case request.NoAddress(err):
		return refusedError{fmt.Errorf("%w (this address cannot be: give host:port, and a URL by redis.ParseURL)", err)}
	case request.NotRedis(err):
		return refusedError{fmt.Errorf("%w (what answers is not Redis: check host and port)", err)}
	case !errors.As(err, &reply):
		return err
	}
	_, cluster := l.client.server.RDB.(*redis.ClusterClient)
	var advice string
	switch {
	case request.LacksRights(reply):
		advice = "the ACL user lacks a right: rlock doctor tries those of plain locks, docs/acl.md lists all"
		switch l.kind {
		case fairKind:
			advice = "fair locks need rights that plain locks do without: see docs/acl.md"
		case readKind, writeKind:
			advice = "read/write locks need rights that plain locks do without: see docs/acl.md"
		}
	case request.HasCode(reply, "NOAUTH", "WRONGPASS"):
		advice = "check user name and password"
	case request.HasCode(reply, "OOM"):
		return fmt.Errorf("%w (the server has reached maxmemory and may not evict: it can release and renew locks, but not grant them)", err)
	case request.HasCode(reply, "READONLY"): // perhaps for the time of a failover
		return fmt.Errorf("%w (this server is a replica: connect to the master)", err)
	case request.HasCode(reply, "MOVED", "ASK") && !cluster:
		advice = "this server is a node of a cluster, and the client does not know: connect to the cluster, rlock with --cluster"
	case request.HasCode(reply, "CROSSSLOT"):
		advice = "the keys of this lock are in different cluster slots: rename it"
	default:
		return err
	}
	return refusedError{fmt.Errorf("%w (%s)", err, advice)}
}

// describe says what a key holds instead of the lock, and what to do if that is another kind
// of lock.
func describe(c *lua.ConflictError) string {
	holds := "key " + quote(c.Key) + " holds a " + c.Type
	switch c.Type {
	case lua.PlainLock:
		return holds + ", which may be a fair one: take it with NewLock or NewFairLock"
	case lua.ReadWriteLock:
		return holds + ": take it with NewRWLock, rlock run with --shared or --exclusive"
	}
	return holds + ", not a lock"
}

// translate turns the error of an answer into one of this package.
func (l *Lock) translate(err error) error {
	if errors.Is(err, lua.ErrNotOwner) {
		return err
	}
	if short, ok := errors.AsType[*kind.NotReplicated](err); ok {
		return &NotReplicatedError{Name: l.name, Want: short.Want, Got: short.Got, Err: short.Err}
	}
	if conflict, ok := errors.AsType[*lua.ConflictError](err); ok {
		err = errors.New(describe(conflict))
	}
	return &lockError{l.name, ErrKeyConflict, err}
}
