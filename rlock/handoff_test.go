package rlock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestFakeTimeHandoffSendsNothing(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a", rlock.WithHandoff(1000, time.Hour))
		held, hold := lock(t, t.Context(), mu)
		const n = 200
		owners := make(map[string]int)
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				held, hold, err := mu.Lock(t.Context())
				if assert.NoError(t, err) {
					owners[hold.Owner()]++
					assert.NoError(t, hold.Unlock(held))
				}
			})
		}
		synctest.Wait()
		require.NoError(t, hold.Unlock(held))
		all.Wait()
		require.Equal(t, map[string]int{hold.Owner(): n}, owners)
		require.Len(t, f.asked(), 1)
		require.Len(t, f.scripts("release"), 1)
		require.Empty(t, f.Keys())
	})
}

// When the budget is over, the lock goes to the server, and from there to another
// client, if one waits. So it does if it was taken by a multi lock.
func TestFakeTimeHandoffBudget(t *testing.T) {
	for _, multi := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			c := f.client(t, nil)
			mu := c.NewLock("a", rlock.WithHandoff(3, time.Hour))
			other := f.client(t, nil).NewLock("a")
			var held context.Context
			var hold *rlock.Hold
			var first unlocker
			if multi {
				held, first = lock(t, t.Context(), rlock.NewMultiLock(mu, c.NewLock("b")))
			} else {
				held, first = lock(t, t.Context(), mu)
			}
			owner := mu.Owner(held)
			waiters := []*waiting{begin(t.Context(), other)}
			synctest.Wait()
			for range 5 {
				waiters = append(waiters, begin(t.Context(), mu))
				synctest.Wait()
			}
			for _, i := range []int{1, 2, 3, 0, 4, 5} {
				require.NoError(t, first.Unlock(held))
				held, hold = waiters[i].acquired(t)
				first = hold
				require.Equal(t, i > 0 && i < 4, hold.Owner() == owner, i)
			}
			require.NoError(t, hold.Unlock(held))
			require.Zero(t, f.now(), "nobody had to wait for a time")
			synctest.Wait()
			require.Empty(t, f.Keys())
		})
	}
}

// What the one before left behind neither owns the lock nor ends with it.
func TestFakeTimeHandoffIsANewGrant(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		first, firstHold := lock(t, t.Context(), mu)
		w := begin(t.Context(), mu)
		synctest.Wait()
		require.NoError(t, firstHold.Unlock(first))
		next, hold := w.acquired(t)
		require.Equal(t, firstHold.Owner(), hold.Owner(), "it was passed on")

		require.ErrorIs(t, context.Cause(first), rlock.ErrUnlocked)
		require.NoError(t, next.Err())
		require.Zero(t, mu.HoldCount(first))
		require.Equal(t, 1, mu.HoldCount(next))
		require.ErrorIs(t, firstHold.Unlock(first), rlock.ErrNotHeld)
		stale := context.WithoutCancel(first)
		_, _, err := mu.TryLock(stale)
		require.ErrorIs(t, err, rlock.ErrNotAcquired, "the old context does not nest under the new grant")

		_, inner := lock(t, next, mu)
		require.Equal(t, 2, holds(t, f.rdb, "a"))
		require.NoError(t, inner.Unlock(next))
		require.NoError(t, hold.Unlock(next))
		require.Empty(t, f.Keys())
	})
}

// Tokens grow with each hand-off, and the next grant's is greater than all of
// those that were reserved.
func TestHandoffTakesTheNextToken(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	mu := c.NewLock("a", rlock.WithFencing(), rlock.WithHandoff(50, time.Hour))
	rival := newClient(t, srv, nil).NewLock("a", rlock.WithFencing())
	var tokens []int64
	owners := make(map[string]int)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 40 {
				held, hold, err := mu.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				tokens = append(tokens, hold.Token())
				owners[hold.Owner()]++
				if err := hold.Unlock(held); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for range 5 {
				held, hold, err := rival.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				tokens = append(tokens, hold.Token())
				if err := hold.Unlock(held); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Len(t, tokens, 8*45)
	for i := range tokens[1:] {
		require.Less(t, tokens[i], tokens[i+1])
	}
	require.Less(t, len(owners), 8*40, "some were passed on")
}

// Who would get another lease, a token or none, or no hand-off, gets a grant of
// its own.
func TestFakeTimeHandoffNeedsTheSameOptions(t *testing.T) {
	for name, opts := range map[string][]rlock.LockOption{
		"lease":   {rlock.WithLeaseTime(20 * time.Second)},
		"fixed":   {rlock.WithoutRenewal()},
		"fencing": {rlock.WithFencing()},
		"none":    {rlock.WithoutHandoff()},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				c := f.client(t, nil)
				for _, swap := range []bool{false, true} {
					one, other := c.NewLock(name), c.NewLock(name, opts...)
					if swap {
						one, other = other, one
					}
					held, hold := lock(t, t.Context(), one)
					w := begin(t.Context(), other)
					synctest.Wait()
					require.NoError(t, hold.Unlock(held))
					next, nextHold := w.acquired(t)
					require.NotEqual(t, hold.Owner(), nextHold.Owner())
					require.NoError(t, nextHold.Unlock(next))
				}
			})
		})
	}
}

func TestFakeTimeHandoffOfALostGrant(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		first, firstHold := lock(t, t.Context(), mu)
		w := begin(t.Context(), mu)
		synctest.Wait()
		require.NoError(t, firstHold.Unlock(first))
		next, hold := w.acquired(t)
		require.Equal(t, firstHold.Owner(), hold.Owner())
		f.Del("a")
		<-next.Done()
		require.ErrorIs(t, context.Cause(next), rlock.ErrLeaseLost)
		require.LessOrEqual(t, f.now(), 10*time.Second, "the first renewal")
		require.ErrorIs(t, hold.Unlock(next), rlock.ErrLeaseLost)
	})
}

// Leavers that cross with a hand-off pass it on: nobody waits for a lock that
// nobody has, and nothing is left on the server.
func TestHandoffToALeaver(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithHandoff(1<<20, time.Hour))
	var inside, left atomic.Int64
	var all sync.WaitGroup
	stop := time.Now().Add(time.Second)
	for range 16 {
		all.Go(func() {
			for time.Now().Before(stop) {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(40*time.Microsecond))
				held, hold, err := mu.Lock(ctx)
				if err == nil {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d inside", n)
					}
					inside.Add(-1)
					err = hold.Unlock(held)
				} else {
					left.Add(1)
					err = nil
				}
				if err != nil {
					t.Error(err)
				}
				cancel()
			}
		})
		all.Go(func() {
			for time.Now().Before(stop) {
				if err := mu.Do(t.Context(), func(ctx context.Context) error { return ctx.Err() }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d left", left.Load())
	require.NotZero(t, left.Load())
	requireFree(t, srv.Client(t), 5*time.Second, "a")
}

// However busy one process keeps a lock, another one gets it soon.
func TestHandoffLetsOthersIn(t *testing.T) {
	srv := newServer(t)
	busy := newClient(t, srv, nil).NewLock("a")
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var handed atomic.Int64
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = busy.Do(t.Context(), func(context.Context) error { handed.Add(1); return nil })
			}
		})
	}
	other := newClient(t, srv, nil).NewLock("a")
	var longest time.Duration
	for range 50 {
		start := time.Now()
		held, hold := lock(t, t.Context(), other)
		longest = max(longest, time.Since(start))
		require.NoError(t, hold.Unlock(held))
	}
	stop()
	all.Wait()
	t.Logf("50 times beside %d of the others, longest wait %v", handed.Load(), longest)
	require.Less(t, longest, 5*time.Second, "on any machine")
}

// One operation is a Lock and an Unlock of a lock that 64 goroutines want.
func BenchmarkHandoff(b *testing.B) {
	mu := newClient(b, newServer(b), nil).NewLock("a")
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := mu.Do(context.Background(), func(context.Context) error { return nil }); err != nil {
				b.Error(err)
			}
		}
	})
}
