package rlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// The servers restart empty, one after the other, while a hold lasts. The hold takes its share again
// on each, and nobody else gets the lock meanwhile.
func TestQuorumHoldOutlivesRollingRestarts(t *testing.T) {
	t.Parallel()
	rounds := 10
	if testing.Short() {
		rounds = 4
	}
	all := newServers(t, 3)
	mu, other := all.lock(t), all.lock(t)
	held, hold := all.lockAll(t, mu)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var second atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if _, theirs, err := other.TryLock(ctx); err == nil {
				second.Store(true)
				_ = theirs.Unlock(context.Background())
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	for n := range rounds {
		srv := all[n%len(all)]
		srv.Kill()
		srv.Restart()
		rdb := srv.Client(t)
		redistest.Eventually(t, "the hold has its share again", func() bool {
			return rdb.HExists(t.Context(), "a", hold.Owner()).Val() || held.Err() != nil
		})
		require.NoError(t, context.Cause(held), "restart %d", n)
	}
	cancel()
	<-ended
	require.False(t, second.Load(), "a second holder")
	require.NoError(t, hold.Unlock(held))
	all.free(t)
}

// A server that stands still for several leases, and forgets nothing, has let the share lapse. The hold
// has it again before the next server stands still.
func TestQuorumHoldOutlivesServersThatStandStill(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "several leases")
	all := newServers(t, 3)
	mu := all.lock(t)
	held, hold := all.lockAll(t, mu)
	for _, srv := range all {
		srv.Stop()
		time.Sleep(quorumLease + quorumLease/2) // the lease there ends
		srv.Cont()
		rdb := srv.Client(t)
		redistest.Eventually(t, "the hold has its share again", func() bool {
			return rdb.HExists(t.Context(), "a", hold.Owner()).Val() || held.Err() != nil
		})
		require.NoError(t, context.Cause(held))
	}
	require.NoError(t, hold.Unlock(held))
	all.free(t)
}

// A share that somebody else has is not taken, and the hold goes on without it.
func TestQuorumHoldLeavesTheSharesOfOthers(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	mu := all.lock(t)
	held, hold := all.lockAll(t, mu)
	rdb := all[0].Client(t)
	require.NoError(t, rdb.Del(t.Context(), "a").Err())
	require.NoError(t, rdb.HSet(t.Context(), "a", "other:1", "1").Err())
	until := hold.Until()
	for range 2 {
		redistest.Eventually(t, "renewed", func() bool { return hold.Until().After(until) })
		until = hold.Until()
	}
	require.Equal(t, map[string]string{"other:1": "1"}, hgetall(t, rdb, "a"))
	err := hold.Unlock(held)
	require.False(t, errors.Is(err, rlock.ErrLeaseLost), "%v", err)
	require.NoError(t, err)
	require.NoError(t, rdb.Del(t.Context(), "a").Err())
}
