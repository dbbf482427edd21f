package rlock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestHeldContextEndsWithItsHolds(t *testing.T) {
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	outer, outerHold := lock(t, t.Context(), mu)
	one, oneHold := lock(t, outer, mu)
	two, twoHold := lock(t, outer, mu)

	require.NoError(t, oneHold.Unlock(one))
	require.ErrorIs(t, one.Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(one), rlock.ErrUnlocked)
	require.NoError(t, two.Err(), "a sibling is none of its business")
	require.NoError(t, outer.Err())

	require.NoError(t, outerHold.Unlock(outer))
	require.NoError(t, outer.Err(), "a hold under it is live")
	require.NoError(t, two.Err(), "its own hold is live")

	require.NoError(t, twoHold.Unlock(two))
	require.ErrorIs(t, context.Cause(two), rlock.ErrUnlocked)
	require.ErrorIs(t, context.Cause(outer), rlock.ErrUnlocked)
	require.NoError(t, t.Context().Err())
}

func TestHeldContextInherits(t *testing.T) {
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	type key struct{}
	deadline := time.Now().Add(time.Hour)
	parent, cancel := context.WithDeadline(context.WithValue(t.Context(), key{}, "v"), deadline)
	defer cancel()
	for name, acquire := range map[string]func() (context.Context, *rlock.Hold, error){
		"Lock":       func() (context.Context, *rlock.Hold, error) { return mu.Lock(parent) },
		"TryLock":    func() (context.Context, *rlock.Hold, error) { return mu.TryLock(parent) },
		"TryLockFor": func() (context.Context, *rlock.Hold, error) { return mu.TryLockFor(parent, time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			held, hold, err := acquire()
			require.NoError(t, err)
			require.Equal(t, "v", held.Value(key{}))
			got, ok := held.Deadline()
			require.True(t, ok)
			require.Equal(t, deadline, got, "the wait's deadline is not the hold's")
			require.NoError(t, hold.Unlock(held))
		})
	}
}

// awaitUntil returns when the trusted window of hold reaches d from now on, and
// requires the lock to be there all the time.
func awaitUntil(t *testing.T, srv *redistest.Server, key string, hold *rlock.Hold, d time.Duration) {
	t.Helper()
	rdb, end := srv.Client(t), time.Now().Add(d)
	redistest.Eventually(t, "the lease is renewed", func() bool {
		require.Positive(t, rdb.PTTL(t.Context(), key).Val(), "the key is gone or has no TTL")
		return hold.Until().After(end)
	})
}

func TestEndOfParentKeepsLock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithLeaseTime(10*time.Second))
	parent, cancel := context.WithCancelCause(t.Context())
	held, hold := lock(t, parent, mu)
	why := errors.New("why")
	cancel(why)
	require.ErrorIs(t, context.Cause(held), why)

	awaitUntil(t, srv, "a", hold, 11*time.Second)
	require.Equal(t, hold.Owner(), onlyOwner(t, srv, "a"))
	require.NoError(t, hold.Unlock(held), "under a context that has ended")
	require.Zero(t, holds(t, srv.Client(t), "a"))
}

// The deadline of TryLockFor bounds the wait only.
func TestWaitEndsLockStays(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithLeaseTime(10*time.Second))
	held, hold, err := mu.TryLockFor(t.Context(), 2*time.Second)
	require.NoError(t, err)
	awaitUntil(t, srv, "a", hold, 11*time.Second)
	require.NoError(t, held.Err())
	require.NoError(t, hold.Unlock(held))
}

func onlyOwner(t *testing.T, srv *redistest.Server, key string) string {
	t.Helper()
	fields := hgetall(t, srv.Client(t), key)
	require.Len(t, fields, 1)
	for owner := range fields {
		return owner
	}
	return ""
}

func TestUnlockUnderEndedContext(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewLock("a")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	held, hold := lock(t, t.Context(), mu)
	_, nested := lock(t, held, mu)
	require.NoError(t, nested.Unlock(ended))
	require.Equal(t, 1, holds(t, rdb, "a"))
	require.NoError(t, hold.Unlock(ended))
	require.Zero(t, holds(t, rdb, "a"))
}

// A context that is nil does not keep the lock from being unlocked.
func TestUnlockWithoutContext(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	var none context.Context
	_, hold := lock(t, t.Context(), c.NewLock("a"))
	require.NoError(t, hold.Unlock(none))
	_, both := lock(t, t.Context(), rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b")))
	require.NoError(t, both.Unlock(none))
	require.Empty(t, srv.Client(t).Keys(t.Context(), "?").Val())
}

func TestSecondUnlock(t *testing.T) {
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	ctx := t.Context()
	again := func(t *testing.T, hold *rlock.Hold) {
		t.Helper()
		require.Empty(t, sent(t, srv, func() {
			err := hold.Unlock(ctx)
			require.ErrorIs(t, err, rlock.ErrNotHeld)
			require.ErrorContains(t, err, `"a"`)
		}))
	}

	t.Run("of a free lock", func(t *testing.T) {
		_, hold := lock(t, ctx, mu)
		require.NoError(t, hold.Unlock(ctx))
		again(t, hold)
	})
	t.Run("of a grant that is still held", func(t *testing.T) {
		held, hold := lock(t, ctx, mu)
		_, nested := lock(t, held, mu)
		require.NoError(t, nested.Unlock(ctx))
		again(t, nested)
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(ctx))
	})
	t.Run("while this client holds it again", func(t *testing.T) {
		_, hold := lock(t, ctx, mu)
		require.NoError(t, hold.Unlock(ctx))
		held2, hold2 := lock(t, ctx, mu)
		again(t, hold)
		require.NoError(t, held2.Err())
		require.NoError(t, hold2.Unlock(ctx))
	})
	t.Run("while another client holds it", func(t *testing.T) {
		_, hold := lock(t, ctx, mu)
		require.NoError(t, hold.Unlock(ctx))
		held2, hold2 := lock(t, ctx, newClient(t, srv, nil).NewLock("a"))
		again(t, hold)
		require.NoError(t, held2.Err())
		require.Equal(t, hold2.Owner(), onlyOwner(t, srv, "a"))
		require.NoError(t, hold2.Unlock(ctx))
	})
}

// One grant, one lease: the longest its live holds asked for.
func TestNestedLease(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	minutes := func(n int) *rlock.Lock { return c.NewLock("a", rlock.WithLeaseTime(time.Duration(n)*time.Minute)) }
	requireLease := func(hold *rlock.Hold, n int) {
		t.Helper()
		want := time.Duration(n) * time.Minute
		require.InDelta(t, want, rdb.PTTL(t.Context(), "a").Val(), float64(20*time.Second))
		require.InDelta(t, want-want/100, time.Until(hold.Until()), float64(20*time.Second))
	}
	held, hold := lock(t, t.Context(), minutes(10))
	requireLease(hold, 10)
	_, short := lock(t, held, minutes(2))
	requireLease(hold, 10)
	_, long := lock(t, held, minutes(60))
	requireLease(hold, 60)
	requireLease(short, 60)
	require.NoError(t, long.Unlock(held))
	requireLease(hold, 60) // what was granted stays so
	require.NoError(t, short.Unlock(held))
	require.NoError(t, hold.Unlock(held))
}

// After the longest is unlocked the rest is renewed as it asked for.
func TestRenewalAfterLongestIsUnlocked(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	ms := func(n int) *rlock.Lock {
		return c.NewLock("a", rlock.WithLeaseTime(time.Duration(n)*time.Millisecond))
	}
	held, hold := lock(t, t.Context(), ms(3000))
	_, middle := lock(t, held, ms(6000))
	_, long := lock(t, held, ms(3_600_000))
	require.NoError(t, long.Unlock(held))

	rdb.PExpire(t.Context(), "a", 4*time.Second)
	redistest.Eventually(t, "a renewal with the middle lease", func() bool {
		return rdb.PTTL(t.Context(), "a").Val() > 5*time.Second
	})
	require.LessOrEqual(t, rdb.PTTL(t.Context(), "a").Val(), 6*time.Second)
	require.NoError(t, middle.Unlock(held))

	rdb.PExpire(t.Context(), "a", 2400*time.Millisecond)
	redistest.Eventually(t, "a renewal with the shortest lease", func() bool {
		return rdb.PTTL(t.Context(), "a").Val() > 2500*time.Millisecond
	})
	require.LessOrEqual(t, rdb.PTTL(t.Context(), "a").Val(), 3*time.Second)
	require.NoError(t, hold.Unlock(held))
}

// A fixed lease is renewed as long as a hold under it asks for that.
func TestFixedLeaseWithRenewedHold(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, &rlock.Options{LeaseTime: 10 * time.Second})
	held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithoutRenewal()))
	nested, nestedHold := lock(t, held, c.NewLock("a"))
	awaitUntil(t, srv, "a", hold, 11*time.Second)
	require.NoError(t, nestedHold.Unlock(nested))
	require.NoError(t, held.Err())

	within(t, time.Minute, held.Done())
	require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost, "nobody asks for renewal any more")
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
	require.Zero(t, holds(t, rdb, "a"))
}

// A fixed hold does not keep a renewed one from being renewed.
func TestRenewedLeaseWithFixedHold(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, &rlock.Options{LeaseTime: 10 * time.Second})
	held, hold := lock(t, t.Context(), c.NewLock("a"))
	_, fixed := lock(t, held, c.NewLock("a", rlock.WithoutRenewal()))
	awaitUntil(t, srv, "a", hold, 11*time.Second)
	require.NoError(t, fixed.Unlock(held))
	awaitUntil(t, srv, "a", hold, 11*time.Second)
	require.NoError(t, held.Err())
	require.NoError(t, hold.Unlock(held))
}

func TestDo(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewLock("a")
	ctx := t.Context()

	t.Run("holds and unlocks", func(t *testing.T) {
		var held context.Context
		require.NoError(t, mu.Do(ctx, func(ctx context.Context) error {
			held = ctx
			require.Equal(t, 1, mu.HoldCount(ctx))
			require.Equal(t, 1, holds(t, rdb, "a"))
			return nil
		}))
		require.ErrorIs(t, context.Cause(held), rlock.ErrUnlocked)
		require.Zero(t, holds(t, rdb, "a"))
	})
	t.Run("nested", func(t *testing.T) {
		require.NoError(t, mu.Do(ctx, func(ctx context.Context) error {
			err := mu.Do(ctx, func(ctx context.Context) error {
				require.Equal(t, 2, holds(t, rdb, "a"))
				return nil
			})
			require.Equal(t, 1, holds(t, rdb, "a"))
			require.NoError(t, ctx.Err())
			return err
		}))
		require.Zero(t, holds(t, rdb, "a"))
	})
	t.Run("returns the function's own error", func(t *testing.T) {
		mine := errors.New("mine")
		err := mu.Do(ctx, func(context.Context) error { return mine })
		require.Same(t, mine, err)
	})
	t.Run("joins the loss to the function's error", func(t *testing.T) {
		mine := errors.New("mine")
		err := mu.Do(ctx, func(context.Context) error {
			require.NoError(t, rdb.Del(ctx, "a").Err())
			return mine
		})
		require.ErrorIs(t, err, mine)
		require.ErrorIs(t, err, rlock.ErrLeaseLost)
	})
	t.Run("panic", func(t *testing.T) {
		require.PanicsWithValue(t, "mine", func() {
			_ = mu.Do(ctx, func(context.Context) error { panic("mine") })
		})
		require.Zero(t, holds(t, rdb, "a"))
	})
	t.Run("runtime.Goexit", func(t *testing.T) {
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_ = mu.Do(ctx, func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-exited
		require.Zero(t, holds(t, rdb, "a"))
	})
	t.Run("not acquired", func(t *testing.T) {
		_, hold := lock(t, ctx, mu)
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		err := mu.Do(short, func(context.Context) error { t.Error("the function ran"); return nil })
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, hold.Unlock(ctx))
	})
	t.Run("the context ends while the function runs", func(t *testing.T) {
		parent, cancel := context.WithCancel(ctx)
		err := mu.Do(parent, func(ctx context.Context) error {
			cancel()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, holds(t, rdb, "a"))
	})
}

// A refused call returns a nil hold, of which no method panics.
func TestNilHold(t *testing.T) {
	var h *rlock.Hold
	require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
	require.ErrorIs(t, h.Leave(t.Context()), rlock.ErrNotHeld)
	require.Empty(t, h.Owner())
	require.Zero(t, h.Token())
	require.Zero(t, h.Until())
	require.Empty(t, h.Proof())
	var m *rlock.MultiHold
	require.ErrorIs(t, m.Unlock(t.Context()), rlock.ErrNotHeld)
	require.Zero(t, m.Until())
	require.Empty(t, m.Holds())
}

// A fixed lease that was left keeps others out until it ends; Close does not wait for it. Only the last hold
// leaves the lock. A renewed lock cannot be left.
func TestFakeTimeLeave(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c, other := f.client(t, nil), f.client(t, nil).NewLock("a")
		mu := c.NewLock("a", rlock.WithoutRenewal(), rlock.WithLeaseTime(10*time.Second))
		held, hold := lock(t, t.Context(), mu)
		_, nested := lock(t, held, mu)
		require.NoError(t, nested.Leave(t.Context()))
		require.NoError(t, held.Err())
		require.NoError(t, hold.Leave(t.Context()))
		require.ErrorIs(t, context.Cause(held), rlock.ErrUnlocked)
		require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrNotHeld)
		_, _, err := mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)

		_, renewed := lock(t, t.Context(), c.NewLock("b"))
		require.ErrorIs(t, renewed.Leave(t.Context()), rlock.ErrInvalidOption)
		require.NoError(t, renewed.Unlock(t.Context()))

		began := time.Now()
		require.NoError(t, c.Close(t.Context()))
		require.Equal(t, began, time.Now())
		_, _, err = other.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.Zero(t, c.Stats().Losses[rlock.LossFixed])
		_, hold = lock(t, t.Context(), other)
		require.Greater(t, time.Since(began), 9*time.Second)
		require.NoError(t, hold.Unlock(t.Context()))
	})
}

// An Unlock after the end of the lease makes no request, and its error has no cause to give advice about.
func TestFakeTimeUnlockLongAfterTheLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a", rlock.WithoutRenewal()))
		time.Sleep(time.Hour)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
	})
}
