package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// newReplicas runs a master and n replicas that are in step with it.
func newReplicas(tb testing.TB, n int) (master *redistest.Server, replicas []*redistest.Server) {
	tb.Helper()
	master = newServer(tb, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(tb, err)
	for range n {
		replicas = append(replicas, newServer(tb, "--replicaof", host, port))
	}
	awaitReplicas(tb, master, n)
	return master, replicas
}

func awaitReplicas(tb testing.TB, master *redistest.Server, n int) {
	tb.Helper()
	rdb := master.Client(tb)
	redistest.Eventually(tb, "the replicas are in step", func() bool {
		online := strings.Count(rdb.Info(context.Background(), "replication").Val(), "state=online")
		rdb.Set(context.Background(), "written", 1, time.Second)
		return online == n && rdb.Wait(context.Background(), n, 100*time.Millisecond).Val() == int64(n)
	})
}

// lockReplicated locks mu. A busy machine may be too slow for the replicas to answer in
// the half second that they have at most, or for the master: then it tries again.
func lockReplicated(t *testing.T, mu *rlock.Lock) (held context.Context, hold *rlock.Hold) {
	t.Helper()
	redistest.Eventually(t, "the replicas answer in time", func() (answered bool) {
		var err error
		if held, hold, err = mu.TryLock(t.Context()); err != nil {
			require.True(t, errors.Is(err, rlock.ErrNotReplicated) || errors.Is(err, rlock.ErrUnavailable) ||
				errors.Is(err, rlock.ErrNotAcquired), err) // the last one while the attempt before is cleaned up
			t.Log(err)
			return false
		}
		return true
	})
	return held, hold
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	master, replicas := newReplicas(t, 2)
	rdb, c := master.Client(t), newClient(t, master, nil)
	both := c.NewLock("a", rlock.WithReplicas(2, 500*time.Millisecond), rlock.WithFencing())
	for range 3 {
		var held context.Context
		var hold *rlock.Hold
		commands := sent(t, master, func() { held, hold = lockReplicated(t, both) })
		require.Equal(t, []string{"evalsha", "wait"}, slices.DeleteFunc(commands, func(name string) bool {
			return slices.Contains([]string{"eval", "ping", "replconf"}, name)
		})[:2])
		for _, replica := range replicas {
			require.Equal(t, map[string]string{hold.Owner(): "1"}, hgetall(t, replica.Client(t), "a"), "it has the grant already")
		}
		require.Positive(t, hold.Token())
		nested, inner := lock(t, held, both)
		require.NoError(t, inner.Unlock(nested))
		require.NoError(t, hold.Unlock(held))
	}

	replicas[0].Stop()
	_, _, err := both.TryLock(t.Context())
	var short *rlock.NotReplicatedError
	require.ErrorAs(t, err, &short)
	require.ErrorIs(t, err, rlock.ErrNotReplicated)
	require.Equal(t, rlock.NotReplicatedError{Name: "a", Want: 2, Got: 1}, *short)
	redistest.Eventually(t, "it is released", func() bool { return len(hgetall(t, rdb, "a")) == 0 })
	_, _, err = both.Lock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotReplicated, "nobody waits for replicas")
	require.NotErrorIs(t, err, rlock.ErrUnavailable)
	require.Equal(t, int64(2), c.Stats().Kinds[0].Calls[rlock.OutcomeUnavailable])

	one := c.NewLock("a", rlock.WithReplicas(1, 500*time.Millisecond), rlock.WithLeaseTime(6*time.Second))
	held, hold := lockReplicated(t, one)
	_, _, err = both.Lock(held)
	require.ErrorIs(t, err, rlock.ErrInvalidOption)
	replicas[1].Stop()
	until := hold.Until()
	redistest.Eventually(t, "a renewal does without replicas", func() bool { return hold.Until().After(until) })
	require.NoError(t, hold.Unlock(held))
	_, _, err = one.TryLock(t.Context())
	require.ErrorAs(t, err, &short)
	require.Zero(t, short.Got)
	replicas[0].Cont()
	replicas[1].Cont()
	awaitReplicas(t, master, 2)
	redistest.Eventually(t, "it works again", func() bool {
		held, hold, err := both.TryLock(t.Context())
		return err == nil && hold.Unlock(held) == nil
	})
}

// A waiter gets the lock, or the error, when the holder has left.
func TestReplicasWait(t *testing.T) {
	t.Parallel()
	master, replicas := newReplicas(t, 1)
	option := rlock.WithReplicas(1, 500*time.Millisecond)
	mu, other := newClient(t, master, nil).NewLock("a", option), newClient(t, master, nil).NewLock("a", option)
	for _, stopped := range []bool{false, true} {
		held, hold := lock(t, t.Context(), mu)
		waited := make(chan error)
		go func() { waited <- other.Do(context.Background(), func(context.Context) error { return nil }) }()
		awaitListener(t, master.Client(t), "a")
		if stopped {
			replicas[0].Stop()
		}
		require.NoError(t, hold.Unlock(held))
		if err := <-waited; stopped {
			require.ErrorIs(t, err, rlock.ErrNotReplicated)
		} else {
			require.NoError(t, err)
		}
		require.Empty(t, hgetall(t, master.Client(t), "a"))
	}
	replicas[0].Cont()
}

// An owner that asks again has the lock already. From Redis 7.2 on, WAIT waits for the last
// write of its own connection only, so there must be one.
func TestReplicasOfARepetition(t *testing.T) {
	t.Parallel()
	master, _ := newReplicas(t, 1)
	rdb := master.Client(t)
	written := regexp.MustCompile(`cmdstat_pexpire:calls=(\d+)`)
	writes := func() string { return written.FindStringSubmatch(rdb.Info(t.Context(), "commandstats").Val())[1] }
	g := lua.Grant{Key: "a", Owner: "x:1"}
	for range 2 {
		r, err := lua.Acquire(t.Context(), rdb, g, time.Minute, 0)
		require.NoError(t, err)
		require.True(t, r.Acquired)
		require.NoError(t, rdb.PExpire(t.Context(), "a", time.Hour).Err(), "the lease is longer than the one asked for")
	}
	require.Equal(t, "4", writes())
	require.Greater(t, rdb.PTTL(t.Context(), "a").Val(), time.Minute)
}

// No replica at all is not different from one that is away.
func TestReplicasWhereThereIsNone(t *testing.T) {
	_, _, err := newClient(t, newServer(t), nil).NewLock("a", rlock.WithReplicas(1, 10*time.Millisecond)).TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotReplicated)
}

// BenchmarkReplicas64 is BenchmarkReplicas for 64 goroutines, each with a lock of its own.
func BenchmarkReplicas64(b *testing.B) {
	master, _ := newReplicas(b, 2)
	c := newClient(b, master, nil)
	var n atomic.Int64
	b.SetParallelism((63 + runtime.GOMAXPROCS(0)) / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		mu := c.NewLock(fmt.Sprint("lock", n.Add(1)), rlock.WithReplicas(2, 500*time.Millisecond))
		for pb.Next() {
			held, hold, err := mu.Lock(context.Background())
			if err != nil {
				b.Error(err)
				return
			}
			if err := hold.Unlock(held); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkReplicas measures what WithReplicas costs: Lock and Unlock on a master
// with two replicas.
func BenchmarkReplicas(b *testing.B) {
	master, _ := newReplicas(b, 2)
	c := newClient(b, master, nil)
	for name, opts := range map[string][]rlock.LockOption{
		"none": nil,
		"1":    {rlock.WithReplicas(1, 500*time.Millisecond)},
		"2":    {rlock.WithReplicas(2, 500*time.Millisecond)},
	} {
		b.Run(name, func(b *testing.B) {
			mu := c.NewLock("a", opts...)
			for b.Loop() {
				held, hold, err := mu.Lock(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if err := hold.Unlock(held); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The slot of a lock moves to a node that has no slot yet, and that the client of go-redis does
// not know. A master that has nothing to do with the lock is stopped: it delays nobody. A busy
// machine may be too slow for that, but not each time.
func TestReplicasOfANewNode(t *testing.T) {
	redistest.Long(t, "a cluster of four")
	t.Parallel()
	for name, readOnly := range map[string]bool{"a client that reads from masters": false, "one that reads from replicas": true} {
		t.Run(name, func(t *testing.T) {
			err := moveToNewNode(t, readOnly)
			for range 2 {
				if err != nil {
					t.Log("once more: ", err)
					err = moveToNewNode(t, readOnly)
				}
			}
			require.NoError(t, err)
		})
	}
}

// moveToNewNode tries to lock while the slot moves, and when it has moved.
func moveToNewNode(t *testing.T, readOnly bool) error {
	t.Helper()
	cluster := redistest.StartCluster(t, 2, 0, "--cluster-node-timeout", "60000", "--cluster-require-full-coverage", "no")
	node := cluster.AddNode()
	cluster.AddReplica(node) // the others have none: a WAIT there takes as long as it may
	awaitReplicas(t, node, 1)
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.ReadOnly = readOnly })
	require.NoError(t, rdb.Ping(t.Context()).Err())
	c := clientOn(t, rdb, nil)
	slot := cluster.Slot("a")
	plain, nothing := c.NewLock("{a}plain"), func(context.Context) error { return nil }
	require.NoError(t, plain.Do(t.Context(), nothing))
	stopped := cluster.Another(slot)

	try := func() error {
		stopped.Stop()
		defer stopped.Cont()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // less than an attempt may take
		defer cancel()
		err := c.NewLock("a", rlock.WithReplicas(1, 200*time.Millisecond)).TryDo(ctx, nothing)
		if errors.Is(err, rlock.ErrNotReplicated) { // the node has answered
			err = nil
		}
		return errors.Join(err, plain.Do(ctx, nothing))
	}
	move := cluster.BeginMove(slot, node)
	asked := try()
	move.MoveKeys()
	move.Finish()
	return errors.Join(asked, try()) // MOVED
}

// A grant that too few replicas have is released by nothing that may come late: what is
// repeated for its owner may be granted to a caller who keeps it.
func TestFakeTimeLateReleaseOfAGrantWithoutReplicas(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		var asked atomic.Int32
		f.Server().SetPreHook(func(p *server.Peer, command string, args ...string) bool {
			if strings.EqualFold(command, "wait") {
				p.WriteInt(min(int(asked.Add(1))-1, 1)) // the second time it is replicated
				return true
			}
			return f.hook(p, command, args...)
		})
		release := f.hold(isScript("release"))
		mu := f.client(t, nil).NewLock("a", rlock.WithReplicas(1, 100*time.Millisecond))
		held, hold, err := mu.Lock(t.Context())
		if err != nil {
			require.ErrorIs(t, err, rlock.ErrNotReplicated)
			release()
			time.Sleep(time.Second)
			held, hold = lock(t, t.Context(), mu)
		} else {
			release()
		}
		synctest.Wait()
		_, _, err = f.client(t, nil).NewLock("a").TryLock(t.Context())
		require.NoError(t, held.Err())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.NoError(t, hold.Unlock(held))
	})
}

// While replicas are away, all waiters are told so: those whose grant they lack, and those whose
// wait ends meanwhile. Once a grant is replicated, a wait that ends is one for its holder.
func TestFakeTimeWaitersWithoutReplicas(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		var replicas atomic.Int32
		f.Server().SetPreHook(func(p *server.Peer, command string, args ...string) bool {
			if strings.EqualFold(command, "wait") {
				n := int(replicas.Load())
				if n == 0 {
					time.Sleep(100 * time.Millisecond)
				}
				p.WriteInt(n)
				return true
			}
			return f.hook(p, command, args...)
		})
		mu := f.client(t, nil).NewLock("a", rlock.WithReplicas(1, 100*time.Millisecond))
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				_, _, err := mu.TryLockFor(t.Context(), 2*time.Second)
				assert.ErrorIs(t, err, rlock.ErrNotReplicated)
				assert.NotErrorIs(t, err, rlock.ErrNotAcquired)
			})
		}
		all.Wait()
		replicas.Store(1)
		time.Sleep(time.Second)
		held, hold := lock(t, t.Context(), mu)
		_, _, err := mu.TryLockFor(t.Context(), time.Second)
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.NotErrorIs(t, err, rlock.ErrNotReplicated)
		require.NoError(t, hold.Unlock(held))
	})
}
