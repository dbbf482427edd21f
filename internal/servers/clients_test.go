package servers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestMain(m *testing.M) {
	// go-redis's FailoverClusterClient leaves the goroutines behind that listen to a
	// Sentinel, and those of the client of its own that they use.
	goleak.VerifyTestMain(m, redistest.Dials,
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*sentinelFailover).listen"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*channel).initMsgChan.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9.(*channel).initHealthCheck.func1"))
}

// client of rlock that ends before its connections do.
func client(tb testing.TB, rdb redis.UniversalClient, opts *rlock.Options) *rlock.Client {
	tb.Helper()
	c, err := rlock.New(rdb, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(tb, c.Close(ctx))
	})
	return c
}

// waiting is a lock call under way, of a client that has put it on the queue.
type waiting chan error

func wait(tb testing.TB, c *rlock.Client, name string) waiting {
	tb.Helper()
	done := make(waiting, 1)
	l := c.NewLock(name)
	go func() { done <- l.Do(context.Background(), func(context.Context) error { return nil }) }()
	redistest.Eventually(tb, "the waiter listens", func() bool {
		state, err := l.Inspect(tb.Context())
		return err == nil && state.Waiters > 0
	})
	return done
}

// passOn has the one client hold a lock while the other waits, and returns the error
// of the waiter.
func passOn(tb testing.TB, holder, waiter *rlock.Client, name string) {
	tb.Helper()
	_, hold, err := holder.NewLock(name).Lock(tb.Context())
	require.NoError(tb, err)
	done := wait(tb, waiter, name)
	require.NoError(tb, hold.Unlock(tb.Context()))
	require.NoError(tb, <-done)
}

// families returns which of the commands of ordinary and of sharded channels carried
// what the locks say to each other, the probes of a connection left out.
func families(commands []redistest.Command) (ordinary, sharded []string) {
	for _, c := range commands {
		name := strings.ToLower(c.Args[0])
		if len(c.Args) < 2 || strings.Contains(c.Args[1], "rlock-probe") {
			continue
		}
		switch name {
		case "publish", "subscribe":
			ordinary = append(ordinary, name)
		case "spublish", "ssubscribe":
			sharded = append(sharded, name)
		}
	}
	return ordinary, sharded
}

// Not everything behind a ClusterClient is a cluster: a FailoverClusterClient, which
// NewUniversalClient makes of a MasterName with RouteByLatency, RouteRandomly or
// IsClusterMode, is one on servers that stand alone. Valkey 9 answers CLUSTER KEYSLOT
// also there, so that it was taken for a cluster, and its clients spoke by SPUBLISH to
// others that had subscribed by SUBSCRIBE: each waited for 29.5 s.
func TestSentinelClients(t *testing.T) {
	redistest.Long(t, "six servers")
	redistest.Since7(t, "SENTINEL DEBUG, without which their start takes a minute")
	s := redistest.StartSentinels(t)
	options := func() *redis.UniversalOptions {
		opts := &redis.UniversalOptions{MasterName: "mymaster", Username: "app", Password: "any"}
		for _, sentinel := range s.Sentinels {
			opts.Addrs = append(opts.Addrs, sentinel.Addr())
		}
		return opts
	}
	plain := s.Client(t)
	for name, edit := range map[string]func(*redis.UniversalOptions){
		"RouteRandomly":  func(o *redis.UniversalOptions) { o.RouteRandomly = true },
		"RouteByLatency": func(o *redis.UniversalOptions) { o.RouteByLatency = true },
		"IsClusterMode":  func(o *redis.UniversalOptions) { o.IsClusterMode = true },
	} {
		t.Run(name, func(t *testing.T) {
			opts := options()
			edit(opts)
			routed := redis.NewUniversalClient(opts)
			t.Cleanup(func() { _ = routed.Close() })
			require.IsType(t, &redis.ClusterClient{}, routed)
			wakeEachOther(t, s.Master(), client(t, plain, nil), client(t, routed, nil))
		})
	}
}

// The same without Sentinels, which takes no time.
func TestNoCluster(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: srv.Addr()}}}}, nil
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	wakeEachOther(t, srv, client(t, srv.Client(t), nil), client(t, rdb, nil))
}

// wakeEachOther: what each of the clients releases, the other hears of, by ordinary
// channels. At first a client does not know which there are, and uses both.
func wakeEachOther(t *testing.T, srv *redistest.Server, a, b *rlock.Client) {
	t.Helper()
	m := srv.Monitor(t)
	defer m.Stop()
	var ordinary []string
	redistest.Eventually(t, "they know that there is no cluster", func() bool {
		passOn(t, a, b, "a")
		passOn(t, b, a, "a")
		var sharded []string
		ordinary, sharded = families(m.Commands())
		return len(sharded) == 0
	})
	require.Contains(t, ordinary, "publish")
}

// A lock is passed on between clients of a cluster, whichever kind of channel they
// are told to use.
func TestClusterClients(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	modes := map[string]rlock.ShardedPubSub{"auto": rlock.ShardedAuto, "off": rlock.ShardedOff, "on": rlock.ShardedOn, "both": rlock.ShardedBoth}
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			if mode == rlock.ShardedOn || mode == rlock.ShardedBoth {
				redistest.Since7(t, "sharded channels")
			}
			opts := rlock.Options{ShardedPubSub: mode}
			a, b := client(t, c.Client(t), &opts), client(t, c.Client(t), &opts)
			for i := range 6 { // on each of the masters, most likely
				passOn(t, a, b, fmt.Sprint(name, i))
				passOn(t, b, a, fmt.Sprint(name, i))
			}
		})
	}
}
