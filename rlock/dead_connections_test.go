package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	requests "github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/rlock"
)

// network is the network of one client. Its connections can be forgotten, and new ones refused, while the
// servers are well.
type network struct {
	mu    sync.Mutex
	wires []*wire
	dials atomic.Pointer[func(context.Context) error] // what comes of a dial; nil: a connection
}

// wire is a connection that go-redis cannot look into before it reuses the connection, as with TLS.
type wire struct {
	net.Conn
	forgotten atomic.Bool
}

// NetConn is what go-redis asks before it looks for messages of the server.
func (w *wire) NetConn() net.Conn { return w.Conn }

func (w *wire) Write(b []byte) (int, error) {
	if w.forgotten.Load() {
		return len(b), nil
	}
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	for {
		n, err := w.Conn.Read(b)
		if err != nil || !w.forgotten.Load() {
			return n, err
		}
	}
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if fails := n.dials.Load(); fails != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: (*fails)(ctx)}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wires = append(n.wires, w)
	return w, nil
}

// forget makes all present connections swallow everything, without a word to either side.
func (n *network) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.wires {
		w.forgotten.Store(true)
	}
}

// breaks are the ways to lose connections while the servers are well.
var breaks = map[string]func(n *network, site *deadSite){
	"swallowed": func(n *network, _ *deadSite) { n.forget() },
	"closed after 6 s": func(n *network, site *deadSite) {
		time.Sleep(6 * time.Second) // go-redis looks for messages after 5 s
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, w := range n.wires {
			for _, admin := range site.admins {
				_ = admin.ClientKillByFilter(context.Background(), "ADDR", w.LocalAddr().String()).Err()
			}
		}
	},
	"dial hangs": func(n *network, _ *deadSite) {
		hang := func(ctx context.Context) error { <-ctx.Done(); return os.ErrDeadlineExceeded }
		n.dials.Store(&hang)
	},
	"dial fails": func(n *network, _ *deadSite) {
		fail := func(context.Context) error {
			return &net.DNSError{Err: "server misbehaving", Name: "redis", IsTemporary: true}
		}
		n.dials.Store(&fail)
	},
}

// deadSite is where clients lock.
type deadSite struct {
	admins []*redis.Client
	// open returns clients of one network, one for each server of a quorum, and their nodes.
	open func(t *testing.T, n *network, readme bool) (rdbs []redis.UniversalClient, nodes []*redis.Client)
}

// recommended sets the options that README recommends.
func recommended(o *redis.Options) {
	o.ContextTimeoutEnabled, o.DialTimeout, o.DialerRetries = true, time.Second, 1
	o.ReadTimeout, o.WriteTimeout = 2*time.Second, 2*time.Second
}

func serversOf(t *testing.T, count int) *deadSite {
	var servers []*redistest.Server
	site := &deadSite{}
	for range count {
		s := newServer(t)
		servers, site.admins = append(servers, s), append(site.admins, s.Client(t))
	}
	site.open = func(t *testing.T, n *network, readme bool) (rdbs []redis.UniversalClient, nodes []*redis.Client) {
		for _, s := range servers {
			rdb := s.Client(t, func(o *redis.Options) {
				if o.Dialer = n.dial; readme {
					recommended(o)
				}
			})
			rdbs, nodes = append(rdbs, rdb), append(nodes, rdb)
		}
		return rdbs, nodes
	}
	return site
}

var deadSites = map[string]func(t *testing.T) *deadSite{
	"server": func(t *testing.T) *deadSite { return serversOf(t, 1) },
	"quorum": func(t *testing.T) *deadSite { return serversOf(t, 3) },
	"sentinel": func(t *testing.T) *deadSite {
		s := redistest.StartSentinels(t)
		return &deadSite{[]*redis.Client{s.Master().Client(t)}, func(t *testing.T, n *network, readme bool) ([]redis.UniversalClient, []*redis.Client) {
			rdb := s.Client(t, func(o *redis.FailoverOptions) {
				if o.Dialer = n.dial; readme {
					o.ContextTimeoutEnabled, o.DialTimeout, o.DialerRetries = true, time.Second, 1
					o.ReadTimeout, o.WriteTimeout = 2*time.Second, 2*time.Second
				}
			})
			return []redis.UniversalClient{rdb}, []*redis.Client{rdb}
		}}
	},
	"cluster": func(t *testing.T) *deadSite {
		c := redistest.StartCluster(t, 3, 0)
		site := &deadSite{}
		for _, node := range c.Nodes {
			site.admins = append(site.admins, node.Client(t))
		}
		site.open = func(t *testing.T, n *network, readme bool) (rdbs []redis.UniversalClient, nodes []*redis.Client) {
			rdb := c.Client(t, func(o *redis.ClusterOptions) {
				if o.Dialer = n.dial; readme {
					o.ContextTimeoutEnabled, o.DialTimeout, o.DialerRetries = true, time.Second, 1
					o.ReadTimeout, o.WriteTimeout = 2*time.Second, 2*time.Second
				}
			})
			var mu sync.Mutex
			assert.NoError(t, rdb.ForEachMaster(context.Background(), func(_ context.Context, node *redis.Client) error {
				mu.Lock()
				defer mu.Unlock()
				nodes = append(nodes, node)
				return nil
			}))
			return []redis.UniversalClient{rdb}, nodes
		}
		return site
	},
}

// fill leaves idle connections in the pool for commands, and in the one for pipelines.
func fill(nodes []*redis.Client, commands, pipelines int) {
	var all sync.WaitGroup
	ctx := context.Background()
	block := func(c redis.Cmdable) { c.BLPop(ctx, 300*time.Millisecond, "nothing") }
	for _, node := range nodes {
		for range commands {
			all.Go(func() { block(node) })
		}
		for range pipelines {
			all.Go(func() {
				_, _ = node.Pipelined(ctx, func(p redis.Pipeliner) error { block(p); return nil })
			})
		}
	}
	all.Wait()
}

// However many connections are dead, and in whichever way, no hold is lost while the servers are well: the
// renewal finds a sound connection, or makes one, or does without one more. Leases of a second are too
// short for that. So are leases of 3 and 10 s where the connection to the Sentinel is dead as well: for a new
// connection go-redis asks that Sentinel first, and waits for its ReadTimeout, which is 5 s by default. A
// lease of 10 s would be renewed up to 8.8 s after it began, of the 8.9 s that there are, so its rows have 15 s.
func TestDeadConnectionsCostNoHold(t *testing.T) {
	leases, counts := []time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second}, []int{1, 4, 10, 20}
	switch {
	case testing.Short(): // few rows disturb no other test
		leases, counts = leases[:1], []int{10}
		t.Parallel()
	case redistest.RaceEnabled: // 380 rows at once leave no processor to a race detector
		leases, counts = leases[1:2], []int{10}
	}
	for name, start := range deadSites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := start(t)
			if name == "quorum" {
				time.Sleep(max(leases[len(leases)-1], time.Second) + time.Second) // a server that has just started is not counted
			}
			var rows sync.WaitGroup
			for how, strike := range breaks {
				for _, lease := range leases {
					for _, n := range counts {
						for _, readme := range []bool{false, true} {
							lease := lease
							if name == "sentinel" && how == "swallowed" && !readme {
								if lease < 10*time.Second {
									continue
								}
								lease = max(lease, 15*time.Second)
							}
							row := fmt.Sprintf("%s, %v, %d, README %v", how, lease, n, readme)
							rows.Go(func() { heldOverDeadConnections(t, row, site, strike, lease, n, readme) })
							time.Sleep(50 * time.Millisecond) // not all rows set up their connections, and lose them, at once
						}
					}
				}
			}
			rows.Wait()
		})
	}
}

func heldOverDeadConnections(t *testing.T, row string, site *deadSite, strike func(*network, *deadSite), lease time.Duration, n int, readme bool) {
	var wires network
	rdbs, nodes := site.open(t, &wires, readme)
	var clients []*rlock.Client
	for _, rdb := range rdbs {
		clients = append(clients, clientOn(t, rdb, nil))
	}
	mu := clients[0].NewLock(row, rlock.WithLeaseTime(lease))
	if len(clients) > 1 {
		mu = rlock.NewQuorumLock(row, clients, rlock.WithLeaseTime(lease))
	}
	fill(nodes, n, min(n, 10))
	held, hold, err := mu.TryLockFor(context.Background(), 10*time.Second)
	if !assert.NoError(t, err, row) {
		return
	}
	strike(&wires, site)
	select {
	case <-held.Done():
		assert.Failf(t, "lost", "%s: %v", row, context.Cause(held))
	case <-time.After(lease*3/2 + time.Second):
	}
	wires.dials.Store(nil)
	assert.NoError(t, hold.Unlock(context.Background()), row)
}

// Each call gets past 10 dead connections within a second, and past 20 within two.
func TestDeadConnectionsDelayNoCallForLong(t *testing.T) {
	redistest.Long(t, "it measures times, so no other test runs beside it")
	for _, n := range []int{10, 20} {
		for _, readme := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, README %v", n, readme), func(t *testing.T) {
				t.Parallel()
				limit := time.Duration(n) * 100 * time.Millisecond
				site := serversOf(t, 1)
				stalls := redistest.WatchStalls()
				defer stalls.Stop()
				var held context.Context
				var hold, nested *rlock.Hold
				var err error
				var wires network
				rdbs, nodes := site.open(t, &wires, readme)
				mu := clientOn(t, rdbs[0], nil).NewLock("a")
				steps := []struct {
					what string
					call func()
				}{
					{"TryLock", func() { held, hold, err = mu.TryLock(t.Context()) }},
					{"nested", func() { _, nested, err = mu.Lock(held) }},
					{"Unlock of the nested", func() { err = nested.Unlock(held) }},
					{"Unlock", func() { err = hold.Unlock(held) }},
					{"Lock", func() { held, hold, err = mu.Lock(t.Context()) }},
				}
				for _, step := range steps {
					fill(nodes, n, 10)
					wires.forget()
					before, began := stalls.Total(), time.Now()
					step.call()
					took := time.Since(began) - (stalls.Total() - before)
					t.Logf("%s: %v", step.what, took.Round(time.Millisecond))
					require.NoError(t, err, step.what)
					require.LessOrEqual(t, took, limit, step.what)
				}
				require.NoError(t, hold.Unlock(held))
			})
		}
	}
}

// hidden makes the connections of a client such that go-redis cannot see before it reuses one that
// the other side has closed it. So are all connections with TLS, and all on Windows.
func hidden(o *redis.Options) {
	o.PoolSize, o.PipelinePoolSize = 50, 50
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		return struct{ net.Conn }{conn}, err
	}
}

// idle leaves n idle connections in each of the two pools of a client: the server keeps as many
// requests waiting at the same time.
func idle(t *testing.T, rdb *redis.Client, n int) {
	t.Helper()
	redistest.Eventually(t, "connections are idle", func() bool {
		if rdb.ClientPause(t.Context(), 50*time.Millisecond).Err() != nil {
			return false // on a stale connection
		}
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { _ = rdb.Ping(context.Background()).Err() })
			wg.Go(func() {
				_, _ = rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error { return p.Ping(context.Background()).Err() })
			})
		}
		wg.Wait()
		stats := rdb.PoolStats()
		return int(stats.IdleConns) >= n && int(stats.PipelineStats.IdleConns) >= n
	})
}

// noAnswer reports whether err says that there was no answer in time, as on a busy machine.
func noAnswer(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, requests.ErrNoAnswer)
}

// All connections are closed by the other side while a lock is held. The first renewal after that
// succeeds, however many connections are stale.
func TestStaleConnectionsAreNoNewsOfTheServer(t *testing.T) {
	t.Parallel()
	for _, n := range []int{4, 12, 40} {
		for _, lease := range []time.Duration{5 * time.Second, 10 * time.Second} {
			if testing.Short() && lease > 5*time.Second {
				continue // a renewal comes after a third of it
			}
			t.Run(fmt.Sprintf("%d, %v", n, lease), func(t *testing.T) {
				t.Parallel()
				for try := 1; !renewedOverStaleConnections(t, n, lease); try++ { // the machine was busy for a sixth of the lease
					require.Less(t, try, 10, "a renewal took too long, which says nothing of connections")
				}
			})
		}
	}
}

// renewedOverStaleConnections reports whether the two renewals after the cut have succeeded. It
// returns false if one took too long, for whatever reason.
func renewedOverStaleConnections(t *testing.T, n int, lease time.Duration) bool {
	srv := newServer(t)
	proxy := netfault.New(t, srv.Addr())
	rdb := srv.Client(t, hidden, func(o *redis.Options) { o.Addr = proxy.Addr() })
	var cut atomic.Bool
	renewed, failed := make(chan error, 99), make(chan error, 99)
	c := clientOn(t, rdb, &rlock.Options{Trace: rlock.Trace{
		Renewed: func(rlock.Renewal) {
			if cut.Load() {
				renewed <- nil
			}
		},
		NotRenewed: func(f rlock.FailedRenewal) { failed <- f.Err },
	}})
	idle(t, rdb, n)
	held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithLeaseTime(lease)))
	defer func() { _ = hold.Unlock(held) }()
	proxy.CutAll()
	cut.Store(true)
	for range 2 {
		select {
		case <-renewed:
		case err := <-failed:
			if noAnswer(err) {
				return false
			}
			t.Fatal("not renewed: ", err)
		case <-held.Done():
			require.Empty(t, failed, "lost")
			return false // this process stood still
		}
	}
	require.NoError(t, hold.Unlock(held))
	return true
}

// A call on stale connections succeeds as if they were not there: TryLock has not the time for a
// pause after each, which would be 2 s, 5 s and 10 s. TestFakeTimeStaleConnectionsTakeNoTime measures
// the time.
func TestStaleConnectionsDelayNoCall(t *testing.T) {
	t.Parallel()
	for _, n := range []int{12, 20, 40} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			proxy := netfault.New(t, srv.Addr())
			rdb := srv.Client(t, hidden, func(o *redis.Options) { o.Addr = proxy.Addr() })
			mu := clientOn(t, rdb, nil).NewLock(t.Name(), rlock.WithLeaseTime(time.Minute))
			stale := func() {
				idle(t, rdb, n)
				proxy.CutAll()
			}
			var held context.Context
			var hold *rlock.Hold
			redistest.Eventually(t, "taken within the bound of one attempt, which a busy machine may use up", func() bool {
				stale()
				var err error
				held, hold, err = mu.TryLock(t.Context())
				return inTime(t, err)
			})
			stale()
			require.NoError(t, hold.Unlock(held))
			stale()
			held, hold = lock(t, t.Context(), mu)
			require.NoError(t, hold.Unlock(held))
		})
	}
}

// The servers of a quorum lock, and the masters of a cluster, are reached in the same way.
func TestStaleConnectionsOfAQuorum(t *testing.T) {
	t.Parallel()
	for try := 1; !heldByAQuorumOverStaleConnections(t); try++ { // the machine was busy for a part of the lease
		require.Less(t, try, 10, "a renewal took too long, which says nothing of connections")
	}
}

// heldByAQuorumOverStaleConnections reports whether a hold was renewed, released and taken again. It
// returns false if something took too long, for whatever reason.
func heldByAQuorumOverStaleConnections(t *testing.T) bool {
	const n = 20
	var clients []*rlock.Client
	var rdbs []*redis.Client
	var proxies []*netfault.Proxy
	failed := make(chan error, 99)
	var renewals atomic.Int32
	for range 3 {
		srv := newServer(t)
		proxies = append(proxies, netfault.New(t, srv.Addr()))
		rdb := srv.Client(t, hidden, func(o *redis.Options) { o.Addr = proxies[len(proxies)-1].Addr() })
		rdbs = append(rdbs, rdb)
		clients = append(clients, clientOn(t, rdb, &rlock.Options{Trace: rlock.Trace{
			Renewed:    func(rlock.Renewal) { renewals.Add(1) },
			NotRenewed: func(f rlock.FailedRenewal) { failed <- f.Err },
		}}))
	}
	mu := rlock.NewQuorumLock("a", clients, rlock.WithLeaseTime(quorumLease))
	stale := func() {
		for i, rdb := range rdbs {
			idle(t, rdb, n)
			proxies[i].CutAll()
		}
	}
	var held context.Context
	var hold *rlock.Hold
	redistest.Eventually(t, "the servers are old enough", func() bool {
		var err error
		held, hold, err = mu.TryLock(t.Context())
		return err == nil
	})
	for range 2 {
		stale()
		before := renewals.Load()
		redistest.Eventually(t, "renewed", func() bool { return renewals.Load() > before+1 || held.Err() != nil })
	}
	stale()
	err := hold.Unlock(held)
	for len(failed) > 0 {
		err := <-failed
		require.True(t, noAnswer(err), err)
	}
	if errors.Is(err, rlock.ErrLeaseLost) || !inTime(t, err) {
		return false // this process stood still
	}
	stale()
	held, hold = lock(t, t.Context(), mu)
	return inTime(t, hold.Unlock(held))
}

func TestStaleConnectionsOfACluster(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "a cluster")
	cluster := redistest.StartCluster(t, 3, 0)
	var conns sync.Map
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) {
		o.PoolSize, o.PipelinePoolSize = 50, 50
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, addr)
			if err == nil {
				conns.Store(conn, nil)
			}
			return struct{ net.Conn }{conn}, err
		}
	})
	c := clientOn(t, rdb, nil)
	mu := c.NewLock("a", rlock.WithLeaseTime(time.Second))
	held, hold := lock(t, t.Context(), mu)
	node, err := rdb.MasterForKey(t.Context(), "a")
	require.NoError(t, err)
	for range 3 {
		idle(t, node, 20)
		conns.Range(func(conn, _ any) bool { // the client's own side: what the server's close looks like to go-redis
			_ = conn.(*net.TCPConn).CloseRead()
			conns.Delete(conn)
			return true
		})
		until := hold.Until()
		redistest.Eventually(t, "renewed", func() bool { return hold.Until().After(until) || held.Err() != nil })
		require.NoError(t, held.Err())
	}
	require.NoError(t, hold.Unlock(held))
}

// A name leads to the master, and the idle connections to the former one, which is its replica now.
// TryLock has it on the first attempt that goes to the master.
func TestStaleConnectionsLeadToTheFormerMaster(t *testing.T) {
	t.Parallel()
	former, master := newServer(t, "--repl-diskless-sync-delay", "0"), newServer(t, "--repl-diskless-sync-delay", "0")
	var target atomic.Value
	target.Store(former.Addr())
	rdb := former.Client(t, hidden, func(o *redis.Options) {
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dial(ctx, network, target.Load().(string))
		}
	})
	mu := clientOn(t, rdb, nil).NewLock("a")
	idle(t, rdb, 12)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	require.NoError(t, former.Client(t).ReplicaOf(t.Context(), host, port).Err())
	target.Store(master.Addr())
	held, hold, err := mu.TryLock(t.Context())
	require.NoError(t, err)
	require.NoError(t, hold.Unlock(held))
}

// idle leaves n idle connections in each of the two pools of the client.
func (f *fakeRedis) idle(t *testing.T, n int) {
	f.late.Store(int64(50 * time.Millisecond)) // so that each request needs a connection of its own
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { _ = f.rdb.Ping(context.Background()).Err() })
		wg.Go(func() {
			_, _ = f.rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error { return p.Ping(context.Background()).Err() })
		})
	}
	wg.Wait()
	f.late.Store(0)
	stats := f.rdb.PoolStats()
	require.GreaterOrEqual(t, int(stats.IdleConns), n-1) // another may be in use
	require.GreaterOrEqual(t, int(stats.PipelineStats.IdleConns), n-1)
}

// stale closes the other side of all connections, as a server does that restarts.
func (f *fakeRedis) stale() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Conn.Close()
	}
	f.conns = nil
}

// However many connections are stale: calls take no longer than without, and the first renewal
// succeeds.
func TestFakeTimeStaleConnectionsTakeNoTime(t *testing.T) {
	for _, n := range []int{4, 12, 40} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				const lease = 9 * time.Second
				var renewed atomic.Int32
				mu := f.client(t, &rlock.Options{Trace: rlock.Trace{
					Renewed:    func(rlock.Renewal) { renewed.Add(1) },
					NotRenewed: func(r rlock.FailedRenewal) { t.Error(r.Err) },
				}}).NewLock("a", rlock.WithLeaseTime(lease))
				inNoTime := func(what string, call func() error) {
					f.idle(t, n)
					f.stale()
					began := time.Now()
					require.NoError(t, call(), what)
					require.Zero(t, time.Since(began), what)
				}
				var held context.Context
				var hold *rlock.Hold
				var err error
				inNoTime("TryLock", func() error { held, hold, err = mu.TryLock(t.Context()); return err })
				inNoTime("Unlock", func() error { return hold.Unlock(held) })
				inNoTime("Lock", func() error { held, hold, err = mu.Lock(t.Context()); return err })
				for range 2 {
					f.idle(t, n)
					f.stale()
					before := renewed.Load()
					time.Sleep(lease / 3) // there is one renewal in any such time
					require.Greater(t, renewed.Load(), before)
				}
				require.NoError(t, hold.Unlock(held))
			})
		})
	}
}
