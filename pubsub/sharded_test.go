package pubsub_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

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

// spread returns n channels on each master.
func spread(c *redistest.Cluster, n int) map[*redistest.Server][]string {
	channels := make(map[*redistest.Server][]string)
	for i := range 16 * n * len(c.Nodes) {
		ch := fmt.Sprintf("lock:{%d}", i)
		if owner := c.Owner(c.Slot(ch)); len(channels[owner]) < n {
			channels[owner] = append(channels[owner], ch)
		}
	}
	return channels
}

// joinSpread waits on n channels on each master, and returns when all waiters hear.
func joinSpread(t *testing.T, c *redistest.Cluster, h *pubsub.Hub, n int) (map[*redistest.Server][]string, map[string]*waiter) {
	t.Helper()
	channels, waiters := spread(c, n), make(map[string]*waiter)
	for _, names := range channels {
		for _, ch := range names {
			waiters[ch] = newWaiter(h, ch)
			live(t, waiters[ch])
		}
	}
	return channels, waiters
}

// reached checks that a message from anywhere in the cluster reaches w.
func reached(t *testing.T, rdb *redis.ClusterClient, w *waiter, channel string) {
	t.Helper()
	for awake(w) {
	}
	heard := w.Heard()
	redistest.Eventually(t, "a message is heard on "+channel, func() bool {
		_ = rdb.SPublish(t.Context(), channel, "0").Err()
		return w.Heard() > heard
	})
	wake(t, w)
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

func TestShardedSlotMoves(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	redistest.Long(t, "a cluster of four, and five moves")
	c := redistest.StartCluster(t, 3, 0)
	rdb := c.Client(t)
	h := shardedHub(t, rdb)
	channels, waiters := joinSpread(t, c, h, 2)
	for _, node := range c.Nodes {
		require.Len(t, node.Clients(t, "pubsub"), 1)
	}

	// The slot of one channel goes round, and comes by a node that had no part.
	from := c.Nodes[0]
	ch := channels[from][0]
	w, slot := waiters[ch], c.Slot(ch)
	var slowest time.Duration
	for i, to := range []*redistest.Server{c.Nodes[1], c.AddNode(), c.Nodes[2], from, c.Nodes[1]} {
		for awake(w) {
		}
		m := c.BeginMove(slot, to)
		reached(t, rdb, w, ch) // until the end from the source
		require.True(t, w.Live())
		start := time.Now()
		m.Finish()
		live(t, w)
		slowest = max(slowest, time.Since(start))
		reached(t, rdb, w, ch)
		for other, w := range waiters {
			if other != ch && i > 0 { // i = 0: the first channel's slot may have been that of a probe
				assert.True(t, w.Live(), "%s has not moved", other)
			}
		}
	}
	t.Logf("live again within %v, the agreement of the nodes included", slowest)
	for ch, w := range waiters {
		reached(t, rdb, w, ch)
	}
}

func TestShardedFailovers(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	redistest.Long(t, "a cluster of six, and three failovers")
	c := redistest.StartCluster(t, 3, 1)
	rdb := c.Client(t)
	h := shardedHub(t, rdb)
	channels, waiters := joinSpread(t, c, h, 1)
	master := c.Nodes[0]
	ch := channels[master][0]
	w, slot := waiters[ch], c.Slot(ch)

	for _, event := range []struct {
		name  string
		bound time.Duration // until the doubt
		do    func()
		undo  func(old *redistest.Server)
	}{
		{"manual", 2 * time.Second, func() { c.Failover(c.Replica(master)) }, func(*redistest.Server) {}},
		{"SIGKILL", 2 * time.Second, func() { master.Kill() }, (*redistest.Server).Restart},
		{"SIGSTOP", 5 * time.Second, func() { master.Stop() }, (*redistest.Server).Cont},
	} {
		for awake(w) {
		}
		require.True(t, w.Live())
		start := time.Now()
		event.do()
		wake(t, w)
		doubt := time.Since(start)
		next := c.AwaitFailover(master, slot)
		switched := time.Now()
		redistest.Eventually(t, "the new master has the subscription", func() bool {
			return next.Client(t).PubSubShardNumSub(t.Context(), ch).Val()[ch] > 0
		})
		for !w.Live() {
			wake(t, w)
		}
		t.Logf("%s: in doubt after %v, failed over after %v, live %v after that", event.name, doubt, switched.Sub(start), time.Since(switched))
		assert.Less(t, doubt, event.bound, event.name)
		reached(t, rdb, w, ch)
		for other, w := range waiters {
			assert.True(t, w.Live(), "%s: %s", event.name, other)
		}
		event.undo(master)
		c.AwaitHealthy()
		master = next
	}
}

// A waiter that nobody else works for learns of a new master, whose former one is
// silent, as soon as the other nodes know of it: on each kind of channel.
func TestSilentMasterIsReplaced(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	redistest.Long(t, "a cluster of six, and three failovers")
	c := redistest.StartCluster(t, 3, 1)
	for name, servers := range map[string]func(*redis.ClusterClient) pubsub.Servers{
		"sharded":  func(rdb *redis.ClusterClient) pubsub.Servers { return pubsub.Sharded(rdb, "probe:") },
		"both":     func(rdb *redis.ClusterClient) pubsub.Servers { return pubsub.Both(rdb, "probe:") },
		"ordinary": func(rdb *redis.ClusterClient) pubsub.Servers { return pubsub.Redis(rdb, "{lock}probe") },
	} {
		h := pubsub.NewHub(servers(c.Client(t)), pubsub.Options{})
		w := newWaiter(h, "{lock}")
		live(t, w)
		old := c.Owner(c.Slot("{lock}"))
		next := c.Replica(old)
		rdb := next.Client(t)
		old.Stop()
		redistest.Eventually(t, "the replica takes over", func() bool {
			return strings.Contains(rdb.Info(t.Context(), "replication").Val(), "role:master")
		})
		promoted := time.Now()
		redistest.Eventually(t, "the new master has a subscription", func() bool {
			ctx := t.Context()
			return rdb.PubSubShardNumSub(ctx, "{lock}").Val()["{lock}"]+rdb.PubSubNumSub(ctx, "{lock}").Val()["{lock}"] > 0
		})
		live(t, w)
		t.Logf("%s: live %v after the promotion", name, time.Since(promoted))
		assert.Less(t, time.Since(promoted), 5*time.Second, name) // and what a busy machine adds
		old.Cont()
		c.AwaitHealthy()
		assert.NoError(t, h.Close(context.Background()))
	}
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
