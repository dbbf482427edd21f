// Package election elects one leader among processes.
//
//	e := election.New(locks, "scheduler", "10.0.0.7:8080")
//	err := e.Run(ctx, func(ctx context.Context, term *election.Term) error {
//		return schedule(ctx) // in one process at a time; ctx ends if the leadership is lost
//	})
//
// The leader holds a lock with the name of the election, so everything that is said of locks applies: the
// lease is renewed while the leader lives, and the leader's context ends before another process can
// lead. The number of a term is the fencing token of the lock. What the leader says of itself, the value,
// is kept in Redis next to the lock, and counts only while this leader holds the lock. So a leader that has
// died is not shown.
//
// # Two leaders
//
// If a leader loses the lease, because Redis or its process did not respond, its context ends before the
// next leader begins, with a tenth of the lease for the work to stop. Work that needs more time to
// stop, and a lock that was deleted by force, need [WithTakeoverDelay].
package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/rlock"
)

// Errors of this package, to be matched with [errors.Is]. The other errors are those of package rlock.
var (
	// ErrNoLeader: no process leads, or the new leader does not work yet. Ask again, or use
	// [Election.Observe].
	ErrNoLeader = errors.New("election: no leader")

	// ErrNotLeader: this process does not lead.
	ErrNotLeader = errors.New("election: not the leader")
)

// Election is one candidate, or one observer, of an election. Any number of goroutines may use it.
type Election struct {
	lock  *rlock.Lock
	data  *companion.Companion
	value string
	delay time.Duration
	err   error // of a name, value or option that cannot work

	term atomic.Pointer[Term] // of this candidate, until Resign; nil if there is none
}

// Option is an option of [New].
type Option func(*settings)

type settings struct {
	lock  []rlock.LockOption
	delay time.Duration
}

// WithLease sets the lease of the leadership: if the leader dies, the next one follows when the lease is
// over. The default is the client's lease.
func WithLease(d time.Duration) Option {
	return func(s *settings) { s.lock = append(s.lock, rlock.WithLeaseTime(d)) }
}

// WithReplicas makes a candidate lead only when n replicas have the lock: see [rlock.WithReplicas].
func WithReplicas(n int, timeout time.Duration) Option {
	return func(s *settings) { s.lock = append(s.lock, rlock.WithReplicas(n, timeout)) }
}

// WithTakeoverDelay makes a new leader wait for d before it begins, unless the leader before has
// resigned: it may have died, it may be cut off, or a user deleted the lock, and then it may work for
// a while. During the wait there is no leader, as far as [Election.Leader] and [Election.IsLeader] can tell. The
// first leader waits too if Redis knows of none before, because Redis may have lost its data.
//
// Choose the time that your work needs to stop when its context ends, and a third of the lease, which is
// how long the leader needs to notice that the lock was deleted. All candidates must use the same delay. 0, the
// default, is no delay; a negative one is refused.
func WithTakeoverDelay(d time.Duration) Option { return func(s *settings) { s.delay = d } }

// maxValue is the size of the longest value.
const maxValue = 64 << 10

// New returns a candidate for the leadership. New sends nothing, and a name, value or option that
// cannot work is the error of each call: [rlock.ErrInvalidOption].
//
// name is the name of the lock. Jobs, results and elections of one client need different names. value is what
// others learn about the leader, such as its address: up to 64 KiB, and "" if nobody asks. An observer
// has the same name and no value.
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

// Run campaigns until this process leads, and calls fn. If the leadership is lost, the context of fn ends.
// Run then waits until fn has returned, and only then campaigns again. So one call of Run has at most one fn
// at work, and resigns only when fn has returned.
//
// Run returns when fn returns while it leads, after the resignation. Its error is that of fn, joined with
// [rlock.ErrLeaseLost] or [rlock.ErrUnavailable] if the resignation tells so. If the leadership was lost
// before fn returned, nil and the error of the context do not end Run, but any other error does. Without a leadership
// Run returns when ctx ends or the client is closed, and with an error that does not pass: a name or option
// that cannot work, a key that holds other data, a wrong password, or a right that the user of Redis does not have. While
// Redis does not respond, Run tries again every 5 s or sooner.
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
	if reply, ok := errors.AsType[redis.Error](err); ok && (request.LacksRights(reply) || request.HasCode(reply, "NOAUTH", "WRONGPASS")) {
		return false
	}
	return errors.Is(err, rlock.ErrUnavailable) || errors.Is(err, rlock.ErrLeaseLost) || errors.Is(err, rlock.ErrNotReplicated)
}

// lead runs fn and resigns. again reports that the leadership was lost, and that fn ended because of that.
func (t *Term) lead(held context.Context, fn func(context.Context, *Term) error) (again bool, err error) {
	defer func() { // also if fn panics
		lost := errors.Is(context.Cause(held), rlock.ErrLeaseLost)
		resigned := t.Resign(held)
		switch {
		case lost && (err == nil || errors.Is(err, held.Err()) || errors.Is(err, context.Cause(held))):
			again, err = true, nil
		case resigned != nil && !errors.Is(err, resigned):
			err = errors.Join(err, resigned)
		}
	}()
	return false, fn(held, t)
}

// Campaign waits until this process leads, or until ctx ends, and returns the term and a context for the work of
// the leader. The context descends from ctx, and ends when the leadership is lost, with a [*rlock.LostError] as
// its cause. If only ctx ends, the leadership stays until you call [Term.Resign]. Call it when the work has
// ended, and in every case.
//
// After an error this process does not lead, and no candidate is left behind. Campaign takes two round trips
// if no process leads. Under a context that leads already it returns [rlock.ErrInvalidOption].
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

// IsLeader returns nil while this process leads, and [ErrNotLeader] otherwise. It sends nothing: it looks at the
// time that is left of the lease, by the monotonic and by the wall clock. With IsLeader, an *Election is an
// Elector of github.com/go-co-op/gocron.
func (e *Election) IsLeader(context.Context) error {
	if t := e.term.Load(); t != nil && t.held.Err() == nil {
		return nil
	}
	return ErrNotLeader
}
