package rlock_test

import (
	"context"
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

	"github.com/go-rlock/rlock/internal/redistest"
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
// short for that. So are leases of 3 s where the connection to the Sentinel is dead as well: for a new
// connection go-redis asks that Sentinel first, and waits for its ReadTimeout, which is 5 s by default.
func TestDeadConnectionsCostNoHold(t *testing.T) {
	leases, counts := []time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second}, []int{1, 4, 10, 20}
	if testing.Short() || redistest.RaceEnabled { // 380 rows at once leave no processor to a race detector
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
							if name == "sentinel" && how == "swallowed" && lease < 5*time.Second && !readme {
								continue
							}
							row := fmt.Sprintf("%s, %v, %d, README %v", how, lease, n, readme)
							rows.Go(func() { heldOverDeadConnections(t, row, site, strike, lease, n, readme) })
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
