package rlock_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

const shortRetention = 200 * time.Millisecond

// requireReleasedInUse takes and leaves a lock with shortRetention without a pause, until a
// listener of a server hears that it was released.
func requireReleasedInUse(t *testing.T, srv *redistest.Server, mu *rlock.Lock) {
	t.Helper()
	sub := srv.Client(t).Subscribe(t.Context(), lua.UnlockChannel(mu.Name()))
	defer sub.Close()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	heard := sub.Channel()
	for end := time.Now().Add(shortRetention + 2*slack); ; {
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		select {
		case <-heard:
			return
		default:
			require.True(t, time.Now().Before(end), "it was not released")
		}
	}
}

// In a cluster, a node can tell who listens to a channel on itself only. Somebody who
// listens on another node hears of a release when the time of the retention is over, although the
// owner never stops to take the lock.
func TestClusterRetainedLockIsReleasedForListenersElsewhere(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	c := clientOn(t, cluster.Client(t), &rlock.Options{ShardedPubSub: rlock.ShardedOff})
	mu := c.NewLock("a", rlock.WithRetention(shortRetention))
	owner := cluster.Owner(cluster.Slot("a"))
	other := cluster.Nodes[0]
	if other == owner {
		other = cluster.Nodes[1]
	}
	kept(t, owner, mu)
	requireReleasedInUse(t, other, mu)
}

// A user without the right to PUBSUB cannot ask who listens. The lock is released when the
// time of the retention is over all the same.
func TestRetainedLockWithoutRightToPubsub(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	require.NoError(t, srv.Client(t).Do(t.Context(), "ACL", "SETUSER", "u", "on", "nopass", "~*", "&*", "+@all", "-pubsub").Err())
	rdb := srv.Client(t, func(o *redis.Options) { o.Username = "u"; o.Password = "x" })
	mu := clientOn(t, rdb, nil).NewLock("a", rlock.WithRetention(shortRetention))
	kept(t, srv, mu)
	requireReleasedInUse(t, srv, mu)
}

// A client recalls a kept lock from one that listens with another Options.ShardedPubSub.
func TestClusterRecallReachesEveryKindOfChannel(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	client := func(mode rlock.ShardedPubSub) *rlock.Client {
		return clientOn(t, cluster.Client(t), &rlock.Options{ShardedPubSub: mode})
	}
	for name, modes := range map[string][2]rlock.ShardedPubSub{
		"a": {rlock.ShardedOff, rlock.ShardedOn}, "b": {rlock.ShardedOn, rlock.ShardedOff},
		"c": {rlock.ShardedBoth, rlock.ShardedOn}, "d": {rlock.ShardedBoth, rlock.ShardedOff},
		"e": {rlock.ShardedOff, rlock.ShardedBoth}, "f": {rlock.ShardedOn, rlock.ShardedBoth},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := client(modes[0]).NewLock(name, rlock.WithRetention(time.Hour)), client(modes[1]).NewFairLock(name)
			kept(t, cluster.Owner(cluster.Slot(name)), a)
			began := time.Now()
			held, hold := lock(t, t.Context(), b)
			require.NoError(t, hold.Unlock(held))
			require.Less(t, time.Since(began), slack, "by the recall, not by asking again after 5 s")
		})
	}
}

// A caller without WithRetention gets the lock although eight others of the same client,
// all with WithRetention, take the kept lock without a pause. It comes at any moment: also
// when one has just unlocked, and the next does not hold the lock yet.
func TestRetainedLockIsNotKeptFromOtherOptions(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, nil)
	for i := range 100 {
		name := strconv.Itoa(i)
		keeping, other := c.NewLock(name, rlock.WithRetention(time.Hour)), c.NewLock(name)
		kept(t, srv, keeping)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for ctx.Err() == nil {
					_ = keeping.Do(ctx, func(context.Context) error { return nil })
				}
			})
		}
		time.Sleep(time.Millisecond)
		held, hold, err := other.TryLockFor(t.Context(), 20*time.Second) // the lock would be kept for an hour
		cancel()
		all.Wait()
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
	}
}
