package rlock_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// hasty runs n callers until stop is closed, each of which gives up again and again
// after so long.
func hasty(stop <-chan struct{}, n int, patience time.Duration, call func(ctx context.Context, caller, round int)) *sync.WaitGroup {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				call(ctx, i, round)
				cancel()
			}
		})
	}
	return &all
}

// medianGet is how long the application waits for a command of its own.
func medianGet(t *testing.T, rdb redis.UniversalClient, n int) time.Duration {
	t.Helper()
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		_ = rdb.Get(t.Context(), "application").Err()
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[n/2]
}

// slowSite is where a brownout strikes: one server, or the masters of a cluster.
type slowSite struct {
	nodes   []*redis.Client   // past the proxies
	proxies []*netfault.Proxy // one before each
	rdb     redis.UniversalClient
}

func (s *slowSite) delay(rtt time.Duration) {
	for _, p := range s.proxies {
		p.Delay(rtt/2, rtt/2)
	}
}

// locks returns the locks that somebody has.
func (s *slowSite) locks(t *testing.T) map[string]bool {
	there := make(map[string]bool)
	for _, node := range s.nodes {
		keys, err := node.Keys(t.Context(), "lock*").Result()
		require.NoError(t, err)
		for _, key := range keys {
			there[key] = true
		}
	}
	return there
}

// released waits until nobody has a lock, and returns after which time each was free.
func (s *slowSite) released(t *testing.T) (after []time.Duration) {
	start, there := time.Now(), map[string]bool{}
	redistest.Eventually(t, "what was left behind is released", func() bool {
		still := s.locks(t)
		for key := range there {
			if !still[key] {
				after = append(after, time.Since(start))
			}
		}
		there = still
		return len(still) == 0
	})
	return after
}

func slowServer(t testing.TB) *slowSite {
	srv := newServer(t)
	proxy := netfault.New(t, srv.Addr())
	rdb := srv.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	return &slowSite{[]*redis.Client{srv.Client(t)}, []*netfault.Proxy{proxy}, rdb}
}

func slowCluster(t testing.TB) *slowSite {
	cluster := redistest.StartCluster(t, 3, 0)
	s, by := &slowSite{}, make(map[string]string)
	for _, node := range cluster.Nodes {
		proxy := netfault.New(t, node.Addr())
		s.nodes = append(s.nodes, node.Client(t))
		s.proxies, by[node.Addr()] = append(s.proxies, proxy), proxy.Addr()
	}
	s.rdb = cluster.Client(t, func(o *redis.ClusterOptions) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, by[addr])
		}
	})
	return s
}

// A server that answers later than callers wait: they leave, and their requests must
// not keep the application's from being served, nor their grants the next owners
// waiting when the server is well again.
func TestBrownout(t *testing.T) {
	redistest.Long(t, "compares times of a crowd")
	for name, start := range map[string]func(testing.TB) *slowSite{"server": slowServer, "cluster": slowCluster} {
		t.Run(name, func(t *testing.T) { brownout(t, start(t)) })
	}
}

func brownout(t *testing.T, site *slowSite) {
	const callers, rtt, deadline = 100, 50 * time.Millisecond, 20 * time.Millisecond
	c := clientOn(t, site.rdb, nil)
	var all sync.WaitGroup
	for i := range callers { // the server gets to know the scripts
		all.Go(func() {
			held, hold := lock(t, t.Context(), c.NewLock("lock"+strconv.Itoa(i)))
			require.NoError(t, hold.Unlock(held))
		})
	}
	all.Wait()
	site.delay(rtt)

	bare := redis.NewScriptServerSHA(`return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', 100)`)
	stop := make(chan struct{})
	crowd := hasty(stop, callers, deadline, func(ctx context.Context, caller, round int) {
		_ = bare.Run(ctx, site.rdb, []string{"bare" + strconv.Itoa(caller)}, round).Err()
	})
	beside := medianGet(t, site.rdb, 20)
	close(stop)
	crowd.Wait()

	before := redistest.Goroutines()
	stop = make(chan struct{})
	crowd = hasty(stop, callers, deadline, func(ctx context.Context, caller, round int) {
		if held, hold, err := c.NewLock("lock" + strconv.Itoa(caller) + "-" + strconv.Itoa(round)).Lock(ctx); err == nil {
			_ = hold.Unlock(held)
		}
	})
	get := medianGet(t, site.rdb, 40)
	most := redistest.Goroutines() - before
	left := len(site.locks(t))
	close(stop)
	crowd.Wait()
	t.Logf("GET: %v, beside bare scripts %v; %d goroutines, %d locks left behind", get, beside, most, left)
	require.LessOrEqual(t, get, 3*beside)
	require.LessOrEqual(t, most, 5*callers)
	require.LessOrEqual(t, left, 10*callers, "no more than can be released: 100 callers make 5,000 attempts a second")

	site.delay(0)
	stalls := redistest.WatchStalls()
	defer stalls.Stop()
	free := site.released(t)
	slices.Sort(free)
	if len(free) == 0 {
		t.Skip("nothing was left behind")
	}
	median, last := free[len(free)/2], free[len(free)-1]
	t.Logf("%d locks free after the server was well again: median %v, the last %v; the machine stalled for %v", len(free), median, last, stalls.Total())
	require.Less(t, median, 100*time.Millisecond+rtt+stalls.Total(), "rtt for what is on its way")
	require.Less(t, last, 10*time.Second, "not by the end of their leases")
}

// However fast callers come and go, there are only as many goroutines as callers
// inside need.
func TestGoroutinesOfHastyCallers(t *testing.T) {
	const callers = 100
	srv := newServer(t)
	proxy := netfault.New(t, srv.Addr())
	c := clientOn(t, srv.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), nil)
	proxy.Delay(10*time.Millisecond, 10*time.Millisecond)
	before := redistest.Goroutines()
	stop := make(chan struct{})
	crowd := hasty(stop, callers, 2*time.Millisecond, func(ctx context.Context, caller, _ int) {
		held, hold, err := c.NewLock("lock" + strconv.Itoa(caller)).Lock(ctx)
		if err == nil { // a stalled machine may deliver the deadline late
			_ = hold.Unlock(held)
		}
	})
	most := 0
	for range 20 {
		time.Sleep(50 * time.Millisecond)
		most = max(most, redistest.Goroutines()-before)
	}
	close(stop)
	crowd.Wait()
	t.Logf("%d goroutines", most)
	require.LessOrEqual(t, most, 5*callers)
}

// A server that answers ten times later than before gets at most a tenth of the requests once more: the copies
// that would find another connection if the first one were dead. The exception is the first request that takes
// longer than 100 ms. Nothing shows yet that the server is slow, so it gets the copies of a dead connection, up to
// the budget of the client: 48, and one in a second. See request.Copies.
func TestFakeTimeBrownoutGetsFewCopies(t *testing.T) {
	const budget, first, whole = 48, 10 * time.Second, 30 * time.Second
	for _, test := range []struct {
		callers int
		rtt     time.Duration
		early   int // repeated requests while nothing shows that the server is slow
	}{
		{1, time.Millisecond, 0},
		{20, time.Millisecond, 0},
		{1, 10 * time.Millisecond, 0},
		{20, 10 * time.Millisecond, 20},
		{1, 50 * time.Millisecond, budget + 10 + 2},
		{1, 100 * time.Millisecond, budget + 10 + 2},
	} {
		t.Run(fmt.Sprint(test.callers, " ", test.rtt), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				c := f.client(t, &rlock.Options{LeaseTime: time.Minute})
				f.late.Store(int64(test.rtt))
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for i := range test.callers {
					all.Go(func() {
						for n := 0; ctx.Err() == nil; n++ {
							held, hold, err := c.NewLock(fmt.Sprint(i, "-", n)).Lock(ctx)
							if err == nil {
								time.Sleep(10 * time.Millisecond)
								_ = hold.Unlock(held)
							}
						}
					})
				}
				time.Sleep(2 * time.Second)
				f.late.Store(int64(10 * test.rtt))
				began := f.now()
				time.Sleep(whole)
				cancel()
				all.Wait()
				seen := make(map[string]bool)
				var early, late struct{ requests, again int }
				f.mu.Lock()
				defer f.mu.Unlock()
				for _, r := range f.log {
					if r.at < began || !strings.HasPrefix(r.args[0], "eval") {
						continue
					}
					n := &early
					if r.at > began+first {
						n = &late
					}
					n.requests++
					what := strings.Join(r.args, " ")
					if seen[what] {
						n.again++
					}
					seen[what] = true
				}
				t.Logf("first %v: %+v, then %+v", first, early, late)
				require.LessOrEqual(t, early.again, test.early)
				require.LessOrEqual(t, late.again, late.requests/10)
			})
		})
	}
}
