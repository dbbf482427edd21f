package topology

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// TestIdleWaiters has a client wait that sends no commands of its own while the
// master of the lock is stopped, stays silent and is replaced. Somebody else
// releases the lock on the new master.
func TestIdleWaiters(t *testing.T) {
	redistest.Long(t, "clusters that nobody asks anything")
	t.Parallel()
	for mode, sharded := range modes {
		if mode == "auto" {
			continue // is on
		}
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 1)
			const name = "a"
			slot := c.Slot(name)
			mu := clientOn(t, c.Client(t), &rlock.Options{ShardedPubSub: sharded}).NewLock(name)
			for range 1 + rounds()/4 {
				old := c.Owner(slot)
				take(t, old.Client(t), name)
				got := wait(t, mu)
				awaitListener(t, c, name)
				next := c.Replica(old)
				rdb := next.Client(t)
				old.Stop()
				redistest.Eventually(t, "the replica takes over", func() bool {
					return strings.Contains(rdb.Info(t.Context(), "replication").Val(), "role:master")
				})
				served(t, got, release(t, rdb, name))
				old.Cont()
				c.AwaitHealthy()
			}
		})
	}
}

// take makes somebody the owner of a lock, and returns when a replica knows.
func take(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	pipe := rdb.Pipeline()
	pipe.HSet(t.Context(), name, "somebody:1", 1)
	pipe.PExpire(t.Context(), name, time.Minute)
	heard := redis.NewIntCmd(t.Context(), "wait", 1, 5000)
	require.NoError(t, pipe.Process(t.Context(), heard))
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, heard.Val())
}

// release does what an Unlock of take's owner would do, and returns when it began.
func release(t *testing.T, rdb *redis.Client, name string) (since time.Time) {
	t.Helper()
	ctx := context.Background()
	since = time.Now()
	require.NoError(t, rdb.Del(ctx, name).Err())
	channel := "redisson_lock__channel:{" + name + "}"
	require.NoError(t, rdb.SPublish(ctx, channel, "0").Err())
	require.NoError(t, rdb.Publish(ctx, channel, "0").Err())
	return since
}
