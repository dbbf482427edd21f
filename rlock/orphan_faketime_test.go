package rlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// A waiter whose user loses the rights to the lock cannot take its ticket out of the
// queue. The client does that when it has the rights again, even if a lease would have
// ended by then.
func TestFakeTimeTicketOutlivesTheLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		w := begin(t.Context(), f.client(t, nil).NewLock("a", rlock.WithLeaseTime(100*time.Millisecond)))
		synctest.Wait()
		require.Len(t, queueOf(t, f.rdb, "a"), 1)
		f.SetError("NOPERM this user has no permissions to access one of the keys used as arguments")
		<-w.done
		require.ErrorIs(t, w.err, rlock.ErrUnavailable)
		time.Sleep(3 * time.Second)
		f.heal()
		time.Sleep(time.Second)
		require.Empty(t, tickets(t, f.rdb, "a"))
	})
}

// The host is silent while the lock is acquired, another server while it is released. That
// the share of the host is given back does not take the place of the release of all.
func TestFakeTimeQuorumReleasesAllAndAShare(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		held, hold := lock(t, t.Context(), mu) // the servers learn the scripts
		require.NoError(t, hold.Unlock(held))
		time.Sleep(time.Second)
		all[0].deafUp.Store(true)
		held, hold = lock(t, t.Context(), mu)
		all[1].deafUp.Store(true)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrUnavailable)
		require.True(t, all[1].Exists("a"))
		for _, f := range all[:2] {
			f.deafUp.Store(false)
		}
		time.Sleep(10 * time.Second) // less than the lease
		synctest.Wait()
		for _, f := range all {
			require.False(t, f.Exists("a"))
		}
	})
}
