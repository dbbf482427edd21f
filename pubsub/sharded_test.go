package pubsub_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

// shardedHub returns a hub on sharded channels, closed with the test.
func shardedHub(t *testing.T, rdb *redis.ClusterClient) *pubsub.Hub {
	h := pubsub.NewHub(pubsub.Sharded(rdb, "probe:"), pubsub.Options{})
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	return h
}

func TestShardedOneNode(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	for _, version := range []int{2, 3} {
		rdb := c.Client(t, func(o *redis.ClusterOptions) { o.Protocol = version })
		h := shardedHub(t, rdb)
		w, other := newWaiter(h, "lock:{a}"), newWaiter(h, "b")
		live(t, w)
		live(t, other)
		require.Len(t, c.Nodes[0].Clients(t, "pubsub"), 1)
		published := c.Nodes[0].CommandCalls(t)["spublish"]
		redistest.Eventually(t, "probes are published", func() bool {
			return c.Nodes[0].CommandCalls(t)["spublish"] > published+2
		})
		assert.False(t, awake(w), "and come back")
		require.EqualValues(t, 1, rdb.SPublish(t.Context(), "lock:{a}", "0").Val())
		wake(t, w)
		assert.False(t, awake(other))
		require.EqualValues(t, 1, c.Nodes[0].Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Val())
		live(t, w)
		w.Leave()
		redistest.Eventually(t, "the channel is unsubscribed", func() bool {
			return rdb.SPublish(t.Context(), "lock:{a}", "0").Val() == 0
		})
		require.NoError(t, h.Close(t.Context()))
		redistest.Eventually(t, "the connection is closed", func() bool { return len(c.Nodes[0].Clients(t, "pubsub")) == 0 })
	}
}

// A server without sharded channels, or a user without the right: nobody waits
// for a subscription in vain.
func TestShardedRefused(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	require.NoError(t, c.Nodes[0].Client(t).ACLSetUser(t.Context(), "u", "on", "nopass", "+@all", "allkeys", "-ssubscribe").Err())
	h := shardedHub(t, c.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "u", "x" }))
	w := newWaiter(h, "a")
	wake(t, w)
	assert.False(t, w.Live())
}

func TestHasSharded(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	has, err := pubsub.HasSharded(t.Context(), c.Client(t))
	require.NoError(t, err)
	assert.True(t, has)

	require.NoError(t, c.Nodes[0].Client(t).ACLSetUser(t.Context(), "u", "on", "nopass", "+@all", "allkeys", "-pubsub").Err())
	has, err = pubsub.HasSharded(t.Context(), c.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "u", "x" }))
	require.NoError(t, err)
	assert.False(t, has, "it may not ask")

	_, err = pubsub.HasSharded(t.Context(), c.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "later", "x" }))
	require.Error(t, err, "the user may exist later")

	alone := redistest.Start(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: alone.Addr()}}}}, nil
	}})
	defer func() { require.NoError(t, rdb.Close()) }()
	rdb.AddHook(redistest.Hook{Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if c, ok := cmd.(*redis.IntCmd); ok && c.Name() == "cluster" {
			c.SetVal(0) // to CLUSTER KEYSLOT, as Valkey 9 does where it is no cluster
			return nil
		}
		return next(ctx, cmd)
	}})
	require.NoError(t, rdb.ClusterKeySlot(t.Context(), "0").Err())
	has, err = pubsub.HasSharded(t.Context(), rdb)
	require.NoError(t, err)
	assert.False(t, has, "not a cluster")
	alone.Kill()
	_, err = pubsub.HasSharded(t.Context(), rdb)
	require.Error(t, err)
}

func TestBothFamilies(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	admin := c.Nodes[0].Client(t)
	rdb := c.Client(t)
	h := pubsub.NewHub(pubsub.Both(rdb, "probe:"), pubsub.Options{}.Lingering(-1))
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	w, other := newWaiter(h, "lock:{a}"), newWaiter(h, "lock:{b}")
	for range 10 {
		live(t, w)
		live(t, other)
		for awake(w) {
		}
		require.EqualValues(t, 1, rdb.SPublish(t.Context(), "lock:{a}", "0").Val())
		wake(t, w)
		require.EqualValues(t, 1, rdb.Publish(t.Context(), "lock:{a}", "0").Val())
		wake(t, w)
		assert.False(t, awake(other))
		other.Leave()
		redistest.Eventually(t, "both are unsubscribed", func() bool {
			return rdb.Publish(t.Context(), "lock:{b}", "0").Val()+rdb.SPublish(t.Context(), "lock:{b}", "0").Val() == 0
		})
		require.EqualValues(t, 1, admin.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Val())
		other = newWaiter(h, "lock:{b}")
		for w.Live() {
			wake(t, w)
		}
	}
}

// A waiter is live only if it hears both.
func TestBothFamiliesOneRefused(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	admin := c.Nodes[0].Client(t)
	for _, denied := range []string{"-subscribe", "-ssubscribe", "-subscribe -ssubscribe"} {
		t.Run(denied, func(t *testing.T) {
			rules := append([]string{"reset", "on", "nopass", "+@all", "allkeys", "allchannels"}, strings.Fields(denied)...)
			require.NoError(t, admin.ACLSetUser(t.Context(), "u", rules...).Err())
			rdb := c.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "u", "x" })
			h := pubsub.NewHub(pubsub.Both(rdb, "probe:"), pubsub.Options{})
			defer func() { require.NoError(t, h.Close(context.Background())) }()
			for _, channel := range []string{"a", "b"} {
				w := newWaiter(h, channel)
				wake(t, w)
				assert.False(t, w.Live())
			}
		})
	}
}
