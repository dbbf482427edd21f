package rlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Guard returns fn as a function under a lock: the lock is lockFor's for the argument, with that
// lock's lease and options.
//
//	ship := rlock.Guard(
//		func(o Order) *rlock.Lock { return locks.NewLock("order:" + o.ID) },
//		warehouse.Ship,
//		rlock.WithWait(2*time.Second),
//	)
//	label, err := ship(ctx, order)
//
// Guard is [Lock.Do] for functions with a result: fn gets the context that owns the lock, nested
// locking under this context re-enters, and the lock is unlocked when fn returns, panics or
// exits the goroutine.
//
// If the lock could not be acquired, fn is not run, the result is the zero R and the error is
// the error of [Lock.Lock]; or [ErrInvalidOption] for an impossible option. Otherwise
// result and error are fn's, the error joined by the error of the Unlock: a [*LostError] if the
// lock was lost while fn ran, or [ErrUnavailable] if Redis did not answer to the Unlock. The
// result is fn's in these cases too.
//
// Without options a call waits for the lock as long as the context allows. The returned function
// is safe for concurrent use if lockFor and fn are.
func Guard[A, R any, L Locker](lockFor func(A) L, fn func(context.Context, A) (R, error), opts ...GuardOption) func(context.Context, A) (R, error) {
	g := newGuard(opts)
	return func(ctx context.Context, arg A) (result R, err error) {
		err = g.do(ctx, lockFor(arg), func(held context.Context) (err error) {
			result, err = fn(held, arg)
			return err
		})
		return result, err
	}
}

// GuardDo is [Guard] for functions without a result.
func GuardDo[A any, L Locker](lockFor func(A) L, fn func(context.Context, A) error, opts ...GuardOption) func(context.Context, A) error {
	guarded := Guard(lockFor, func(ctx context.Context, arg A) (struct{}, error) { return struct{}{}, fn(ctx, arg) }, opts...)
	return func(ctx context.Context, arg A) error {
		_, err := guarded(ctx, arg)
		return err
	}
}

// Locker is a [Lock] or a [MultiLock].
type Locker interface {
	Do(ctx context.Context, fn func(context.Context) error) error
	DoFor(ctx context.Context, wait time.Duration, fn func(context.Context) error) error
	TryDo(ctx context.Context, fn func(context.Context) error) error
	sleep(ctx context.Context, d time.Duration) bool // of the client
}

func (l *Lock) sleep(ctx context.Context, d time.Duration) bool { return l.client.sleep(ctx, d) }

func (m *MultiLock) sleep(ctx context.Context, d time.Duration) bool {
	return m.members[0].sleep(ctx, d)
}

// GuardOption is a setting of a [Guard].
type GuardOption func(*guard)

// WithWait bounds the wait for the lock, as [Lock.TryLockFor] does. Zero means no
// waiting at all: one attempt, as [Lock.TryLock].
func WithWait(d time.Duration) GuardOption {
	return func(g *guard) {
		switch {
		case d < 0:
			g.err = fmt.Errorf("%w: WithWait: %v is negative", ErrInvalidOption, d)
		case d == 0:
			g.try = Locker.TryDo
		default:
			g.try = func(l Locker, ctx context.Context, fn func(context.Context) error) error { return l.DoFor(ctx, d, fn) }
		}
	}
}

// WithRetry tries a busy lock again, up to n times, for locks held too long to be waited for.
// Each try waits as [WithWait] says; without WithWait, not at all. The pause before a try ends
// early at the end of the context or of the client; up to half of the pause is left out at
// random: hosts started together do not try together.
//
// Only a busy lock leads to a new try: no error of fn does, not even [ErrNotAcquired], and no
// failure of Redis: each try copes with such failures.
func WithRetry(n int, pause time.Duration) GuardOption {
	return func(g *guard) {
		if n < 1 || pause <= 0 {
			g.err = fmt.Errorf("%w: WithRetry: %d tries %v apart: both must be positive", ErrInvalidOption, n, pause)
		}
		g.retries, g.pause = n, pause
	}
}

// guard is how a guarded function gets its lock.
type guard struct {
	try     func(Locker, context.Context, func(context.Context) error) error
	retries int
	pause   time.Duration
	err     error // why no call works
}

func newGuard(opts []GuardOption) *guard {
	g := &guard{}
	for _, opt := range opts {
		if opt == nil {
			g.err = fmt.Errorf("%w: an option is nil", ErrInvalidOption)
			continue
		}
		opt(g)
	}
	switch {
	case g.try != nil:
	case g.retries > 0: // a try that waits for ever leaves nothing to retry
		g.try = Locker.TryDo
	default:
		g.try = Locker.Do
	}
	return g
}

// do runs fn under the lock. An error of fn, whatever it is, leads to no further try.
func (g *guard) do(ctx context.Context, l Locker, fn func(context.Context) error) error {
	if g.err != nil {
		return g.err
	}
	for n := 0; ; n++ {
		ran := false
		err := g.try(l, ctx, func(held context.Context) error {
			ran = true
			return fn(held)
		})
		busy, ok := errors.AsType[*NotAcquiredError](err)
		if ran || !ok || n == g.retries || ctx.Err() != nil {
			return err
		}
		if !l.sleep(ctx, g.pause-rand.N(g.pause)/2) && ctx.Err() != nil {
			return busy.because(ended(ctx))
		}
	}
}
