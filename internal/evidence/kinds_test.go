package evidence

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// kind makes the locks of client n: the first one excludes all others, a second
// one is shared.
type kind func(c *rlock.Client, n int) []rlock.Locker

func one(lock func(*rlock.Client) *rlock.Lock) kind {
	return func(c *rlock.Client, _ int) []rlock.Locker { return []rlock.Locker{lock(c)} }
}

var kinds = map[string]kind{
	"plain": one(func(c *rlock.Client) *rlock.Lock { return c.NewLock(name) }),
	"plain without hand-off": one(func(c *rlock.Client) *rlock.Lock {
		return c.NewLock(name, rlock.WithoutHandoff())
	}),
	"fenced": one(func(c *rlock.Client) *rlock.Lock { return c.NewLock(name, rlock.WithFencing()) }),
	"polling": one(func(c *rlock.Client) *rlock.Lock {
		return c.NewLock(name, rlock.WithPolling(rlock.Polling{First: time.Millisecond, Longest: 20 * time.Millisecond}))
	}),
	"fair": one(func(c *rlock.Client) *rlock.Lock { return c.NewFairLock(name, rlock.WithFencing()) }),
	"read/write": func(c *rlock.Client, _ int) []rlock.Locker {
		rw := c.NewRWLock(name)
		return []rlock.Locker{rw.Writer(), rw.Reader()}
	},
	"multi": func(c *rlock.Client, n int) []rlock.Locker {
		a, b := c.NewLock(name), c.NewFairLock(name+":b")
		if n%2 == 0 { // in another order
			return []rlock.Locker{rlock.NewMultiLock(a, b)}
		}
		return []rlock.Locker{rlock.NewMultiLock(b, a)}
	},
	"quorum": nil, // has clients of several servers
}

// Every kind of lock excludes, serves everybody and leaves nothing behind, while
// replies are lost, connections cut, scripts forgotten and callers leave.
func TestKindsUnderFaults(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			if slices.Contains([]string{"plain without hand-off", "fenced", "polling"}, name) {
				redistest.Long(t, "variants of the plain lock")
			}
			play(t, name, kind)
		})
	}
}

func play(t *testing.T, kindName string, kind kind) {
	const clients, goroutines = 3, 6
	n, lease := 1, 20*time.Second
	if kind == nil {
		n, lease = 3, 3*time.Second // a server is counted when it has run for a lease
	}
	var servers []*redistest.Server
	var proxies []*netfault.Proxy
	for range n {
		srv := redistest.Start(t)
		servers, proxies = append(servers, srv), append(proxies, netfault.New(t, srv.Addr()))
	}
	var locks [][]rlock.Locker
	for client := range clients {
		var own []*rlock.Client
		for _, p := range proxies {
			rdb := redis.NewClient(&redis.Options{Addr: p.Addr()})
			t.Cleanup(func() { _ = rdb.Close() })
			own = append(own, newClient(t, rdb, &rlock.Options{LeaseTime: lease}))
		}
		if kind == nil {
			locks = append(locks, []rlock.Locker{rlock.NewQuorumLock(name, own)})
		} else {
			locks = append(locks, kind(own[0], client))
		}
	}

	first, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, locks[0][0].Do(first, func(ctx context.Context) error { return ctx.Err() }))

	var writers, readers, grants, left atomic.Int64
	guarded := 0 // the race detector sees who writes beside a writer
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, own := range locks {
		for g := range goroutines {
			exclusive := len(own) == 1 || g%3 == 0
			mu := own[0]
			if !exclusive {
				mu = own[1]
			}
			all.Go(func() {
				for ctx.Err() == nil {
					granted := false
					err := mu.DoFor(ctx, time.Duration(1+rand.N(200))*time.Millisecond, func(context.Context) error {
						granted = true
						if exclusive {
							if w, r := writers.Add(1), readers.Load(); w != 1 || r != 0 {
								t.Errorf("%d writers and %d readers inside", w, r)
							}
							guarded++
							writers.Add(-1)
						} else {
							readers.Add(1)
							if w := writers.Load(); w != 0 {
								t.Errorf("%d writers beside a reader", w)
							}
							_ = guarded
							readers.Add(-1)
						}
						return nil
					})
					switch {
					case !granted:
						left.Add(1)
						continue
					case errors.Is(err, rlock.ErrLeaseLost): // the lock is gone for its holder only if somebody took it away
						t.Errorf("lost: %v", err)
					}
					grants.Add(1)
				}
			})
		}
	}
	harass(t, servers, proxies)
	for _, p := range proxies {
		p.Heal()
	}
	redistest.Eventually(t, "somebody has the lock", func() bool { return grants.Load() > 0 }) // on a busy machine not before
	stop()
	all.Wait()
	t.Logf("%s: %d grants, %d left without, 0 violations", kindName, grants.Load(), left.Load())
	for _, own := range locks {
		for _, mu := range own {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second) // an orphan ends with its lease
			require.NoError(t, mu.Do(ctx, func(ctx context.Context) error { return ctx.Err() }))
			cancel()
			t.Logf("served after %v", time.Since(start).Round(time.Millisecond))
		}
	}
	for _, srv := range servers {
		rdb := srv.Client(t)
		redistest.Eventually(t, "only counters and records are left", func() bool {
			for _, key := range rdb.Keys(t.Context(), "*").Val() {
				if ttl := rdb.PTTL(t.Context(), key).Val(); ttl == -1 {
					t.Errorf("%s has no TTL", key)
				}
				if key != fmt.Sprintf("redisson_lock_token:{%s}", name) && !strings.HasPrefix(key, "rlock_client") { // who has waited
					return false
				}
			}
			return true
		})
	}
}

// harass does to the servers what networks and operators do, for two seconds, or one.
func harass(t *testing.T, servers []*redistest.Server, proxies []*netfault.Proxy) {
	ctx := context.Background()
	rounds := 40
	if testing.Short() {
		rounds = 20
	}
	for i := range rounds {
		srv, proxy := servers[i%len(servers)], proxies[i%len(proxies)]
		rdb := srv.Client(t)
		switch i % 4 {
		case 0:
			proxy.CutRandom(0.1, uint64(i), scripts)
		case 1:
			_ = rdb.ClientKillByFilter(ctx, "TYPE", "pubsub").Err()
		case 2:
			_ = rdb.ScriptFlush(ctx).Err()
		case 3:
			proxy.Heal()
			_ = rdb.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err()
		}
		<-time.After(50 * time.Millisecond)
	}
}
