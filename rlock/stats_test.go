package rlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// requireBalance requires that what a client has counted adds up: it was called so
// often, and nothing is under way.
func requireBalance(t *testing.T, s rlock.Stats, calls int64) {
	t.Helper()
	var ended int64
	for _, k := range s.Kinds {
		for _, n := range k.Calls {
			ended += n
		}
		require.Zero(t, k.Held, "held: %+v", k)
		require.Zero(t, k.Waiting, "waiting: %+v", k)
		require.Equal(t, k.Acquired(), k.Released+k.Lost, "%+v", k)
	}
	require.Equal(t, calls, ended, "%+v", s.Kinds)
}

// Each call has one outcome, whatever becomes of it, and each acquisition one end.
func TestStatsAddUp(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	var starts, ends, acquired, released, lostByUnlock atomic.Int64
	c := newClient(t, srv, &rlock.Options{Trace: rlock.Trace{
		Start: func(ctx context.Context, _ rlock.Attempt) context.Context { starts.Add(1); return ctx },
		Acquired: func(_ context.Context, a rlock.Acquisition) {
			ends.Add(1)
			if a.Err == nil && a.Outcome != rlock.OutcomeNested {
				acquired.Add(1)
			}
		},
		Released: func(_ context.Context, r rlock.Release) {
			if released.Add(1); r.Outcome == rlock.OutcomeLost {
				lostByUnlock.Add(1)
			}
		},
	}})
	rw := c.NewRWLock("rw")
	locks := []*rlock.Lock{
		c.NewLock("a"), c.NewLock("a", rlock.WithoutHandoff()), c.NewLock("b", rlock.WithFencing()), c.NewFairLock("fair"),
		rw.Reader(), rw.Reader(), rw.Writer(), c.NewLock(""),
	}
	multi := rlock.NewMultiLock(c.NewLock("a"), c.NewLock("m"), rw.Reader())
	var calls atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 60 {
				if i := rand.N(len(locks) + 1); i < len(locks) {
					useAtRandom(t, locks[i], &calls)
				} else {
					useAtRandom(t, multi, &calls)
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, c.Close(t.Context()))
	s := c.Stats()
	requireBalance(t, s, calls.Load())
	require.Equal(t, calls.Load(), starts.Load())
	require.Equal(t, calls.Load(), ends.Load())
	require.Equal(t, acquired.Load(), released.Load(), "nothing was lost")
	require.Zero(t, lostByUnlock.Load())
	var waits, holds int64
	for _, k := range s.Kinds {
		holds += k.Released
		for o, n := range k.Calls {
			if o != rlock.OutcomeNested && o != rlock.OutcomeError {
				waits += n
			}
		}
	}
	require.Len(t, s.Kinds, 5)
	require.Len(t, s.Waits.Counts, len(rlock.HistogramBounds())+1)
	require.Equal(t, waits, s.Waits.Count())
	require.Equal(t, holds, s.Holds.Count())
	require.Positive(t, s.Kinds[0].Calls[rlock.OutcomeHandedOff])
	require.Positive(t, s.Kinds[0].Calls[rlock.OutcomeNested])
	require.Positive(t, s.Kinds[0].Calls[rlock.OutcomeBusy])
	require.Positive(t, s.Kinds[0].Calls[rlock.OutcomeError])
}

// useAtRandom locks in one of the ways, perhaps nested, and unlocks.
func useAtRandom[H unlocker](t *testing.T, mu locker[H], calls *atomic.Int64) {
	ctx := t.Context()
	try := func(ctx context.Context, patience time.Duration) (context.Context, H, error) {
		calls.Add(1)
		switch rand.N(4) {
		case 0:
			return mu.TryLock(ctx)
		case 1:
			return mu.TryLockFor(ctx, rand.N(patience))
		case 2:
			ctx, cancel := context.WithCancel(ctx)
			timer := time.AfterFunc(rand.N(patience), cancel)
			defer timer.Stop()
			return mu.Lock(ctx)
		}
		return mu.Lock(ctx)
	}
	held, hold, err := try(ctx, 20*time.Millisecond)
	if err != nil {
		return
	}
	if rand.N(3) == 0 {
		if _, nested, err := try(held, time.Second); err == nil {
			if rand.N(2) == 0 { // in any order
				hold, nested = nested, hold
			}
			assert.NoError(t, nested.Unlock(ctx))
		}
	}
	if rand.N(4) == 0 {
		runtime.Gosched()
	}
	assert.NoError(t, hold.Unlock(ctx))
	if rand.N(8) == 0 {
		assert.ErrorIs(t, hold.Unlock(ctx), rlock.ErrNotHeld)
	}
}

// Losses are counted by cause, for each who had the lock.
//
// In fake time: where the first answer to an Unlock comes too late, nobody can tell whether
// there was something to release.
func TestStatsOfLosses(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, ctx := newFakeRedis(t), t.Context()
		c := f.client(t, &rlock.Options{LeaseTime: 3 * time.Second})
		_, noticed := lock(t, ctx, c.NewLock("noticed"))
		_, unnoticed := lock(t, ctx, c.NewLock("unnoticed", rlock.WithLeaseTime(time.Hour)))
		_, fixed := lock(t, ctx, c.NewLock("fixed", rlock.WithoutRenewal(), rlock.WithLeaseTime(2*time.Second)))
		_, limited := lock(t, ctx, c.NewLock("limited", rlock.WithMaxHold(time.Second)))
		_, multi := lock(t, ctx, rlock.NewMultiLock(c.NewLock("one", rlock.WithLeaseTime(time.Hour)), c.NewLock("two")))
		require.NoError(t, f.rdb.Del(ctx, "noticed", "unnoticed", "one").Err())
		redistest.Eventually(t, "two are noticed", func() bool {
			s := c.Stats()
			return s.Losses[rlock.LossGone] == 1 && s.Losses[rlock.LossFixed] == 1 && s.Renewals > 0
		})
		for _, hold := range []unlocker{noticed, unnoticed, fixed, limited, multi} {
			require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrLeaseLost)
		}
		s := c.Stats()
		requireBalance(t, s, 5)
		require.Equal(t, map[rlock.LossCause]int64{rlock.LossGone: 3, rlock.LossFixed: 1, rlock.LossLimit: 1, rlock.LossLapsed: 0, rlock.LossClosed: 0}, s.Losses)
		require.Equal(t, int64(5), s.Kinds[0].Lost+s.Kinds[1].Lost)
		require.Equal(t, s.Renewals, s.Margins.Count())

		other := f.client(t, nil)
		held, _ := lock(t, ctx, other.NewLock("left"))
		over, cancel := context.WithCancel(ctx)
		cancel()
		require.Error(t, other.Close(over))
		<-held.Done()
		redistest.Eventually(t, "closed", func() bool { return other.Stats().Losses[rlock.LossClosed] == 1 })
		requireBalance(t, other.Stats(), 1)
	})
}

// A trace whose functions are not set, and the counters, cost no memory. The number is
// that of the version before there were either, with room for what go-redis does.
func TestAllocationsWithoutTrace(t *testing.T) {
	if redistest.RaceEnabled {
		t.Skip("the race detector allocates")
	}
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	n := testing.AllocsPerRun(200, func() {
		_, hold, err := mu.Lock(t.Context())
		if err == nil {
			err = hold.Unlock(t.Context())
		}
		assert.NoError(t, err)
	})
	require.LessOrEqual(t, n, float64(32), "%v", n)
}

type callKey struct{}

// A hook of go-redis learns of each call that a request is for, with the context that
// Start has returned, also if the request is for several.
func TestCallers(t *testing.T) {
	t.Parallel()
	rdb := newServer(t).Client(t)
	var seen sync.Map // for whom requests were sent
	rdb.AddHook(redistest.Sees(func(ctx context.Context, _ redis.Cmder) {
		for _, c := range append(rlock.Callers(ctx), ctx) {
			seen.Store(c.Value(callKey{}), nil)
		}
	}))
	c := clientOn(t, rdb, &rlock.Options{Trace: rlock.Trace{Start: func(ctx context.Context, a rlock.Attempt) context.Context {
		return context.WithValue(ctx, callKey{}, a.Lock)
	}}})
	const crowd = 64
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			assert.NoError(t, c.NewLock(fmt.Sprint(i)).Do(t.Context(), func(context.Context) error { return nil }))
		})
	}
	all.Wait()
	for i := range crowd {
		_, ok := seen.Load(fmt.Sprint(i))
		require.True(t, ok, i)
	}
}

// The ages of the oldest wait and the oldest hold grow while nothing happens, and are gone with
// their cause.
func TestFakeTimeOldestWaitAndHold(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		require.Zero(t, c.Stats().OldestWait)
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		time.Sleep(time.Minute)
		require.Zero(t, c.Stats().OldestWait)
		require.InDelta(t, time.Minute, c.Stats().OldestHold, float64(time.Second))
		w := begin(t.Context(), c.NewLock("a"))
		synctest.Wait()
		time.Sleep(20 * time.Second)
		next := begin(t.Context(), c.NewLock("a"))
		time.Sleep(10 * time.Second)
		require.InDelta(t, 30*time.Second, c.Stats().OldestWait, float64(time.Second))
		require.InDelta(t, 90*time.Second, c.Stats().OldestHold, float64(time.Second))
		require.NoError(t, hold.Unlock(held))
		held, hold = w.acquired(t)
		require.InDelta(t, 10*time.Second, c.Stats().OldestWait, float64(time.Second), "of who waits now")
		require.Less(t, c.Stats().OldestHold, time.Second)
		require.NoError(t, hold.Unlock(held))
		held, hold = next.acquired(t)
		require.Zero(t, c.Stats().OldestWait)
		require.NoError(t, hold.Unlock(held))
		require.Zero(t, c.Stats().OldestHold)
	})
}

// lateRenewals returns how many of the renewals had up to 0.4 of the lease left, which is what the alert looks at.
func lateRenewals(s rlock.Stats) (n int64) {
	for i, bound := range rlock.ShareBounds() {
		if bound < 0.45 {
			n += s.MarginShares.Counts[i]
		}
	}
	return n
}

// The margin as a share of the lease is the same for all leases, and tells a late renewal from the others.
func TestFakeTimeMarginShares(t *testing.T) {
	for _, lease := range []time.Duration{300 * time.Millisecond, 3 * time.Second, 30 * time.Second, 5 * time.Minute, time.Hour} {
		t.Run(lease.String(), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				renewed := make(chan rlock.Renewal, 1000)
				c := f.client(t, &rlock.Options{LeaseTime: lease, Trace: rlock.Trace{Renewed: func(r rlock.Renewal) { renewed <- r }}})
				held, hold := lock(t, t.Context(), c.NewLock("a"))
				for range 20 {
					r := <-renewed
					require.Equal(t, lease, r.Lease)
					require.InDelta(t, 0.74, float64(r.Margin)/float64(r.Lease), 0.12)
				}
				synctest.Wait()
				s := c.Stats()
				require.Zero(t, lateRenewals(s), s.MarginShares)
				require.EqualValues(t, 20, s.MarginShares.Count())
				require.Len(t, s.MarginShares.Counts, len(rlock.ShareBounds())+1)
				require.GreaterOrEqual(t, s.MarginShares.Counts[6], int64(18), "from 0.6 to 0.7")
				require.InDelta(t, 0.66, s.MarginShares.Sum/20, 0.02)

				f.deafUp.Store(true) // two attempts are lost
				time.Sleep(lease * 6 / 10)
				f.heal()
				r := <-renewed
				require.Less(t, float64(r.Margin)/float64(r.Lease), 0.4)
				synctest.Wait()
				require.EqualValues(t, 1, lateRenewals(c.Stats()))
				require.NoError(t, hold.Unlock(held))
			})
		})
	}
}

// A lock that was granted by a message has a provisional lease until its first renewal: that renewal is not late.
func TestFakeTimeMarginShareOfAClaim(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		renewed := make(chan rlock.Renewal, 1000)
		other, c := f.client(t, nil), f.client(t, &rlock.Options{Trace: rlock.Trace{Renewed: func(r rlock.Renewal) { renewed <- r }}})
		held, hold := lock(t, t.Context(), other.NewLock("a"))
		w := begin(t.Context(), c.NewLock("a"))
		synctest.Wait()
		time.Sleep(10 * time.Second)
		require.NoError(t, hold.Unlock(held))
		held, hold = w.acquired(t)
		first, second := <-renewed, <-renewed
		require.Equal(t, 2500*time.Millisecond, first.Lease)
		require.Equal(t, 30*time.Second, second.Lease)
		synctest.Wait()
		require.Zero(t, lateRenewals(c.Stats()), c.Stats().MarginShares)
		require.NoError(t, hold.Unlock(held))
	})
}

// A call that did not get the lock is in Waits and in FailedWaits, one that got it in Waits only.
func TestFakeTimeFailedWaits(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		other, c := f.client(t, nil), f.client(t, &rlock.Options{Group: rlock.NameGroup})
		held, hold := lock(t, t.Context(), other.NewLock("a7"))
		_, _, err := c.NewLock("a7").TryLockFor(t.Context(), time.Minute)
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.NoError(t, hold.Unlock(held))
		require.NoError(t, c.NewLock("a7").Do(t.Context(), func(held context.Context) error {
			return c.NewLock("a7").Do(held, func(context.Context) error { return nil })
		}))
		require.ErrorIs(t, c.NewLock("").Do(t.Context(), nil), rlock.ErrInvalidOption)
		s := c.Stats()
		require.EqualValues(t, 2, s.Waits.Count())
		require.EqualValues(t, 1, s.FailedWaits.Count())
		require.Equal(t, time.Minute, s.FailedWaits.Sum)
		g := s.Groups["a*"]
		require.EqualValues(t, 2, g.Waits.Count())
		require.EqualValues(t, 1, g.FailedWaits.Count())
	})
}
