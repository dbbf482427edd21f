package rlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

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
		time.Sleep(30 * time.Second)
		require.InDelta(t, 30*time.Second, c.Stats().OldestWait, float64(time.Second))
		require.InDelta(t, 90*time.Second, c.Stats().OldestHold, float64(time.Second))
		require.NoError(t, hold.Unlock(held))
		held, hold = w.acquired(t)
		require.Zero(t, c.Stats().OldestWait)
		require.Less(t, c.Stats().OldestHold, time.Second)
		require.NoError(t, hold.Unlock(held))
		require.Zero(t, c.Stats().OldestHold)
	})
}
