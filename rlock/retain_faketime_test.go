package rlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// keep locks and unlocks twice: the first Unlock may not hear recalls yet.
func keep(t *testing.T, f *fakeRedis, mu *rlock.Lock) {
	t.Helper()
	for range 2 {
		held, hold := lock(t, t.Context(), mu)
		synctest.Wait()
		require.NoError(t, hold.Unlock(held))
	}
	require.True(t, f.Exists(mu.Name()), "kept")
}

// newKept returns a lock that its client keeps for so long.
func newKept(t *testing.T, retention time.Duration) (*fakeRedis, *rlock.Lock) {
	t.Helper()
	f := newFakeRedis(t)
	mu := f.client(t, nil).NewLock("a", rlock.WithRetention(retention))
	keep(t, f, mu)
	return f, mu
}

// A lock that nobody takes again is released when its time is over.
func TestFakeTimeRetentionEnds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, _ := newKept(t, time.Minute)
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		require.True(t, f.Exists("a"), "it is renewed")
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, f.Exists("a"))
	})
}

// A lock that is in use when its time is over goes back to the server when it is unlocked.
func TestFakeTimeRetentionEndsInUse(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, mu := newKept(t, time.Second)
		before := len(f.scripts("retain"))
		for range 100 {
			held, hold := lock(t, t.Context(), mu)
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, hold.Unlock(held))
		}
		require.InDelta(t, 9, len(f.scripts("retain"))-before, 1)
		keep(t, f, mu)
		held, hold := lock(t, t.Context(), mu)
		time.Sleep(time.Minute)
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(held))
		require.False(t, f.Exists("a"))
	})
}

// A recall that does not arrive costs the time for which the lock may be kept.
func TestFakeTimeRecallIsLost(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, mu := newKept(t, 2*time.Second)
		other := f.client(t, nil).NewLock("a")
		f.deafListeners.Store(true)
		w := begin(t.Context(), other)
		var busy sync.WaitGroup
		stop := make(chan struct{})
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
				if held, hold, err := mu.TryLock(t.Context()); err == nil {
					_ = hold.Unlock(held)
				}
			}
		})
		began := time.Now()
		held, hold := w.acquired(t)
		require.Less(t, time.Since(began), 4*time.Second)
		close(stop)
		busy.Wait()
		require.NoError(t, hold.Unlock(held))
	})
}

// The subscription is lost while a lock is kept: a recall may have been missed.
func TestFakeTimeRecallMayBeMissed(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, _ := newKept(t, time.Hour)
		f.cut()
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, f.Exists("a"))
	})
}

// A lock is removed while nobody holds it, and the next Lock acquires it. If it was used since the
// renewal before, that may have been beside another holder: so the loss is reported then.
func TestFakeTimeRetainedLockIsLost(t *testing.T) {
	t.Run("used", func(t *testing.T) { loseParked(t, time.Hour, 0, 1) })
	t.Run("not used", func(t *testing.T) { loseParked(t, time.Hour, 11*time.Second, 0) })
	t.Run("used, and kept no longer", func(t *testing.T) { loseParked(t, 2*time.Second, 0, 1) })
}

// loseParked has a lock removed that was not used for some time, which is told so many times.
func loseParked(t *testing.T, retention, unused time.Duration, told int) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		lost := 0
		c := f.client(t, &rlock.Options{Trace: rlock.Trace{Lost: func(l rlock.Loss) {
			lost++
			assert.ErrorContains(t, l.Err, "while it was kept")
			assert.Equal(t, rlock.LossGone, l.Cause)
			assert.Zero(t, l.Held)
		}}})
		mu := c.NewLock("a", rlock.WithRetention(retention))
		keep(t, f, mu)
		time.Sleep(unused)
		f.FlushAll()
		time.Sleep(11 * time.Second) // a renewal
		synctest.Wait()
		require.Equal(t, told, lost)
		asked := len(f.asked())
		held, hold := lock(t, t.Context(), mu)
		require.Greater(t, len(f.asked()), asked)
		require.NoError(t, hold.Unlock(held))
		s := c.Stats().Kinds[0]
		require.Zero(t, s.Held)
		require.Zero(t, s.Lost)
	})
}

// An answer that is lost leaves it open whether the lock is kept: it is released.
func TestFakeTimeRetainUnanswered(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a", rlock.WithRetention(time.Hour))
		held, hold := lock(t, t.Context(), mu)
		synctest.Wait()
		open := f.hold(isScript("retain"))
		require.NoError(t, hold.Unlock(held))
		require.False(t, f.Exists("a"))
		held, hold = lock(t, t.Context(), mu)
		owner := hold.Owner()
		open() // the late request is about another owner
		synctest.Wait()
		require.NoError(t, held.Err())
		require.Equal(t, "1", f.HGet("a", owner))
		require.NoError(t, hold.Unlock(held))
	})
}

// Close gives back what is kept, also if it is being taken at that moment.
func TestFakeTimeCloseOfRetained(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		mu := c.NewLock("a", rlock.WithRetention(time.Hour))
		keep(t, f, mu)
		keep(t, f, c.NewLock("b", rlock.WithRetention(time.Hour)))
		held, hold := lock(t, t.Context(), mu)
		closed := make(chan error)
		go func() { closed <- c.Close(context.Background()) }()
		synctest.Wait()
		require.False(t, f.Exists("b"))
		require.ErrorIs(t, context.Cause(held), rlock.ErrClosed)
		require.NoError(t, hold.Unlock(held))
		require.NoError(t, <-closed)
		require.Empty(t, f.Keys())
	})
}

// A client that cannot hear keeps nothing.
func TestFakeTimeRetainedDeaf(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.denySubscribe.Store(true)
		mu := f.client(t, nil).NewLock("a", rlock.WithRetention(time.Hour))
		for range 3 {
			held, hold := lock(t, t.Context(), mu)
			time.Sleep(time.Second)
			require.NoError(t, hold.Unlock(held))
			require.False(t, f.Exists("a"))
		}
	})
}

// Another call of the client cannot use the lock as it is kept. It is told that the lock is being
// given back, not to use a context that nobody has.
func TestFakeTimeKeptForOthers(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		keep(t, f, c.NewLock("a", rlock.WithRetention(time.Hour)))
		other := c.NewLock("a")
		_, _, err := other.TryLock(t.Context())
		var refusal *rlock.NotAcquiredError
		require.ErrorAs(t, err, &refusal)
		require.False(t, refusal.Local)
		require.ErrorContains(t, err, "this client keeps it for calls with other options")
		require.NotContains(t, err.Error(), "use the context")
		synctest.Wait()
		held, hold, err := other.TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
	})
}
