package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// renewals returns options with a short lease, and the renewals as they succeed.
func renewals(lease time.Duration) (*rlock.Options, <-chan time.Time) {
	c := make(chan time.Time, 1<<16)
	return &rlock.Options{LeaseTime: lease, Trace: rlock.Trace{Renewed: func(r rlock.Renewal) { c <- r.Until }}}, c
}

// awaitRenewals returns after n renewals. A lost lease has no more of them.
func awaitRenewals[T any](t *testing.T, renewed <-chan T, n int) {
	t.Helper()
	for range n {
		within(t, 20*time.Second, renewed)
	}
}

// Those of the faults in TestRegressions that show after some leases.
func TestFakeTimeRegressions(t *testing.T) {
	const lease = 6 * time.Second
	t.Run("R3 the end of the acquiring context does not stop the renewal", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			ctx, cancel := context.WithCancel(t.Context())
			held, hold := lock(t, ctx, f.client(t, nil).NewLock("a", rlock.WithLeaseTime(lease)))
			cancel()
			require.ErrorIs(t, context.Cause(held), context.Canceled)
			time.Sleep(10 * lease)
			require.Equal(t, 1, holds(t, f.rdb, "a"))
			require.NoError(t, hold.Unlock(held))
		})
	})

	t.Run("R4 an inner Unlock does not stop the renewal, and the last one leaves no stray renewer", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, nil).NewLock("a", rlock.WithLeaseTime(lease))
			held, hold := lock(t, t.Context(), mu)
			inner, innerHold := lock(t, held, mu)
			require.NoError(t, innerHold.Unlock(inner))
			time.Sleep(10 * lease)
			require.NoError(t, held.Err())
			require.GreaterOrEqual(t, len(f.scripts("renew")), 20)
			require.NoError(t, hold.Unlock(held))
			synctest.Wait()
			f.mu.Lock()
			before := len(f.log)
			f.mu.Unlock()
			time.Sleep(lease) // of which a renewer would use a third
			f.mu.Lock()
			defer f.mu.Unlock()
			require.Len(t, f.log, before)
		})
	})
}

// TestRegressions are faults that other lock libraries have had.
func TestRegressions(t *testing.T) {
	t.Parallel()
	ttl := func(t *testing.T, rdb *redis.Client) time.Duration {
		_, d := dump(t, rdb, "a")
		return d
	}

	t.Run("R1 a dead server is an error and never an acquired lock", func(t *testing.T) {
		srv := newServer(t)
		mu := newClient(t, srv, &rlock.Options{LeaseTime: 300 * time.Millisecond}).NewLock("a")
		srv.Kill()
		got, hold, err := mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.Nil(t, hold)
		require.Equal(t, t.Context(), got)
		_, hold, err = mu.TryLockFor(t.Context(), 200*time.Millisecond)
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.NotErrorIs(t, err, rlock.ErrNotAcquired)
		require.Nil(t, hold)
		require.Error(t, mu.Do(ended(t), func(context.Context) error { panic("fn must not run") }))
	})

	t.Run("R2 an inner Unlock leaves the TTL at the whole lease", func(t *testing.T) {
		srv := newServer(t)
		rdb := srv.Client(t)
		c := newClient(t, srv, nil)
		held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithLeaseTime(100*time.Second)))
		inner, innerHold := lock(t, held, c.NewLock("a", rlock.WithLeaseTime(time.Second)))
		require.Greater(t, ttl(t, rdb), 90*time.Second)
		require.NoError(t, innerHold.Unlock(inner))
		require.Greater(t, ttl(t, rdb), 90*time.Second)
		require.Greater(t, time.Until(hold.Until()), 90*time.Second)
		require.NoError(t, hold.Unlock(held))
	})

	t.Run("R5 any goroutine may unlock", func(t *testing.T) {
		srv := newServer(t)
		mu := newClient(t, srv, nil).NewLock("a")
		for range 100 {
			held, hold := lock(t, t.Context(), mu)
			unlocked := make(chan error)
			go func() { unlocked <- hold.Unlock(held) }()
			require.NoError(t, <-unlocked)
		}
		require.Zero(t, holds(t, srv.Client(t), "a"))
	})

	t.Run("R6 Unlock works under a cancelled context", func(t *testing.T) {
		srv := newServer(t)
		_, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
		require.NoError(t, hold.Unlock(ended(t)))
		require.Zero(t, srv.Client(t).Exists(t.Context(), "a").Val())
	})

	t.Run("R7 release racing renewal never resurrects the key", func(t *testing.T) {
		t.Parallel()
		lateRenewal(t, false)
		srv := newServer(t)
		rdb := srv.Client(t)
		const lease = 120 * time.Millisecond
		opts, renewed := renewals(lease)
		mu := newClient(t, srv, opts).NewLock("a")
		rounds := 0
		for i := range 30 {
			held, hold, err := mu.Lock(t.Context())
			if errors.Is(err, rlock.ErrUnavailable) { // a busy machine
				continue
			}
			require.NoError(t, err)
			rounds++
			select {
			case <-renewed:
			case <-held.Done(): // a busy machine
			}
			// The next renewal goes out within microseconds of this, before or after.
			<-time.After(lease/3 - time.Duration(i%10)*100*time.Microsecond)
			if err := hold.Unlock(held); err != nil { // a busy machine
				if !errors.Is(err, rlock.ErrUnavailable) {
					require.ErrorIs(t, err, rlock.ErrLeaseLost)
				}
				// A renewal that nobody has waited for may have extended what was lost.
				redistest.Eventually(t, "it ends", func() bool { return rdb.Exists(t.Context(), "a").Val() == 0 })
			}
			require.Zero(t, rdb.Exists(t.Context(), "a").Val())
			for len(renewed) > 0 {
				<-renewed
			}
		}
		require.Positive(t, rounds)
	})

	t.Run("R8 a lost reply leaves no orphan", func(t *testing.T) {
		t.Parallel()
		srv := newServer(t)
		teach(t, srv)
		rdb := srv.Client(t)
		c, p := through(t, srv, nil)
		p.CutReplies(1, isScript("try"))
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		require.NoError(t, hold.Unlock(held))
		require.Zero(t, holds(t, rdb, "a"))

		p.CutReplies(1000, isScript("try")) // and the caller leaves in the meantime
		_, _, err := c.NewLock("a").TryLockFor(t.Context(), time.Second)
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.Greater(t, p.Stats().RepliesCut, int64(1))
		requireFree(t, rdb, slack, "a")
	})

	t.Run("R9 connections do not grow with locks and waiters", func(t *testing.T) {
		srv := newServer(t)
		const locks, waiters, pool = 200, 5, 10
		holder := newClient(t, srv, nil)
		rdb := srv.Client(t, func(o *redis.Options) { o.PoolSize = pool })
		opts, refused := refusals()
		c := clientOn(t, rdb, opts)
		var all sync.WaitGroup
		var unlock []func()
		for i := range locks {
			name := fmt.Sprint("lock ", i)
			held, hold := lock(t, t.Context(), holder.NewLock(name))
			unlock = append(unlock, func() { require.NoError(t, hold.Unlock(held)) })
			for range waiters {
				all.Go(func() {
					assert.NoError(t, c.NewLock(name).Do(t.Context(), func(context.Context) error { return nil }))
				})
			}
		}
		for range 2 * locks {
			<-refused
		}
		require.Len(t, srv.Clients(t, "pubsub"), 1)
		before := len(srv.Clients(t, "normal"))
		for _, f := range unlock {
			f()
		}
		all.Wait()
		t.Logf("%d connections with %d waiters on %d locks", before, locks*waiters, locks)
		require.Len(t, srv.Clients(t, "pubsub"), 1)
		require.LessOrEqual(t, before, pool+10*runtime.GOMAXPROCS(0)+4, "both pools, and those of the other client and of the test")
	})

	t.Run("R10 a release between the failed attempt and the subscription is not missed", func(t *testing.T) {
		t.Parallel()
		releaseBeforeSubscription(t, true)
	})

	t.Run("R11 a reconnect of the subscription makes all waiters look again", func(t *testing.T) {
		t.Parallel()
		srv := newServer(t)
		rdb := srv.Client(t)
		opts, refused := refusals()
		holder, c := newClient(t, srv, opts), newClient(t, srv, opts)
		const locks = 50
		var waiting []<-chan grant
		var keys []string
		for i := range locks {
			keys = append(keys, fmt.Sprint("lock ", i))
			held, hold := lock(t, t.Context(), holder.NewLock(keys[i]))
			defer func() {
				// A first attempt without an answer in time may have released it, as far as the
				// holder knows.
				if err := hold.Unlock(held); err != nil {
					require.ErrorIs(t, err, rlock.ErrLeaseLost)
				}
			}()
			waiting = append(waiting, lockAsync(t.Context(), c.NewLock(keys[i])))
		}
		for range 2 * locks {
			<-refused
		}
		require.NoError(t, rdb.Del(t.Context(), keys...).Err()) // no message
		start := time.Now()
		require.NoError(t, rdb.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
		for _, w := range waiting {
			await(t, w, byTimer)
		}
		require.Less(t, time.Since(start), 10*time.Second)
	})

	t.Run("R12 a server that has forgotten the scripts is told again", func(t *testing.T) {
		t.Parallel()
		srv := newServer(t)
		rdb := srv.Client(t)
		const lease = 9 * time.Second
		opts, renewed := renewals(lease)
		c := newClient(t, srv, opts)
		kept, keptHold := lock(t, t.Context(), c.NewLock("kept"))
		for range 100 {
			require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
			held, hold := lock(t, t.Context(), c.NewLock("a"))
			require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
			inner, innerHold := lock(t, held, c.NewLock("a"))
			require.NoError(t, innerHold.Unlock(inner))
			require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
			require.NoError(t, hold.Unlock(held))
		}
		for range 3 {
			for len(renewed) > 0 {
				<-renewed
			}
			require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
			awaitRenewals(t, renewed, 1)
		}
		require.NoError(t, kept.Err())
		require.NoError(t, keptHold.Unlock(kept))
		srv.Restart()
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		require.NoError(t, hold.Unlock(held))
	})

	t.Run("R13 DEL is told at the next renewal", func(t *testing.T) {
		t.Parallel()
		srv := newServer(t)
		const lease = 6 * time.Second
		held, hold := lock(t, t.Context(), newClient(t, srv, &rlock.Options{LeaseTime: lease}).NewLock("a"))
		require.NoError(t, srv.Client(t).Del(t.Context(), "a").Err())
		ends(t, lease/3+slack, "told", held.Done())
		requireLost(t, held, hold, "a")
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
	})

	t.Run("R14 a late Unlock never deletes the new holder's lock", func(t *testing.T) {
		t.Parallel()
		srv := newServer(t)
		rdb := srv.Client(t)
		held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a", rlock.WithLeaseTime(2*time.Second), rlock.WithoutRenewal()))
		next, nextHold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
		value, _ := dump(t, rdb, "a")
		require.Error(t, held.Err())
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
		got, _ := dump(t, rdb, "a")
		require.Equal(t, value, got)
		require.NoError(t, next.Err())
		require.NoError(t, nextHold.Unlock(next))
	})

	t.Run("R15 a waiter cancelled at the instant of its wake-up passes it on", func(t *testing.T) {
		t.Parallel()
		leaveWhenWoken(t, 100)
	})

	t.Run("R16 no goroutine is left after Close", func(t *testing.T) {
		srv := newServer(t)
		before := redistest.Goroutines()
		rdb := srv.Client(t)
		opts, refused := refusals()
		c, err := rlock.New(rdb, opts)
		require.NoError(t, err)
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		other, err := rlock.New(rdb, opts)
		require.NoError(t, err)
		waiting := lockAsync(t.Context(), other.NewLock("a"))
		queued := lockAsync(t.Context(), other.NewLock("a"))
		<-refused
		srv.Stop()
		_, _, err = c.NewLock("abandoned").TryLockFor(t.Context(), 500*time.Millisecond)
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		srv.Cont()
		require.NoError(t, closeSoon(other))
		require.ErrorIs(t, (<-waiting).err, rlock.ErrClosed)
		require.ErrorIs(t, (<-queued).err, rlock.ErrClosed)
		require.NoError(t, hold.Unlock(held))
		require.NoError(t, closeSoon(c))
		settled(t, before)
	})
}

// ended returns a context that is over.
func ended(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
