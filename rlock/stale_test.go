package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	requests "github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/rlock"
)

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
