package rlock_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// A process dies with all its waiters, the first in the queue among them. Nobody is there
// to hear that the lock is theirs, so the release goes to the next in the same moment.
func TestDeadNextInLine(t *testing.T) {
	t.Parallel()
	for kind, tickets := range map[string]int{"plain": 1, "fair": 5} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			rdb := srv.Client(t)
			deadNextInLine(t, srv, kind, tickets, srv.Addr(), func() redis.UniversalClient { return srv.Client(t) }, func(ctx context.Context) []string {
				return rdb.PubSubChannels(ctx, "rlock_channel:*").Val()
			})
		})
		t.Run(kind+", sharded", func(t *testing.T) {
			redistest.Since7(t, "sharded channels")
			t.Parallel()
			cluster := redistest.StartCluster(t, 3, 0)
			owner := cluster.Owner(cluster.Slot("a"))
			rdb := owner.Client(t)
			deadNextInLine(t, owner, kind, tickets, "cluster "+owner.Addr(), func() redis.UniversalClient { return cluster.Client(t) }, func(ctx context.Context) []string {
				return rdb.PubSubShardChannels(ctx, "rlock_channel:*").Val()
			})
		})
	}
}

// deadNextInLine kills waiters with so many tickets for a lock that srv has. channels are
// those on which clients wait for messages.
func deadNextInLine(t *testing.T, srv *redistest.Server, kind string, tickets int, address string, connect func() redis.UniversalClient, channels func(context.Context) []string) {
	teach(t, srv)
	rdb := connect()
	held, hold := lock(t, t.Context(), lockOf(clientOn(t, connect(), nil), kind))
	child := redistest.Spawn(t, "waiters", address, kind, "5")
	child.Expect("waiting", 10*time.Second)
	awaitHearing(t, rdb, "a", tickets)
	w := begin(t.Context(), lockOf(clientOn(t, connect(), nil), kind))
	awaitHearing(t, rdb, "a", tickets+1)
	require.Len(t, channels(t.Context()), 2)
	child.Kill()
	redistest.Eventually(t, "its connections are gone", func() bool { return len(channels(t.Context())) == 1 })
	m := srv.Monitor(t)
	began := time.Now()
	require.NoError(t, hold.Unlock(held))
	held, hold = w.acquired(t)
	t.Logf("served after %v", time.Since(began))
	var scripts []string
	for _, c := range m.Commands() {
		if c.Client != "lua" && strings.HasPrefix(strings.ToLower(c.Args[0]), "eval") {
			scripts = append(scripts, c.Args[0])
		}
	}
	m.Stop()
	require.Less(t, time.Since(began), longestClaim-time.Second)
	require.Len(t, scripts, 1, "the release: %v", scripts)
	require.NoError(t, hold.Unlock(held))
	requireNothing(t, rdb, "a")
}

// A waiter whose client has no subscription yet cannot be told from one that is dead: it is
// granted the lock, and if it is dead that costs one claim.
func TestDeadBeforeItHears(t *testing.T) {
	redistest.Long(t, "waits for a claim to end")
	t.Parallel()
	for _, kind := range []string{"plain", "fair"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			rdb := srv.Client(t)
			proxy := netfault.New(t, srv.Addr())
			far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
			t.Cleanup(func() { require.NoError(t, far.Close()) })
			held, hold := lock(t, t.Context(), lockOf(newClient(t, srv, nil), kind))
			proxy.DropUp(true, "subscribe")
			dead := begin(t.Context(), lockOf(clientOn(t, far, nil), kind))
			awaitQueue(t, rdb, "a", 1)
			next := begin(t.Context(), lockOf(newClient(t, srv, nil), kind))
			awaitQueue(t, rdb, "a", 2)
			proxy.Refuse(true) // as a process that has ended: nothing comes from it any more
			proxy.CutAll()
			began := time.Now()
			require.NoError(t, hold.Unlock(held))
			held, hold = next.acquired(t)
			t.Logf("served after %v", time.Since(began))
			require.Less(t, time.Since(began), longestClaim+3*time.Second)
			proxy.Heal()
			require.NoError(t, hold.Unlock(held))
			held, hold = dead.acquired(t)
			require.NoError(t, hold.Unlock(held))
		})
	}
}

// Clients stand still one behind the other, as the pods of a machine that is frozen. They cost two claims at
// most, and not one each. On a busy machine a living client may be late as well, and is then served after
// the others: the tests of lapses in package lua show who keeps a place.
func TestFrozenClientsInFront(t *testing.T) {
	redistest.Long(t, "waits for a claim to end; not beside other tests, as a client that stands still itself is late for its claim")
	const n = 10
	for name, tt := range map[string]struct {
		frozen []string // in turn
		lives  string
	}{
		"plain":               {[]string{"plain"}, "plain"},
		"fair":                {[]string{"fair"}, "fair"},
		"writers":             {[]string{"writer"}, "writer"},
		"readers and writers": {[]string{"writer", "reader"}, "writer"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			rdb := srv.Client(t)
			proxy := netfault.New(t, srv.Addr())
			held, hold := lock(t, t.Context(), lockOf(newClient(t, srv, nil), tt.lives))
			var all []*waiting
			wait := func(c *rlock.Client, kind string) {
				all = append(all, begin(t.Context(), lockOf(c, kind)))
				awaitHearing(t, rdb, "a", len(all))
			}
			for i := range n {
				far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
				t.Cleanup(func() { require.NoError(t, far.Close()) })
				wait(clientOn(t, far, nil), tt.frozen[i%len(tt.frozen)])
			}
			for range 3 {
				wait(newClient(t, srv, nil), tt.lives)
			}
			proxy.DropUp(true)
			proxy.DropDown(true)
			began := time.Now()
			require.NoError(t, hold.Unlock(held))
			serve := func(waiters []*waiting) {
				served := make(chan *waiting, len(waiters))
				for _, w := range waiters {
					go func() { <-w.done; served <- w }()
				}
				for range waiters {
					select {
					case w := <-served:
						t.Logf("served after %v", time.Since(began))
						held, hold = w.acquired(t)
						require.NoError(t, hold.Unlock(held))
					case <-time.After(20 * time.Second): // n claims take longer
						require.FailNow(t, "not acquired")
					}
				}
			}
			serve(all[n:])
			proxy.Heal()
			serve(all[:n])
			requireNothing(t, rdb, "a")
		})
	}
}

// waiters is a process with goroutines that wait for a lock.
func waiters(args []string) {
	rdb := redis.UniversalClient(redis.NewClient(&redis.Options{Addr: args[0]}))
	if node, ok := strings.CutPrefix(args[0], "cluster "); ok {
		rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{node}})
	}
	c, err := rlock.New(rdb, nil)
	if err != nil {
		panic(err)
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		panic(err)
	}
	for range n {
		go func() { // until the process is killed
			if _, _, err := lockOf(c, args[1]).Lock(context.Background()); err != nil {
				panic(err)
			}
		}()
	}
	fmt.Println("waiting")
	bufio.NewScanner(os.Stdin).Scan()
}
