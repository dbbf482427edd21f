package rlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// A holder of the same client is trusted to tell of its end. But it does not know, until
// its next renewal, that the lock was removed: whoever waits for it looks now and then.
func TestFakeTimeRemovedBehindOwnHolder(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a", longLease)
		held, hold := lock(t, t.Context(), mu)
		before := len(f.asked())
		w := begin(t.Context(), mu)
		synctest.Wait()
		behind := begin(t.Context(), mu)
		time.Sleep(keepAlive - time.Millisecond)
		synctest.Wait()
		require.Len(t, f.asked(), before, "nobody has reason to ask")
		_, err := f.client(t, nil).NewLock("a").ForceUnlock(t.Context())
		require.NoError(t, err)
		began := f.now()
		next, nextHold := w.acquired(t)
		require.LessOrEqual(t, f.now()-began, keepAlive)
		<-held.Done()
		require.Error(t, hold.Unlock(held))
		require.NoError(t, nextHold.Unlock(next))
		next, nextHold = behind.acquired(t)
		require.NoError(t, nextHold.Unlock(next))
	})
}

// Waiting behind a holder of the same client costs no more requests than waiting behind
// another client's.
func TestFakeTimeWaitingBehindOwnHolder(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a", longLease)
		held, hold := lock(t, t.Context(), mu)
		before := len(f.asked())
		var waiters []*waiting
		for range 10 {
			waiters = append(waiters, begin(t.Context(), mu))
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.LessOrEqual(t, len(f.asked())-before, askedIn(time.Minute))
		asked := len(f.asked())
		began := f.now()
		require.NoError(t, hold.Unlock(held))
		for _, w := range waiters {
			held, hold := w.acquired(t)
			require.Equal(t, began, f.now())
			require.NoError(t, hold.Unlock(held))
		}
		require.LessOrEqual(t, len(f.asked())-asked, 1, "it is passed on in memory")
		synctest.Wait()
		require.Empty(t, f.Keys())
	})
}
