package rlock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestFakeTimeAnHourOfRenewals(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a")) // lease 30 s
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NoError(t, held.Err())
		at := slices.Compact(f.scripts("renew")) // the first one is sent twice: the server has to learn the script
		require.GreaterOrEqual(t, at[0], 5*time.Second)
		require.LessOrEqual(t, at[0], 10*time.Second)
		for _, d := range pauses(at) {
			require.Equal(t, 10*time.Second, d)
		}
		require.InDelta(t, 360, len(at), 1)
		require.NoError(t, hold.Unlock(held))
	})
}

func TestFakeTimeRenewalIsRetriedWithinTheWindow(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
		f.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(lapse(30*time.Second) - time.Millisecond)
		f.heal()
		time.Sleep(time.Minute)
		require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost, "a millisecond is too late for the next attempt")
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)

		held, hold = lock(t, t.Context(), f.client(t, nil).NewLock("b"))
		f.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(20 * time.Second) // one attempt in at most 5 s, the bound of a single one
		f.heal()
		time.Sleep(time.Minute)
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(held))
	})
}
