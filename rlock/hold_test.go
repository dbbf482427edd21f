package rlock_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

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
	requireLease(hold, 60)
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

	t.Run("returns the function's own error", func(t *testing.T) {
		mine := errors.New("mine")
		err := mu.Do(ctx, func(context.Context) error { return mine })
		require.Same(t, mine, err)
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

// What a context owns can be asked of it, without a request.
func TestTokenAndOwnerOfAContext(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	mu := c.NewLock("a", rlock.WithFencing())
	require.Zero(t, mu.Token(t.Context()))
	require.Empty(t, mu.Owner(t.Context()))
	held, hold := lock(t, t.Context(), mu)
	names := sent(t, srv, func() {
		require.Equal(t, hold.Token(), mu.Token(held))
		require.Positive(t, mu.Token(held))
		require.Equal(t, hold.Owner(), mu.Owner(held))
		require.Equal(t, hold.Token(), c.NewLock("a").Token(held), "the same lock")
		require.Zero(t, c.NewLock("b").Token(held))
		require.Zero(t, mu.Token(rlock.Detach(held)))
	})
	require.Empty(t, names)
	require.NoError(t, hold.Unlock(held))
	require.Zero(t, mu.Token(held))
	require.Empty(t, mu.Owner(held))
	require.Zero(t, c.NewLock("").Token(held), "an invalid lock")
}

func TestDetach(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewLock("a")
	type key struct{}
	held, hold := lock(t, context.WithValue(t.Context(), key{}, "v"), mu)
	detached := rlock.Detach(held)
	require.Equal(t, 1, mu.HoldCount(held))
	require.Zero(t, mu.HoldCount(detached))
	require.Equal(t, "v", detached.Value(key{}))

	_, _, err := mu.TryLock(detached)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	_, _, err = mu.TryLockFor(detached, 20*time.Millisecond)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	// As the detached context ends with the hold, the waiter's must not.
	waiting := context.WithoutCancel(detached)
	acquired := make(chan *rlock.Hold)
	go func() {
		_, hold, err := mu.Lock(waiting)
		if err != nil {
			hold = nil
		}
		acquired <- hold
	}()
	time.Sleep(50 * time.Millisecond)
	select {
	case <-acquired:
		t.Fatal("entered beside the holder")
	default:
	}
	require.NoError(t, hold.Unlock(held))
	require.ErrorIs(t, context.Cause(detached), rlock.ErrUnlocked)
	second := <-acquired
	require.NotNil(t, second)
	require.NoError(t, second.Unlock(waiting))
	require.Zero(t, holds(t, rdb, "a"))
}

// Detach below a detached context, and a lock that is taken there.
func TestDetachThenLockAnother(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	a, b := c.NewLock("a"), c.NewLock("b")
	held, hold := lock(t, t.Context(), a)
	inB, holdB := lock(t, rlock.Detach(held), b)
	require.Zero(t, a.HoldCount(inB), "b's context brings a's ownership back")
	_, nested := lock(t, inB, b)
	require.Equal(t, 2, b.HoldCount(inB))
	for _, h := range []*rlock.Hold{nested, holdB, hold} {
		require.NoError(t, h.Unlock(held))
	}
}

// oddTerms are those of a nested hold, under a lease of 30 s.
var oddTerms = map[string][]rlock.LockOption{
	"fixed": {rlock.WithoutRenewal()},
	"short": {rlock.WithLeaseTime(100 * time.Millisecond)},
	"long":  {rlock.WithLeaseTime(time.Hour)},
}

// A nested hold with other terms may be the last one of its grant. Whoever has the lock
// after it, waiting in memory, by a fair run or as it is kept, has the terms of the lock: it is
// renewed, survives a silence of a fraction of the lease, and learns of a removal within a
// third of it.
func TestFakeTimeTermsEndWithTheGrant(t *testing.T) {
	newLocks := map[string]func(c *rlock.Client, opts ...rlock.LockOption) *rlock.Lock{
		"plain": func(c *rlock.Client, opts ...rlock.LockOption) *rlock.Lock { return c.NewLock("a", opts...) },
		"fair":  func(c *rlock.Client, opts ...rlock.LockOption) *rlock.Lock { return c.NewFairLock("a", opts...) },
		"kept": func(c *rlock.Client, opts ...rlock.LockOption) *rlock.Lock {
			if len(opts) > 0 { // a lock that is kept may not be fixed
				return c.NewLock("a", opts...)
			}
			return c.NewLock("a", rlock.WithRetention(24*time.Hour))
		},
	}
	for kind, newLock := range newLocks {
		for name, odd := range oddTerms {
			t.Run(kind+", "+name, func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					f := newFakeRedis(t)
					c := f.client(t, nil)
					mu := newLock(c)
					if kind == "kept" {
						keep(t, f, mu)
					}
					held, hold := lock(t, t.Context(), mu)
					nestedHeld, nested := lock(t, held, newLock(c, odd...))
					require.NoError(t, hold.Unlock(held))
					var waiter *waiting
					if kind != "kept" {
						waiter = begin(t.Context(), mu)
						synctest.Wait()
					}
					require.NoError(t, nested.Unlock(nestedHeld))
					if kind == "kept" {
						waiter = begin(t.Context(), mu)
					}
					held, hold = waiter.acquired(t)

					time.Sleep(time.Minute)
					f.deafUp.Store(true)
					time.Sleep(5 * time.Second)
					f.heal()
					time.Sleep(time.Minute)
					require.NoError(t, held.Err())
					f.Del("a")
					time.Sleep(10*time.Second + time.Millisecond)
					require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
					require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
				})
			})
		}
	}
}

// Readers of a client share a grant. One who comes, and one who stays, have what they asked
// for, whatever the nested holds ask for of somebody who has left.
func TestFakeTimeTermsOfReaders(t *testing.T) {
	opts := &rlock.Options{LeaseTime: 30 * time.Second}
	setUp := func(t *testing.T) (reader, fixed *rlock.Lock) {
		c := newFakeRedis(t).client(t, opts)
		return c.NewRWLock("a").Reader(), c.NewRWLock("a", rlock.WithoutRenewal()).Reader()
	}
	t.Run("a renewed one comes", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T) {
			reader, fixed := setUp(t)
			held, hold := lock(t, t.Context(), reader)
			nestedHeld, nested := lock(t, held, fixed)
			require.NoError(t, hold.Unlock(held))
			others, other := lock(t, t.Context(), reader)
			time.Sleep(time.Minute)
			require.ErrorIs(t, context.Cause(nestedHeld), rlock.ErrLeaseLost)
			require.ErrorContains(t, context.Cause(nestedHeld), "the fixed lease is over")
			require.NoError(t, others.Err())
			require.NoError(t, other.Unlock(others))
			require.ErrorIs(t, nested.Unlock(nestedHeld), rlock.ErrLeaseLost)
		})
	})
	t.Run("a fixed one stays", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T) {
			reader, fixed := setUp(t)
			held, hold := lock(t, t.Context(), reader)
			others, other := lock(t, t.Context(), reader)
			require.Equal(t, hold.Owner(), other.Owner())
			nestedHeld, nested := lock(t, held, fixed)
			require.NoError(t, hold.Unlock(held))
			require.Equal(t, nested.Owner(), reader.Owner(held), "of what is nested")
			require.NoError(t, other.Unlock(others))
			require.Zero(t, reader.HoldCount(others))
			require.Empty(t, reader.Owner(context.WithoutCancel(others)), "who has left owns nothing")
			time.Sleep(time.Minute)
			require.ErrorIs(t, context.Cause(nestedHeld), rlock.ErrLeaseLost)
			require.ErrorIs(t, nested.Unlock(nestedHeld), rlock.ErrLeaseLost)
		})
	})
}

// Whoever has joined a hold trusts the lease that its proof states, also when a nested hold
// with a shorter one is what remains of it.
func TestFakeTimeJoinedUnderAShorterHold(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		nestedHeld, nested := lock(t, held, c.NewLock("a", rlock.WithLeaseTime(200*time.Millisecond)))
		joined, mine := join(t, t.Context(), f.client(t, nil).NewLock("a"), hold.Proof())
		require.NoError(t, hold.Unlock(held))
		time.Sleep(10 * time.Minute)
		require.NoError(t, nestedHeld.Err())
		require.NoError(t, joined.Err())
		require.NoError(t, mine.Unlock(joined))
		require.NoError(t, nested.Unlock(nestedHeld))
	})
}

// Readers that share a grant have each their own end in trace and figures: that of the last
// hold under the first one, whoever stays, a member of a multi lock too, which has none.
func TestFakeTimeEndsOfReaders(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		var released []time.Duration
		c := f.client(t, &rlock.Options{Trace: rlock.Trace{
			Released: func(_ context.Context, r rlock.Release) { released = append(released, r.Held) },
		}})
		rw := c.NewRWLock("a")
		held, hold := lock(t, t.Context(), rw.Reader())
		teamHeld, team := lock(t, t.Context(), rlock.NewMultiLock(rw.Reader(), c.NewLock("b")))
		time.Sleep(time.Second)
		require.NoError(t, hold.Unlock(held))
		require.Equal(t, []time.Duration{time.Second}, released, "beside a member")
		kinds := c.Stats().Kinds
		at := slices.IndexFunc(kinds, func(k rlock.KindStats) bool { return k.Kind == rlock.KindRead })
		require.EqualValues(t, 1, kinds[at].Released)
		require.Zero(t, kinds[at].Held)
		time.Sleep(time.Second)
		require.NoError(t, team.Unlock(teamHeld))

		released = nil
		held, hold = lock(t, t.Context(), rw.Reader())
		nestedHeld, nested := lock(t, held, rw.Reader())
		others, other := lock(t, t.Context(), rw.Reader())
		require.Equal(t, hold.Owner(), other.Owner())
		time.Sleep(time.Second)
		require.NoError(t, hold.Unlock(held))
		require.Empty(t, released, "a nested hold lives on")
		time.Sleep(time.Second)
		require.NoError(t, other.Unlock(others))
		require.Equal(t, []time.Duration{2 * time.Second}, released)
		time.Sleep(time.Second)
		require.NoError(t, nested.Unlock(nestedHeld))
		require.Equal(t, []time.Duration{2 * time.Second, 3 * time.Second}, released)
		for _, k := range c.Stats().Kinds {
			require.Zero(t, k.Held, k.Kind)
		}
	})
}

// A waiter may take over the place of one of its client that leaves, whatever either asked
// for. It gets the lock on its own terms.
func TestFakeTimeTermsOfWhoInherits(t *testing.T) {
	terms := map[string][]rlock.LockOption{
		"default":         nil,
		"without renewal": {rlock.WithoutRenewal()},
		"without handoff": {rlock.WithoutHandoff()},
		"long":            {rlock.WithLeaseTime(time.Hour)},
		"fenced":          {rlock.WithFencing()},
		"kept":            {rlock.WithRetention(time.Second)},
	}
	for leaves, theirs := range terms {
		for stays, ours := range terms {
			t.Run(leaves+" leaves, "+stays+" stays", func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					f := newFakeRedis(t)
					before, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a", rlock.WithFencing()))
					c := f.client(t, nil)
					ctx, leave := context.WithCancel(t.Context())
					leaver := begin(ctx, c.NewLock("a", theirs...))
					synctest.Wait()
					stayer := begin(t.Context(), c.NewLock("a", ours...))
					synctest.Wait()
					leave()
					<-leaver.done
					require.NoError(t, hold.Unlock(before))
					held, hold := stayer.acquired(t)
					require.Equal(t, stays == "fenced", hold.Token() > 0)

					time.Sleep(time.Minute)
					if stays == "without renewal" {
						require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
						return
					}
					require.NoError(t, context.Cause(held))
					if stays == "long" {
						require.Greater(t, time.Until(hold.Until()), 30*time.Minute)
					}
					require.NoError(t, hold.Unlock(held))
				})
			})
		}
	}
}
