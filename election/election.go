// Package election elects one leader among processes.
//
//	e := election.New(locks, "scheduler", "10.0.0.7:8080")
//	err := e.Run(ctx, func(ctx context.Context, term *election.Term) error {
//		return schedule(ctx) // in one process at a time; ctx ends if the leadership is lost
//	})
//
// The leader holds a lock with the name of the election. The client renews the lease while the leader lives,
// and if the lease cannot be renewed, the context of the leader is canceled before another process can lead.
// Each leadership is called a term, and the number of the term is the fencing token of the lock. The leader can
// publish a value, such as its address. Redis stores the value next to the lock, and the value counts only
// while this leader holds the lock. So [Election.Leader] does not return a leader that has died and lost its
// lock.
//
// # Two leaders
//
// A leader loses its lease if Redis or its process did not respond for too long. The context of the old leader
// is then canceled before the next leader begins, and its work has a tenth of the lease to stop. A tenth of the
// lease is not enough in two cases: if the work needs more time to stop, or if a user deletes the lock. Use
// [WithTakeoverDelay] for these cases.
package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/rlock"
)

// Errors of this package, to be matched with [errors.Is]. The other errors are those of package rlock.
var (
	// ErrNoLeader means that no process leads, or that the new leader has not begun its work yet. Call
	// [Election.Leader] again later, or use [Election.Observe].
	ErrNoLeader = errors.New("election: no leader")

	// ErrNotLeader means that this process does not lead, or that the context of its term has ended.
	ErrNotLeader = errors.New("election: not the leader")
)

// Election lets one process take part in an election, as a candidate or only as an observer. Its methods are
// safe for concurrent use.
type Election struct {
	lock  *rlock.Lock
	data  *companion.Companion
	value string
	delay time.Duration
	err   error // of a name, value or option that cannot work

	term atomic.Pointer[Term] // of this candidate, until Resign; nil if there is none
}

// Option is a setting for [New].
type Option func(*settings)

type settings struct {
	lock  []rlock.LockOption
	delay time.Duration
}

// WithLease sets the lease of the leadership. If the leader dies, the next process can lead when this lease
// ends. The default is the client's lease.
func WithLease(d time.Duration) Option {
	return func(s *settings) { s.lock = append(s.lock, rlock.WithLeaseTime(d)) }
}

// WithReplicas makes a candidate lead only if at least n replicas have the lock within timeout, see
// [rlock.WithReplicas].
func WithReplicas(n int, timeout time.Duration) Option {
	return func(s *settings) { s.lock = append(s.lock, rlock.WithReplicas(n, timeout)) }
}

// WithTakeoverDelay makes a new leader wait for d before it begins, unless the previous leader has resigned. A
// previous leader that has not resigned may still be working for a while: it may be cut off from Redis, or a
// user may have deleted its lock. During the wait, [Election.Leader] returns [ErrNoLeader] in every process,
// and [Election.IsLeader] returns [ErrNotLeader] even in the new leader. If Redis has no record of a previous
// leader, the new leader waits too, because Redis may have lost its data.
//
// Choose d as the sum of two times: the time that your work needs to stop when its context ends, and the time
// that the leader can need to notice that its lock was deleted. If the leader reaches Redis, it notices this at
// its next renewal, so a third of the lease is enough. If the leader is cut off from Redis when the lock is
// deleted, for example by a failover, it works until its context ends, which can take 89 % of the lease. Use nine
// tenths of the lease to cover this case too. All candidates must use the same delay. The default, 0, is no delay.
// A negative d is [rlock.ErrInvalidOption].
func WithTakeoverDelay(d time.Duration) Option { return func(s *settings) { s.delay = d } }

// maxValue is the size of the longest value.
const maxValue = 64 << 10

// New returns the Election of this process for a name. New sends nothing to Redis. If a name, value or option
// is invalid, every method returns [rlock.ErrInvalidOption].
//
// name is the name of the lock. Within one client, no job, result of package once or other election may have
// the same name. value is what other processes learn about the leader, such as its address. The value can have
// up to 64 KiB, and can be "" if no process reads it. A process that only observes uses the same name and an
// empty value.
func New(locks *rlock.Client, name, value string, opts ...Option) *Election {
	var s settings
	none := false
	for _, o := range opts {
		if o == nil {
			none = true
		} else {
			o(&s)
		}
	}
	// An owner must be one candidate for one term, so the lock is not passed on in memory.
	s.lock = append(s.lock, rlock.WithFencing(), rlock.WithoutHandoff(), rlock.WithPurpose("election"))
	e := &Election{lock: locks.NewLock(name, s.lock...), value: value, delay: s.delay}
	e.data, e.err = companion.Of(e.lock, "election")
	switch {
	case e.err != nil:
	case none:
		e.err = e.invalid("an option is nil")
	case s.delay < 0:
		e.err = e.invalid("a takeover delay of %v: it must not be negative", s.delay)
	default:
		e.err = e.check(value)
	}
	return e
}

func (e *Election) check(value string) error {
	if len(value) > maxValue {
		return e.invalid("a value of %d bytes: at most %d are allowed", len(value), maxValue)
	}
	return nil
}

func (e *Election) invalid(format string, args ...any) error {
	return e.errorf(rlock.ErrInvalidOption, format, args...)
}

func (e *Election) errorf(kind error, format string, args ...any) error {
	return fmt.Errorf("%w: election %q: %s", kind, e.lock.Name(), fmt.Sprintf(format, args...))
}

// Pauses between two campaigns, after a failure.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// Run campaigns until this process leads, and then calls fn. If the leadership is lost, the context of fn is
// canceled. Run waits until fn has returned, and only then campaigns again. So one call of Run never has two
// calls of fn in progress, and it resigns only after fn has returned.
//
// If fn returns while this process leads, Run resigns and returns. The error of Run is the error of fn, joined
// with the error of [Term.Resign]. If the leadership was lost before fn returned, Run campaigns again, provided
// that fn returned nil or the error of its context. Any other error of fn ends Run. If the client was closed
// before fn returned nil or the error of its context, Run returns [rlock.ErrClosed].
//
// While this process does not lead, Run returns when ctx ends, when the client is closed, and after an error
// that waiting does not cure: an invalid name or option, a key that holds other data, or [rlock.ErrRefused], such
// as a wrong password or a permission that the Redis user does not have. While Redis does not respond, Run tries
// again, with pauses of 100 ms that grow to 5 s.
func (e *Election) Run(ctx context.Context, fn func(context.Context, *Term) error) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		held, term, err := e.Campaign(ctx)
		if err == nil {
			again, err := term.lead(held, fn)
			if !again {
				return err
			}
			pause = minPause
		} else if ctx.Err() != nil || !passes(err) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done(): // the next campaign returns the error
		}
	}
}

// passes reports whether the reason of an error may be gone later.
func passes(err error) bool {
	if errors.Is(err, rlock.ErrRefused) {
		return false
	}
	return errors.Is(err, rlock.ErrUnavailable) || errors.Is(err, rlock.ErrLeaseLost) || errors.Is(err, rlock.ErrNotReplicated)
}

// lead runs fn and resigns. again reports that the leadership was lost, and that fn ended because of that.
func (t *Term) lead(held context.Context, fn func(context.Context, *Term) error) (again bool, err error) {
	defer func() { // also if fn panics
		cause := context.Cause(held)
		lost := errors.Is(cause, rlock.ErrLeaseLost)
		if errors.Is(cause, rlock.ErrClosed) && (err == nil || errors.Is(err, held.Err())) {
			err = cause
		}
		resigned := t.Resign(held)
		switch {
		case lost && (err == nil || errors.Is(err, held.Err()) || errors.Is(err, cause)):
			again, err = true, nil
		case resigned != nil && !errors.Is(err, resigned):
			err = errors.Join(err, resigned)
		}
	}()
	return false, fn(held, t)
}

// Campaign waits until this process leads, or until ctx ends. It returns the [Term], which is this leadership,
// and a context for the work of the leader. The returned context descends from ctx. When the leadership is
// lost, it is canceled with a [*rlock.LostError] as its cause. If ctx ends after Campaign has returned, this
// process still leads. When the work has ended, you must call [Term.Resign], even if the leadership was lost.
//
// After an error, this process does not lead and is not waiting in the queue. If no process leads, Campaign
// takes two round trips, and one more after a takeover delay. If ctx comes from a term of this election,
// Campaign returns [rlock.ErrInvalidOption].
func (e *Election) Campaign(ctx context.Context) (context.Context, *Term, error) {
	if e.err != nil {
		return ctx, nil, e.err
	}
	if e.lock.Owner(ctx) != "" {
		return ctx, nil, e.invalid("this context leads already: resign first, or use the context from before the campaign")
	}
	held, hold, err := e.lock.Lock(ctx)
	if err != nil {
		return ctx, nil, err
	}
	t := &Term{e: e, hold: hold, held: held}
	wait, err := t.proclaim(held, 0, e.value)
	if err == nil && wait {
		select {
		case <-time.After(e.delay):
			_, err = t.proclaim(held, t.seq.Add(1), e.value)
		case <-held.Done():
			err = context.Cause(held)
		}
	}
	if err != nil {
		return ctx, nil, errors.Join(err, t.Resign(held))
	}
	e.term.Store(t)
	return held, t, nil
}

// IsLeader returns nil while this process leads and the context of its term has not ended, and [ErrNotLeader]
// otherwise. If the context that was passed to [Election.Run] or [Election.Campaign] ends, IsLeader returns
// ErrNotLeader at once, although this process still leads until it has resigned. IsLeader sends nothing to Redis,
// because it compares the end of the lease with the monotonic clock and the wall clock. IsLeader makes an
// *Election an Elector of github.com/go-co-op/gocron.
func (e *Election) IsLeader(context.Context) error {
	if t := e.term.Load(); t != nil && t.held.Err() == nil {
		return nil
	}
	return ErrNotLeader
}
