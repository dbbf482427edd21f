package rlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Guard returns a function that calls fn while it holds a lock. For each call, lockFor returns the lock
// that belongs to the argument.
//
//	ship := rlock.Guard(
//		func(o Order) *rlock.Lock { return locks.NewLock("order:" + o.ID) },
//		warehouse.Ship,
//		rlock.WithWait(2*time.Second),
//	)
//	label, err := ship(ctx, order)
//
// Guard is [Lock.Do] for functions with a result. The context that fn receives owns the lock, so nested
// lock calls under it do not wait. The lock is unlocked when fn returns, panics or ends its goroutine.
//
// If the lock cannot be acquired, the returned function does not call fn. Instead, it returns the zero
// value of R and the error of [Lock.Lock], or [ErrInvalidOption] if an option is invalid. If fn was
// called, the returned function returns the result of fn. Its error is then the error of fn, joined
// with the error of the Unlock: a [*LostError] if the lock was lost while fn ran, or [ErrUnavailable]
// if Redis did not answer the Unlock.
//
// Without options, a call waits for the lock as long as its context allows. The returned function is
// safe for concurrent use if lockFor and fn are.
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

// GuardDo is [Guard] for functions that return only an error.
func GuardDo[A any, L Locker](lockFor func(A) L, fn func(context.Context, A) error, opts ...GuardOption) func(context.Context, A) error {
	guarded := Guard(lockFor, func(ctx context.Context, arg A) (struct{}, error) { return struct{}{}, fn(ctx, arg) }, opts...)
	return func(ctx context.Context, arg A) error {
		_, err := guarded(ctx, arg)
		return err
	}
}

// Locker is implemented by [*Lock] and [*MultiLock] only.
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

// GuardOption is a setting for [Guard] and [GuardDo].
type GuardOption func(*guard)

// WithWait limits the wait for the lock to d, as [Lock.TryLockFor] does. If d is 0, the call does not
// wait, as [Lock.TryLock] does not. A negative d is [ErrInvalidOption].
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

// WithRetry repeats the attempt if the lock is held by another holder, up to n times. Use it for locks
// that are held for too long to wait for them. Each attempt waits for the lock as [WithWait] says.
// Without WithWait, an attempt does not wait. Before each further attempt there is a pause of the given
// length, minus a random part of up to half of it, so that hosts that started together do not try at
// the same time. The pause ends early if the context ends or the client is closed. n and pause must be
// positive.
//
// No other error leads to a further attempt: no error of fn, not even [ErrNotAcquired], and no failure
// of Redis, because each attempt already repeats requests that fail.
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
