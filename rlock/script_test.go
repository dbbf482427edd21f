package rlock_test

import (
	"context"
	"errors"
	"net"
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

var set = rlock.NewScript(`return redis.call('set', KEYS[2], ARGV[1])`)

func TestScript(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	value := func(t *testing.T) string { return rdb.Get(t.Context(), "balance").Val() }
	for name, make := range map[string]func(*rlock.Client) *rlock.Lock{
		"plain":  func(c *rlock.Client) *rlock.Lock { return c.NewLock("script:plain") },
		"fenced": func(c *rlock.Client) *rlock.Lock { return c.NewLock("script:fenced", rlock.WithFencing()) },
		"fair":   func(c *rlock.Client) *rlock.Lock { return c.NewFairLock("script:fair") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, srv, nil)
			mu := make(c)

			held, hold := lock(t, t.Context(), mu)
			reply, err := set.Run(held, hold, []string{"balance"}, "written by the holder")
			require.NoError(t, err)
			require.Equal(t, "OK", reply)
			require.Equal(t, "written by the holder", value(t))

			// Another context that owns the lock by the same grant may write as well.
			_, joined := join(t, t.Context(), make(newClient(t, srv, nil)), hold.Proof())
			_, err = set.Run(t.Context(), joined, []string{"balance"}, "written by a joined process")
			require.NoError(t, err)
			require.NoError(t, joined.Unlock(t.Context()))

			require.NoError(t, rdb.Del(t.Context(), mu.Name()).Err())
			_, err = set.Run(held, hold, []string{"balance"}, "written by a former holder")
			require.ErrorIs(t, err, rlock.ErrLeaseLost)
			require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost, "the work stops at once")
			require.Equal(t, "written by a joined process", value(t))
			require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)

			_, hold = lock(t, t.Context(), mu)
			require.NoError(t, hold.Unlock(t.Context()))
			_, err = set.Run(t.Context(), hold, []string{"balance"}, "written after the Unlock")
			require.ErrorIs(t, err, rlock.ErrNotHeld)
			require.Equal(t, "written by a joined process", value(t))
		})
	}
}

// The next goroutine would be the same owner, and a late write of the former one would count.
func TestScriptPinsTheGrant(t *testing.T) {
	t.Parallel()
	mu := newClient(t, newServer(t), nil).NewLock("pinned")
	_, hold := lock(t, t.Context(), mu)
	_, err := set.Run(t.Context(), hold, []string{"value"}, 1)
	require.NoError(t, err)
	next := make(chan string)
	go func() {
		_, hold, err := mu.Lock(t.Context())
		if err != nil {
			close(next)
			return
		}
		next <- hold.Owner()
		_ = hold.Unlock(t.Context())
	}()
	former := hold.Owner()
	time.Sleep(50 * time.Millisecond) // the other goroutine waits; if it does not yet, the owner is another in any case
	require.NoError(t, hold.Unlock(t.Context()))
	require.NotEqual(t, former, <-next)
}

func TestScriptReplies(t *testing.T) {
	t.Parallel()
	c := newClient(t, newServer(t), nil)
	held, hold := lock(t, t.Context(), c.NewLock("replies"))
	run := func(source string, args ...any) (any, error) {
		return rlock.NewScript(source).Run(held, hold, nil, args...)
	}
	reply, err := run(`return {KEYS[1], #KEYS, #ARGV, ARGV[1]}`, "argument")
	require.NoError(t, err)
	require.Equal(t, []any{"replies", int64(1), int64(1), "argument"}, reply)
	reply, err = run(`return false`)
	require.NoError(t, err)
	require.Nil(t, reply, "no reply is no error")

	_, err = run(`return redis.error_reply('POOR the balance is too low')`)
	_, isReply := errors.AsType[redis.Error](err)
	require.True(t, isReply)
	require.EqualError(t, err, "POOR the balance is too low")
	require.NotErrorIs(t, err, rlock.ErrUnavailable, "Redis has answered")
	_, err = run(`this is not Lua`)
	_, isReply = errors.AsType[redis.Error](err)
	require.True(t, isReply)
	require.ErrorContains(t, err, "compiling script")

	_, err = set.Run(held, nil, nil)
	require.ErrorIs(t, err, rlock.ErrNotHeld, "a refused TryLock has no hold")
	_, reader := lock(t, t.Context(), c.NewRWLock("documents").Reader())
	_, err = set.Run(held, reader, nil)
	require.ErrorIs(t, err, rlock.ErrInvalidOption)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = set.Run(over, hold, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, reader.Unlock(t.Context()))
	require.NoError(t, hold.Unlock(t.Context()))
}

var increment = rlock.NewScript(`return redis.call('incr', KEYS[2])`)

// A script that may have been executed is not sent again, neither by this package nor by go-redis.
func TestScriptRunsOnce(t *testing.T) {
	t.Parallel()
	cluster := func(t *testing.T) (redis.UniversalClient, *netfault.Proxy, redis.UniversalClient) {
		redistest.Long(t, "a cluster")
		c := redistest.StartCluster(t, 3, 0)
		owner := c.Owner(c.Slot("once"))
		proxy := netfault.New(t, owner.Addr())
		rdb := c.Client(t, func(o *redis.ClusterOptions) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if addr == owner.Addr() {
					addr = proxy.Addr()
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
		})
		return rdb, proxy, c.Client(t)
	}
	single := func(t *testing.T) (redis.UniversalClient, *netfault.Proxy, redis.UniversalClient) {
		srv := newServer(t)
		proxy := netfault.New(t, srv.Addr())
		return srv.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), proxy, srv.Client(t)
	}
	for name, connect := range map[string]func(*testing.T) (redis.UniversalClient, *netfault.Proxy, redis.UniversalClient){
		"single": single, "cluster": cluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, proxy, admin := connect(t)
			held, hold := lock(t, t.Context(), clientOn(t, rdb, nil).NewLock("once"))
			count := func() int {
				n, _ := admin.Get(t.Context(), "{once}:count").Int()
				return n
			}
			_, err := increment.Run(held, hold, []string{"{once}:count"})
			require.NoError(t, err)
			require.Equal(t, 1, count())

			proxy.CutReplies(1, netfault.Command("evalsha"))
			_, err = increment.Run(held, hold, []string{"{once}:count"})
			require.ErrorIs(t, err, rlock.ErrUnavailable)
			require.EqualValues(t, 1, proxy.Stats().RepliesCut)
			require.Equal(t, 2, count(), "executed once")
			require.NoError(t, held.Err())
			require.NoError(t, hold.Unlock(held))
		})
	}
}

// Connections that the server closed while they were idle fail no script: go-redis looks at a connection
// before it is used.
func TestScriptOnDeadConnections(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t, func(o *redis.Options) { o.MinIdleConns = 5 })
	held, hold := lock(t, t.Context(), clientOn(t, rdb, nil).NewLock("dead"))
	admin := srv.Client(t)
	for range 20 {
		redistest.Eventually(t, "idle connections", func() bool { return rdb.PoolStats().IdleConns >= 5 })
		require.NoError(t, admin.ClientKillByFilter(t.Context(), "TYPE", "normal").Err())
		_, err := increment.Run(held, hold, []string{"count"})
		require.NoError(t, err)
	}
	require.Equal(t, "20", admin.Get(t.Context(), "count").Val())
	require.NoError(t, hold.Unlock(held))
}

// A request is held back on its way until another owner has the lock, and the client is closed.
func TestLateScript(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	proxy := netfault.New(t, srv.Addr())
	rdb := srv.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	c, err := rlock.New(rdb, nil)
	require.NoError(t, err)
	held, hold := lock(t, t.Context(), c.NewLock("late"))
	_, err = increment.Run(held, hold, []string{"other"}) // the server knows the script
	require.NoError(t, err)

	late := proxy.Hold(netfault.Arg("count"))
	began := time.Now()
	_, err = increment.Run(held, hold, []string{"count"})
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.Less(t, time.Since(began), 4*time.Second, "2 s, on a slow machine")
	require.NoError(t, hold.Unlock(held))
	require.NoError(t, closeSoon(c))
	next, other := lock(t, t.Context(), newClient(t, srv, nil).NewLock("late"))
	require.NoError(t, late.Deliver(t.Context()))
	require.Zero(t, srv.Client(t).Exists(t.Context(), "count").Val())
	require.NoError(t, next.Err())
	require.NoError(t, other.Unlock(next))
}

// scriptOnItsWay returns a hold of a client of its own, whose script has been sent and is held back in front of the
// server, and what Run returns.
func scriptOnItsWay(t *testing.T, srv *redistest.Server) (c *rlock.Client, held context.Context, hold *rlock.Hold, late *netfault.Held, ran <-chan error) {
	t.Helper()
	proxy := netfault.New(t, srv.Addr())
	c = clientOn(t, srv.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), nil)
	held, hold = lock(t, t.Context(), c.NewLock("overtaken"))
	_, err := increment.Run(held, hold, []string{"other"}) // the server knows the script
	require.NoError(t, err)
	late = proxy.Hold(netfault.Arg("count"))
	ran = async(func() error {
		_, err := increment.Run(t.Context(), hold, []string{"count"})
		return err
	})
	require.NoError(t, late.Wait(t.Context()))
	return c, held, hold, late, ran
}

// An Unlock overtakes the script: what Run returns says that the script was not executed.
func TestScriptOvertakenByUnlock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	_, held, hold, late, ran := scriptOnItsWay(t, srv)
	require.NoError(t, hold.Unlock(held))
	require.NoError(t, late.Deliver(t.Context()))
	require.ErrorIs(t, <-ran, rlock.ErrNotHeld)
	require.Zero(t, srv.Client(t).Exists(t.Context(), "count").Val())
}

// The client is closed while the script is on its way. The script may have been executed, and the error says so.
func TestScriptDuringClose(t *testing.T) {
	t.Parallel()
	c, _, _, late, ran := scriptOnItsWay(t, newServer(t))
	closed := async(func() error { return closeSoon(c) })
	err := <-ran
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.ErrorIs(t, err, rlock.ErrClosed)
	require.NoError(t, late.Deliver(t.Context()))
	<-closed
}

// The context of a hold that is lost while the script is on its way. The script may have been executed, so
// the error must not be the one that says that it was not.
func TestScriptDuringALoss(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, &rlock.Options{LeaseTime: time.Second})
	held, hold := lock(t, t.Context(), c.NewLock("lost"))
	_, err := increment.Run(held, hold, []string{"count"})
	require.NoError(t, err)
	srv.Stop()
	_, err = increment.Run(held, hold, []string{"count"})
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.NotErrorIs(t, err, rlock.ErrLeaseLost)
	require.NotErrorIs(t, err, rlock.ErrNotAcquired)
	<-held.Done()
	_, err = increment.Run(t.Context(), hold, []string{"count"})
	require.ErrorIs(t, err, rlock.ErrLeaseLost, "known before anything is sent")
	srv.Cont()
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
}

// After a failover a client may meet a replica that lacks the newest grants. The replica cannot know that
// the lock is lost.
func TestScriptAtAReplica(t *testing.T) {
	t.Parallel()
	srv, empty := newServer(t), newServer(t, "--repl-diskless-sync-delay", "0")
	replica := newServer(t, "--replicaof", "127.0.0.1 "+empty.Addr()[len("127.0.0.1:"):])
	var addr atomic.Value
	addr.Store(srv.Addr())
	var mu sync.Mutex // guards open
	var open []net.Conn
	rdb := srv.Client(t, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
			mu.Lock()
			defer mu.Unlock()
			open = append(open, conn)
			return conn, err
		}
	})
	redistest.Eventually(t, "the replica follows its master", func() bool {
		return replica.Client(t).Do(t.Context(), "role").Val().([]any)[3] == "connected"
	})
	// No renewal meanwhile: at such a replica it would be taken for a loss.
	held, hold := lock(t, t.Context(), clientOn(t, rdb, &rlock.Options{LeaseTime: 5 * time.Minute}).NewLock("moved"))
	turn := func(to *redistest.Server) {
		mu.Lock()
		defer mu.Unlock()
		addr.Store(to.Addr())
		for _, conn := range open {
			_ = conn.Close()
		}
		open = nil
	}

	turn(replica)
	_, err := increment.Run(held, hold, []string{"count"})
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	calls := replica.CommandCalls(t) // READONLY, but on a busy machine the last attempt may have had no answer
	require.Positive(t, calls["evalsha"]+calls["eval"])
	require.NoError(t, held.Err())
	turn(srv)
	n, err := increment.Run(held, hold, []string{"count"})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.NoError(t, hold.Unlock(held))
}

func TestScriptOnACluster(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "a cluster")
	c := redistest.StartCluster(t, 3, 0)
	rdb := c.Client(t)
	for _, name := range []string{"plain", "with{tag}x", "{all}"} {
		tag := map[string]string{"plain": "{plain}", "with{tag}x": "{tag}", "{all}": "{all}"}[name]
		held, hold := lock(t, t.Context(), clientOn(t, c.Client(t), nil).NewLock(name))
		for n := range 2 { // of which the first sends the source
			reply, err := increment.Run(held, hold, []string{tag + ":count"})
			require.NoError(t, err)
			require.EqualValues(t, n+1, reply)
		}
		_, err := increment.Run(held, hold, []string{"{elsewhere}:count"})
		require.ErrorContains(t, err, "CROSSSLOT")
		require.NoError(t, held.Err())

		slot := c.Slot(name) // the lock and the other key move
		c.MoveSlot(slot, c.Another(slot))
		reply, err := increment.Run(held, hold, []string{tag + ":count"})
		require.NoError(t, err)
		require.EqualValues(t, 3, reply)

		require.NoError(t, rdb.Del(t.Context(), name).Err())
		_, err = increment.Run(held, hold, []string{tag + ":count"})
		require.ErrorIs(t, err, rlock.ErrLeaseLost)
		require.Equal(t, "3", rdb.Get(t.Context(), tag+":count").Val())
	}
}

// Errors of the script that begin like those by which Redis refuses a script as a whole.
func TestScriptErrorsLikeThoseOfRedis(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("busy"))
	group := rlock.NewScript(`redis.call('incr', KEYS[2]); return redis.call('xgroup', 'create', KEYS[3], 'group', '$', 'mkstream')`)
	for n := range 2 {
		_, err := group.Run(held, hold, []string{"count", "stream"})
		if n == 0 {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "BUSYGROUP")
		require.NotErrorIs(t, err, rlock.ErrUnavailable)
	}
	require.Equal(t, "2", srv.Client(t).Get(t.Context(), "count").Val())
	_, err := rlock.NewScript(`return redis.error_reply('NOTHELD by another check')`).Run(held, hold, nil)
	require.EqualError(t, err, "NOTHELD by another check")
	require.NoError(t, held.Err())

	// The lock's key holds something else now.
	require.NoError(t, srv.Client(t).Set(t.Context(), "busy", "x", 0).Err())
	_, err = increment.Run(held, hold, []string{"count"})
	require.ErrorIs(t, err, rlock.ErrLeaseLost)
	require.Equal(t, "2", srv.Client(t).Get(t.Context(), "count").Val())
}
