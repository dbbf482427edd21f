package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

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
	var sent atomic.Int64
	rdb.OnNewNode(func(node *redis.Client) {
		node.AddHook(redistest.Hook{
			Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				sent.Add(1)
				return next(ctx, cmd)
			},
			Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
				sent.Add(1)
				return next(ctx, cmds)
			},
		})
	})
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
	before, trips := executed(), sent.Load()
	pairs(256, 20)
	require.GreaterOrEqual(t, executed()-before, int64(2*256*20))
	require.Less(t, executed()-before, int64(2*256*20*3/2), "some may be asked twice, on a busy machine")
	require.Less(t, sent.Load()-trips, int64(256*20))
}

// Locks on a node that hangs hold up nobody who has one on another: 2 of 64 locks on that
// node leave the others their throughput. Nor does it when callers there give up again and
// again, and leave more behind than is released.
//
// Its crowd of hasty callers takes a whole processor, so it is not beside other tests.
func TestClusterNodeHangs(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	c := clientOn(t, cluster.Client(t), nil)
	var hang, others, hasty []*rlock.Lock
	for i := 0; len(hang) < 2 || len(others) < 62 || len(hasty) < 200; i++ {
		name := strconv.Itoa(i)
		switch onFirst := cluster.Owner(cluster.Slot(name)) == cluster.Nodes[0]; {
		case onFirst && len(hang) < 2:
			hang = append(hang, c.NewLock(name))
		case onFirst && len(hasty) < 200:
			hasty = append(hasty, c.NewLock(name))
		case !onFirst && len(others) < 62:
			others = append(others, c.NewLock(name))
		}
	}
	const pace = 10 * time.Millisecond // for the tests of other packages, which need a processor as well
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	start := func(locks []*rlock.Lock, failures bool, patience time.Duration) *atomic.Int64 {
		n := new(atomic.Int64)
		for _, mu := range locks {
			callers.Go(func() {
				for ctx.Err() == nil {
					time.Sleep(pace)
					err := mu.DoFor(ctx, patience, func(context.Context) error { return nil })
					if err == nil {
						n.Add(1)
					} else if ctx.Err() == nil {
						assert.True(t, failures, err)
					}
				}
			})
		}
		return n
	}
	free, stuck := start(others, false, time.Minute), start(hang, true, time.Minute)
	answers := func() {
		before := stuck.Load()
		redistest.Eventually(t, "the node answers", func() bool { return stuck.Load() > before+int64(len(hang)) })
	}
	count := func() int64 {
		before := free.Load()
		time.Sleep(500 * time.Millisecond)
		return free.Load() - before
	}
	hangs := func() (during int64) {
		cluster.Nodes[0].Stop()
		defer cluster.Nodes[0].Cont()
		time.Sleep(50 * time.Millisecond) // for what it has answered
		before := stuck.Load()
		during = count()
		require.Equal(t, before, stuck.Load())
		return during
	}
	answers()
	ratio := 0.0
	for range 10 { // others may use the machine, and not only now
		before := count()
		during := hangs()
		ratio = float64(during) / float64(before)
		t.Logf("%d undisturbed, %d while a node hangs: %.2f", before, during, ratio)
		answers()
		if ratio > 0.5 {
			break
		}
	}
	require.Greater(t, ratio, 0.5)

	start(hasty, true, 20*time.Millisecond)
	cluster.Nodes[0].Stop()
	time.Sleep(3 * time.Second) // until so much is left that no more is sent there
	before := free.Load()
	redistest.Eventually(t, "the others go on", func() bool { return free.Load() > before+50*int64(len(others)) })
	cluster.Nodes[0].Cont()
	answers()
	stop()
	callers.Wait()
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
			one := clientOn(t, cluster.Client(t, edit), &rlock.Options{LeaseTime: renewSoon})
			another := clientOn(t, cluster.Client(t, edit), &rlock.Options{LeaseTime: renewSoon})
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
				for i := range 12 {
					wg.Go(func() { assert.NoError(t, everyRequest(t.Context(), one, another, strconv.Itoa(i))) })
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

// renewSoon is a lease that is renewed for the first time after a second at the latest.
const renewSoon = 3 * time.Second

// everyRequest has two clients make what requests there are.
func everyRequest(ctx context.Context, one, another *rlock.Client, name string) error {
	var all []error
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, f := range []func() error{
		func() error {
			return waitedFor(ctx, one.NewLock(name, rlock.WithFencing()), another.NewLock(name, rlock.WithFencing()))
		},
		func() error { return waitedFor(ctx, one.NewFairLock("fair"+name), another.NewFairLock("fair"+name)) },
		func() error {
			return waitedFor(ctx, one.NewRWLock("1w"+name).Writer(), another.NewRWLock("1w"+name).Writer())
		},
		func() error {
			return waitedFor(ctx, one.NewRWLock("2w"+name).Writer(), another.NewRWLock("2w"+name).Reader())
		},
		func() error {
			return waitedFor(ctx, one.NewRWLock("3w"+name).Reader(), another.NewRWLock("3w"+name).Writer())
		},
		func() error { // in one slot, and in two
			slot := rlock.NewMultiLock(one.NewLock("{m"+name+"}1"), one.NewLock("{m"+name+"}2"))
			slots := rlock.NewMultiLock(one.NewLock("1m"+name), one.NewLock("2m"+name))
			return slot.Do(ctx, func(ctx context.Context) error { return slots.Do(ctx, func(context.Context) error { return nil }) })
		},
	} {
		wg.Go(func() {
			err := f()
			mu.Lock()
			defer mu.Unlock()
			all = append(all, err)
		})
	}
	wg.Wait()
	return errors.Join(all...)
}

// waitedFor locks a lock, also nested, until it was renewed and the other waits for it, and
// hands it over.
func waitedFor(ctx context.Context, mu, other *rlock.Lock) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	held, hold, err := mu.Lock(ctx)
	if err != nil {
		return err
	}
	_, nested, err := mu.Lock(held)
	if err != nil {
		return err
	}
	if err := nested.Unlock(held); err != nil {
		return err
	}
	waiter := make(chan error, 1)
	go func() {
		waiter <- other.Do(ctx, func(ctx context.Context) error {
			if token := other.Token(ctx); token < hold.Token() || token == hold.Token() && token > 0 {
				return fmt.Errorf("token %d after %d", token, hold.Token())
			}
			return nil
		})
	}()
	for until := hold.Until(); !hold.Until().After(until); time.Sleep(5 * time.Millisecond) {
		if held.Err() != nil {
			return context.Cause(held)
		}
	}
	return errors.Join(hold.Unlock(held), <-waiter)
}
