package topology

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// outlast has a lock held and waited for while strike replaces its master: the
// hold is renewed on the new one, nests there, and its Unlock wakes the waiter.
func outlast(t *testing.T, dial func() redis.UniversalClient, replicas int, strike func()) {
	opts := &rlock.Options{LeaseTime: 12 * time.Second}
	rdb := dial()
	mu, other := clientOn(t, rdb, opts).NewLock("a"), clientOn(t, dial(), opts).NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	got := wait(t, other)
	written(t, rdb, replicas)
	strike()
	until := hold.Until()
	redistest.Eventually(t, "it is renewed on the new master", func() bool { return hold.Until().After(until) })
	require.NoError(t, held.Err())
	nested, inner := lock(t, held, mu)
	require.NoError(t, inner.Unlock(nested))
	since := time.Now()
	require.NoError(t, hold.Unlock(held))
	served(t, got, since)
}

// written returns when the replicas have all that the lock's master has.
func written(t *testing.T, rdb redis.UniversalClient, replicas int) {
	t.Helper()
	node, ok := rdb.(*redis.Client)
	if !ok {
		var err error
		node, err = rdb.(*redis.ClusterClient).MasterForKey(t.Context(), "a")
		require.NoError(t, err)
	}
	acknowledged := redis.NewIntCmd(t.Context(), "wait", replicas, 2000)
	_, err := node.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Set(t.Context(), "{a}written", 1, 0)
		return p.Process(t.Context(), acknowledged)
	})
	require.NoError(t, err)
	require.EqualValues(t, replicas, acknowledged.Val())
}

func TestClusterFailover(t *testing.T) {
	redistest.Long(t, "a cluster of six, and its failovers")
	t.Parallel()
	for name, strike := range map[string]func(*redistest.Server){
		"SIGKILL": (*redistest.Server).Kill,
		"SIGSTOP": (*redistest.Server).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 1)
			slot := c.Slot("a")
			old := c.Owner(slot)
			outlast(t, func() redis.UniversalClient { return c.Client(t) },
				1, func() {
					strike(old)
					c.AwaitFailover(old, slot)
				})
		})
	}
}

func TestSentinelFailover(t *testing.T) {
	redistest.Long(t, "six servers, and four failovers")
	t.Parallel()
	for name, strike := range map[string]func(*redistest.Sentinels, *redistest.Server){
		"manual":  func(s *redistest.Sentinels, _ *redistest.Server) { s.Failover() },
		"SIGKILL": func(_ *redistest.Sentinels, old *redistest.Server) { old.Kill() },
		"SIGSTOP": func(_ *redistest.Sentinels, old *redistest.Server) { old.Stop() },
		"deposed": func(s *redistest.Sentinels, _ *redistest.Server) { s.Depose() }, // it goes on answering
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.StartSentinels(t)
			outlast(t, func() redis.UniversalClient { return s.Client(t) },
				2, func() {
					old := s.Master()
					strike(s, old)
					s.AwaitSwitch(old)
				})
		})
	}
}

const lease = 3 * time.Second

// pair is a master with a replica, whose roles the test itself exchanges.
type pair struct {
	t               *testing.T
	master, replica *redistest.Server
	addr            atomic.Pointer[string] // where the clients connect to
}

func newPair(t *testing.T) *pair {
	p := &pair{t: t}
	for _, s := range []**redistest.Server{&p.master, &p.replica} {
		*s = redistest.Start(t, "--repl-diskless-sync-delay", "0")
	}
	p.follow()
	return p
}

// follow makes one a replica of the other, and the clients connect to that.
func (p *pair) follow() {
	p.t.Helper()
	addr := p.master.Addr()
	p.addr.Store(&addr)
	host, port, _ := net.SplitHostPort(addr)
	require.NoError(p.t, p.replica.Client(p.t).ReplicaOf(context.Background(), host, port).Err())
	rdb := p.master.Client(p.t)
	redistest.Eventually(p.t, "the replica has caught up", func() bool {
		return strings.Contains(rdb.Info(context.Background(), "replication").Val(), "state=online")
	})
}

// part has the replica hear nothing of its master any more. It keeps what it has.
func (p *pair) part() {
	p.t.Helper()
	require.NoError(p.t, p.replica.Client(p.t).ReplicaOf(context.Background(), "127.0.0.1", "1").Err())
}

// failOver kills the master and promotes the replica; the dead one comes back
// with reunite.
func (p *pair) failOver() {
	p.t.Helper()
	p.master.Kill()
	p.master, p.replica = p.replica, p.master
	require.NoError(p.t, p.master.Client(p.t).ReplicaOf(context.Background(), "no", "one").Err())
	addr := p.master.Addr()
	p.addr.Store(&addr)
}

func (p *pair) reunite() {
	p.t.Helper()
	p.replica.Restart()
	p.follow()
}

// client connects to whoever is the master, as a failover client does.
func (p *pair) client() *rlock.Client {
	return clientOn(p.t, p.master.Client(p.t, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, *p.addr.Load())
		}
	}), &rlock.Options{LeaseTime: lease})
}

// store accepts writes under a fencing token, and refuses those under an older one.
type store struct{ newest int64 }

var errStale = errors.New("a newer token was here")

func (s *store) write(token int64) error {
	if token < s.newest {
		return errStale
	}
	s.newest = token
	return nil
}

// Without WithReplicas, a failover to a replica that has not heard of the grant
// hands the lock to a second owner. The first one is told before its window ends,
// and the store refuses what it writes after the second.
func TestLossyFailover(t *testing.T) {
	redistest.Long(t, "failovers")
	t.Parallel()
	p := newPair(t)
	var s store
	first, second := p.client().NewLock("a", rlock.WithFencing()), p.client().NewLock("a", rlock.WithFencing())
	for range rounds() {
		p.part()
		held, hold := lock(t, t.Context(), first)
		require.NoError(t, s.write(hold.Token()))
		until := hold.Until()
		p.failOver()

		held2, hold2, err := second.TryLockFor(t.Context(), lease)
		require.NoError(t, err)
		require.NoError(t, held.Err(), "two owners: that is what the replica's ignorance costs")
		require.Greater(t, hold2.Token(), hold.Token())
		require.NoError(t, s.write(hold2.Token()))
		require.ErrorIs(t, s.write(hold.Token()), errStale)

		select {
		case <-held.Done():
		case <-time.After(10 * time.Second):
		}
		require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
		require.True(t, time.Now().Before(until), "it is told inside its window")
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
		require.NoError(t, held2.Err())
		require.NoError(t, hold2.Unlock(held2))
		p.reunite()
	}
}

// With WithReplicas a grant is one that the replica has, or none.
func TestReplicatedFailover(t *testing.T) {
	redistest.Long(t, "failovers")
	t.Parallel()
	p := newPair(t)
	options := []rlock.LockOption{rlock.WithReplicas(1, 100*time.Millisecond), rlock.WithFencing(), rlock.WithLeaseTime(5 * lease)}
	first := p.client().NewLock("a", options...)
	other := p.client()
	plain := other.NewLock("a", rlock.WithFencing()) // the new master has no replica yet
	for n := range 2 * rounds() {
		parted := n%2 == 1
		if parted {
			p.part()
		}
		held, hold, err := first.TryLock(t.Context())
		for tries := 1; !parted && err != nil && tries < 100; tries++ {
			// The replica was slow; what was granted in vain is released in the background.
			require.True(t, errors.Is(err, rlock.ErrNotReplicated) || errors.Is(err, rlock.ErrNotAcquired), "%v", err)
			time.Sleep(10 * time.Millisecond)
			held, hold, err = first.TryLock(t.Context())
		}
		if parted {
			require.ErrorIs(t, err, rlock.ErrNotReplicated)
		} else {
			require.NoError(t, err)
		}
		p.part() // so that nothing more arrives
		p.failOver()

		held2, hold2, err2 := plain.TryLock(t.Context())
		for errors.Is(err2, rlock.ErrUnavailable) { // its connections were to the dead master
			held2, hold2, err2 = plain.TryLock(t.Context())
		}
		if err == nil {
			require.ErrorIs(t, err2, rlock.ErrNotAcquired, "the grant has survived")
			until := hold.Until()
			redistest.Eventually(t, "it is renewed", func() bool { return hold.Until().After(until) })
			require.NoError(t, held.Err())
			require.NoError(t, hold.Unlock(held))
		} else {
			require.NoError(t, err2)
			require.NoError(t, hold2.Unlock(held2))
		}
		p.reunite()
	}
}

// rounds is how many failovers are provoked.
func rounds() int {
	if os.Getenv("RLOCK_TOPOLOGY") == "" {
		return 2
	}
	return 20
}

// TestIdleWaiters has a client wait that sends no commands of its own while the
// master of the lock is stopped, stays silent and is replaced. Somebody else
// releases the lock on the new master.
func TestIdleWaiters(t *testing.T) {
	redistest.Long(t, "clusters that nobody asks anything")
	t.Parallel()
	for mode, sharded := range modes {
		if mode == "auto" {
			continue // is on
		}
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 1)
			const name = "a"
			slot := c.Slot(name)
			mu := clientOn(t, c.Client(t), &rlock.Options{ShardedPubSub: sharded}).NewLock(name)
			for range 1 + rounds()/4 {
				old := c.Owner(slot)
				take(t, old.Client(t), name)
				got := wait(t, mu)
				awaitListener(t, c, name)
				next := c.Replica(old)
				rdb := next.Client(t)
				old.Stop()
				redistest.Eventually(t, "the replica takes over", func() bool {
					return strings.Contains(rdb.Info(t.Context(), "replication").Val(), "role:master")
				})
				served(t, got, release(t, rdb, name))
				old.Cont()
				c.AwaitHealthy()
			}
		})
	}
}

// take makes somebody the owner of a lock, and returns when a replica knows.
func take(t *testing.T, rdb *redis.Client, name string) {
	t.Helper()
	pipe := rdb.Pipeline()
	pipe.HSet(t.Context(), name, "somebody:1", 1)
	pipe.PExpire(t.Context(), name, time.Minute)
	heard := redis.NewIntCmd(t.Context(), "wait", 1, 5000)
	require.NoError(t, pipe.Process(t.Context(), heard))
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, heard.Val())
}

// release does what an Unlock of take's owner would do, and returns when it began.
func release(t *testing.T, rdb *redis.Client, name string) (since time.Time) {
	t.Helper()
	ctx := context.Background()
	since = time.Now()
	require.NoError(t, rdb.Del(ctx, name).Err())
	channel := "redisson_lock__channel:{" + name + "}"
	require.NoError(t, rdb.SPublish(ctx, channel, "0").Err())
	require.NoError(t, rdb.Publish(ctx, channel, "0").Err())
	return since
}
