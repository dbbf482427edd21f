package rlock_test

import (
	"context"
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

// A lock that a client keeps is taken in memory, by a plain Lock and as a member of a MultiLock. Either
// way each acquisition is counted once, for the lock that was called, and so is its end.
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

// A kept lock is lost right after it was used. No context depended on it, but that use may have
// been beside another holder: the loss is told once, however the client finds it out.
func TestFakeTimeLossOfParkedGrantIsReported(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *rlock.Client){
		"close": func(*testing.T, *rlock.Client) {},
		"other options": func(t *testing.T, c *rlock.Client) {
			held, hold := lock(t, t.Context(), c.NewLock("a"))
			_ = hold.Unlock(held)
		},
	} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			lost := 0
			c := f.client(t, &rlock.Options{Trace: rlock.Trace{Lost: func(rlock.Loss) { lost++ }}})
			keep(t, f, c.NewLock("a", rlock.WithRetention(time.Hour)))
			f.FlushAll()
			end(t, c)
			require.NoError(t, closeSoon(c))
			require.Equal(t, 1, lost, name)
			require.EqualValues(t, 1, c.Stats().Losses[rlock.LossGone], name)
		})
	}
}
