package rlock_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// trips is a hook that counts what is sent.
type trips struct{ n atomic.Int64 }

func (c *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

// executedBy is how many scripts a node has executed.
func executedBy(t *testing.T, node *redistest.Server) int64 {
	t.Helper()
	calls := node.CommandCalls(t)
	return calls["eval"] + calls["evalsha"]
}

// In a cluster, requests for one master share pipelines: two scripts for each Lock and
// Unlock, as on one server, and far fewer trips.
func TestClusterRequestsGather(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	rdb := cluster.Client(t)
	sent := new(trips)
	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(sent) })
	c := clientOn(t, rdb, nil)
	pairs := func(goroutines, each int) {
		var wg sync.WaitGroup
		for i := range goroutines {
			mu := c.NewLock(strconv.Itoa(i))
			wg.Go(func() {
				for range each {
					assert.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil }))
				}
			})
		}
		wg.Wait()
	}
	pairs(256, 1) // the map is loaded, and the servers know the scripts
	executed := func() (n int64) {
		for _, node := range cluster.Nodes {
			n += executedBy(t, node)
		}
		return n
	}
	before, trips := executed(), sent.n.Load()
	pairs(256, 20)
	require.GreaterOrEqual(t, executed()-before, int64(2*256*20))
	require.Less(t, executed()-before, int64(2*256*20*3/2), "some may be asked twice, on a busy machine")
	require.Less(t, sent.n.Load()-trips, int64(256*20))
}

// Locks on a node that hangs hold up nobody who has one on another.
func TestClusterNodeHangs(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	c := clientOn(t, cluster.Client(t), nil)
	var hang, others []*rlock.Lock
	for i := 0; len(hang) < 2 || len(others) < 62; i++ {
		name := strconv.Itoa(i)
		switch onFirst := cluster.Owner(cluster.Slot(name)) == cluster.Nodes[0]; {
		case onFirst && len(hang) < 2:
			hang = append(hang, c.NewLock(name))
		case !onFirst && len(others) < 62:
			others = append(others, c.NewLock(name))
		}
	}
	use := func(ctx context.Context, mu *rlock.Lock) error {
		return mu.Do(ctx, func(context.Context) error { return nil })
	}
	for _, mu := range append(others, hang...) {
		require.NoError(t, use(t.Context(), mu))
	}
	cluster.Nodes[0].Stop()
	ctx, stop := context.WithCancel(t.Context())
	var stuck, free sync.WaitGroup
	var came atomic.Int64
	for _, mu := range hang {
		stuck.Go(func() {
			for ctx.Err() == nil {
				if use(ctx, mu) == nil {
					came.Add(1)
				}
			}
		})
	}
	for _, mu := range others {
		free.Go(func() {
			for range 50 {
				assert.NoError(t, use(t.Context(), mu))
			}
		})
	}
	free.Wait()
	require.Zero(t, came.Load())
	stop()
	stuck.Wait()
	cluster.Nodes[0].Cont()
	for _, mu := range hang {
		redistest.Eventually(t, "the node answers", func() bool { return use(t.Context(), mu) == nil })
	}
}

// No replica executes a command of a lock, even if the client is set up to read from
// replicas: neither a node that has always been a replica, nor a former master that the
// client still takes for the master.
func TestReplicasAreNotAsked(t *testing.T) {
	redistest.Long(t, "a cluster with replicas")
	cluster := redistest.StartCluster(t, 3, 1)
	for i, edit := range []func(*redis.ClusterOptions){
		func(o *redis.ClusterOptions) { o.ReadOnly = true },
		func(o *redis.ClusterOptions) { o.RouteByLatency = true },
		func(o *redis.ClusterOptions) { o.RouteRandomly = true },
	} {
		old := cluster.Nodes[i] // each time another, as nobody votes for a new one twice in a short time
		t.Run([]string{"ReadOnly", "RouteByLatency", "RouteRandomly"}[i], func(t *testing.T) {
			c := clientOn(t, cluster.Client(t, edit), nil)
			use := func() {
				t.Helper()
				var wg sync.WaitGroup
				for i := range 64 {
					for _, mu := range []*rlock.Lock{
						c.NewLock(strconv.Itoa(i)), c.NewFairLock("fair" + strconv.Itoa(i)), c.NewRWLock("rw" + strconv.Itoa(i)).Reader(),
					} {
						wg.Go(func() { assert.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil })) })
					}
				}
				wg.Wait()
			}
			use()
			use() // on connections of the pipelines
			cluster.Failover(cluster.Replica(old))
			executed := make(map[*redistest.Server]int64)
			for _, node := range cluster.Nodes {
				if info := node.Client(t).Info(t.Context(), "replication").Val(); strings.Contains(info, "role:slave") {
					executed[node] = executedBy(t, node)
				}
			}
			require.Len(t, executed, 3)
			require.Contains(t, executed, old)
			use()
			for node, before := range executed {
				require.Equal(t, before, executedBy(t, node))
			}
		})
	}
}
