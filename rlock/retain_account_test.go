package rlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// balanced requires that each acquisition that a client has counted has one end.
func balanced(t *testing.T, c *rlock.Client) {
	t.Helper()
	for _, k := range c.Stats().Kinds {
		require.Equal(t, k.Acquired(), k.Released+k.Lost, "%+v", k)
		require.Zero(t, k.Held, "%+v", k)
		require.Zero(t, k.Waiting, "%+v", k)
	}
}

// A lock that a client keeps is taken in memory by a plain Lock, and by a request to the
// server as a member of a MultiLock. Either way each acquisition is counted once, for the
// lock that was called, and so is its end.
func TestRetainedLockInMultiLockIsCounted(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	t.Run("parked by a plain lock", func(t *testing.T) {
		c := newClient(t, srv, nil)
		a, b := c.NewLock("a", rlock.WithRetention(time.Hour)), c.NewLock("b")
		kept(t, srv, a)
		held, hold := lock(t, t.Context(), rlock.NewMultiLock(a, b))
		require.NoError(t, hold.Unlock(held))
		balanced(t, c)
	})
	t.Run("parked by a member", func(t *testing.T) {
		c := newClient(t, srv, nil)
		a, b := c.NewLock("c", rlock.WithRetention(time.Hour)), c.NewLock("d", rlock.WithRetention(time.Hour))
		multi := rlock.NewMultiLock(a, b)
		redistest.Eventually(t, "the client keeps the lock", func() bool {
			held, hold := lock(t, t.Context(), multi)
			require.NoError(t, hold.Unlock(held))
			return srv.Client(t).Exists(t.Context(), "c").Val() == 1
		})
		held, hold := lock(t, t.Context(), a)
		require.NoError(t, hold.Unlock(held))
		balanced(t, c)
		for _, k := range c.Stats().Kinds {
			require.Zero(t, k.Calls[rlock.OutcomeNested], "nothing was nested: %+v", k)
		}
	})
}

// The time in which nobody held the lock is not part of a hold.
func TestFakeTimeRetainedLockIsNotHeldWhileItIsParked(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		var holds []time.Duration
		c := f.client(t, &rlock.Options{Trace: rlock.Trace{Released: func(_ context.Context, r rlock.Release) {
			holds = append(holds, r.Held)
		}}})
		mu := c.NewLock("a", rlock.WithRetention(time.Hour))
		keep(t, f, mu)
		holds = nil
		time.Sleep(time.Minute)
		asked := len(f.asked())
		held, hold := lock(t, t.Context(), mu)
		time.Sleep(time.Second)
		require.NoError(t, hold.Unlock(held))
		require.Len(t, f.asked(), asked, "it was kept")
		require.Equal(t, []time.Duration{time.Second}, holds)
	})
}

// A kept lock is lost while nobody holds it. No context depended on it, so neither the
// hook nor the statistics tell of a loss, however the client finds it out.
func TestLossOfParkedGrantIsNotReported(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	var lost atomic.Int64
	opts := &rlock.Options{Trace: rlock.Trace{Lost: func(rlock.Loss) { lost.Add(1) }}}
	for name, end := range map[string]func(c *rlock.Client, mu *rlock.Lock){
		"close": func(*rlock.Client, *rlock.Lock) {},
		"other options": func(c *rlock.Client, _ *rlock.Lock) {
			held, hold := lock(t, t.Context(), c.NewLock("a"))
			_ = hold.Unlock(held)
		},
	} {
		c := newClient(t, srv, opts)
		mu := c.NewLock("a", rlock.WithRetention(time.Hour))
		kept(t, srv, mu)
		require.NoError(t, srv.Client(t).FlushAll(t.Context()).Err())
		end(c, mu)
		require.NoError(t, closeSoon(c))
		require.Zero(t, lost.Load(), name)
		for cause, n := range c.Stats().Losses {
			require.Zero(t, n, "%s %s", name, cause)
		}
	}
}
