package rlock_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// balanced requires that each acquisition that a client has counted has one end.
func balanced(t *testing.T, c *rlock.Client) {
	t.Helper()
	for _, k := range c.Stats().Kinds {
		require.Equal(t, k.Acquired(), k.Released+k.Lost, "%+v", k)
		require.Zero(t, k.Held, "%+v", k)
		require.Zero(t, k.Waiting, "%+v", k)
	}
}

// round. Only the lock that was called is counted.
func TestRetainedLockInMultiLockIsCounted(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	t.Run("parked by a plain lock", func(t *testing.T) {
		c := newClient(t, srv, nil)
		a, b := c.NewLock("a", rlock.WithRetention(time.Hour)), c.NewLock("b")
		kept(t, srv, a)
		held, hold := lock(t, t.Context(), rlock.NewMultiLock(a, b))
		require.NoError(t, hold.Unlock(held))
		balanced(t, c)
	})
	t.Run("parked by a member", func(t *testing.T) {
		c := newClient(t, srv, nil)
		a, b := c.NewLock("c", rlock.WithRetention(time.Hour)), c.NewLock("d", rlock.WithRetention(time.Hour))
		multi := rlock.NewMultiLock(a, b)
		require.Eventually(t, func() bool {
			held, hold := lock(t, t.Context(), multi)
			require.NoError(t, hold.Unlock(held))
			return srv.Client(t).Exists(t.Context(), "c").Val() == 1
		}, 10*time.Second, time.Millisecond)
		held, hold := lock(t, t.Context(), a)
		require.NoError(t, hold.Unlock(held))
		balanced(t, c)
		for _, k := range c.Stats().Kinds {
			require.Zero(t, k.Calls[rlock.OutcomeNested], "nothing was nested: %+v", k)
		}
	})
}

// The time in which nobody held the lock is not part of a hold.
func TestRetainedLockIsNotHeldWhileItIsParked(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	var longest atomic.Int64
	c := newClient(t, srv, &rlock.Options{Trace: rlock.Trace{Released: func(_ context.Context, r rlock.Release) {
		longest.Store(max(longest.Load(), int64(r.Held)))
	}}})
	mu := c.NewLock("a", rlock.WithRetention(time.Hour))
	kept(t, srv, mu)
	longest.Store(0)
	time.Sleep(time.Second)
	held, hold := lock(t, t.Context(), mu)
	require.NoError(t, hold.Unlock(held))
	require.Less(t, time.Duration(longest.Load()), time.Second)
}

// found out.
func TestLossOfParkedGrantIsNotReported(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	var lost atomic.Int64
	opts := &rlock.Options{Trace: rlock.Trace{Lost: func(rlock.Loss) { lost.Add(1) }}}
	for name, end := range map[string]func(c *rlock.Client, mu *rlock.Lock){
		"close": func(*rlock.Client, *rlock.Lock) {},
		"other options": func(c *rlock.Client, _ *rlock.Lock) {
			held, hold := lock(t, t.Context(), c.NewLock("a"))
			_ = hold.Unlock(held)
		},
	} {
		c := newClient(t, srv, opts)
		mu := c.NewLock("a", rlock.WithRetention(time.Hour))
		kept(t, srv, mu)
		require.NoError(t, srv.Client(t).FlushAll(t.Context()).Err())
		end(c, mu)
		require.NoError(t, closeSoon(c))
		require.Zero(t, lost.Load(), name)
		for cause, n := range c.Stats().Losses {
			require.Zero(t, n, "%s %s", name, cause)
		}
	}
}

// does not ask whether it may be.
func TestRetainedFencedTryLock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour), rlock.WithFencing())
	try := func() {
		held, hold, err := mu.TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
	}
	require.Eventually(t, func() bool {
		try()
		return srv.Client(t).Exists(t.Context(), "a").Val() == 1
	}, 3*time.Second, time.Millisecond)
	require.Empty(t, sent(t, srv, try))
}

// losingAnswers has renewals executed whose answers are lost.
type losingAnswers struct{ on atomic.Bool }

func (*losingAnswers) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*losingAnswers) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (l *losingAnswers) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	renewal := isScript("renew")
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if len(cmd.Args()) > 1 && l.on.Load() && renewal([]string{cmd.Name(), fmt.Sprint(cmd.Args()[1])}) {
				err = os.ErrDeadlineExceeded
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// them has extended it.
func TestFakeTimeLostParkedGrantIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease = 30 * time.Second
		f := newFakeRedis(t)
		f.teach(t)
		hook := new(losingAnswers)
		f.rdb.AddHook(hook)
		mu := f.client(t, &rlock.Options{LeaseTime: lease}).NewLock("a", rlock.WithRetention(time.Hour))
		for range 3 {
			held, hold := lock(t, t.Context(), mu)
			time.Sleep(time.Second)
			require.NoError(t, hold.Unlock(held))
		}
		require.True(t, f.Exists("a"))
		hook.on.Store(true)
		time.Sleep(lease)
		hook.on.Store(false)
		time.Sleep(time.Second)
		require.False(t, f.Exists("a"), "nobody has it")
		began := time.Now()
		held, hold, err := mu.TryLockFor(t.Context(), time.Minute)
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
		require.Less(t, time.Since(began), time.Second)
	})
}

// there. Nobody keeps it from him for longer than was said.
func TestClusterRetainedLockIsReleasedForListenersElsewhere(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	c, err := rlock.New(cluster.Client(t), &rlock.Options{ShardedPubSub: rlock.ShardedOff})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, closeSoon(c)) })
	mu := c.NewLock("a", rlock.WithRetention(200*time.Millisecond))
	owner := cluster.Owner(cluster.Slot("a"))
	other := cluster.Nodes[0]
	if other == owner {
		other = cluster.Nodes[1]
	}
	require.Eventually(t, func() bool {
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		return owner.Client(t).Exists(t.Context(), "a").Val() == 1
	}, 10*time.Second, time.Millisecond)
	sub := other.Client(t).Subscribe(t.Context(), lua.UnlockChannel("a"))
	defer sub.Close()
	_, err = sub.Receive(t.Context())
	require.NoError(t, err)
	heard := sub.Channel()
	for end := time.Now().Add(5 * time.Second); ; {
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		select {
		case <-heard:
			return
		default:
			require.True(t, time.Now().Before(end), "no release for 5 s")
		}
	}
}

// A server that does not tell who listens does not have the lock kept for ever.
func TestRetainedLockWithoutRightToPubsub(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	require.NoError(t, srv.Client(t).Do(t.Context(), "ACL", "SETUSER", "u", "on", "nopass", "~*", "&*", "+@all", "-pubsub").Err())
	rdb := srv.Client(t, func(o *redis.Options) { o.Username = "u"; o.Password = "x" })
	mu := clientOn(t, rdb, nil).NewLock("a", rlock.WithRetention(200*time.Millisecond))
	kept(t, srv, mu)
	sub := srv.Client(t).Subscribe(t.Context(), lua.UnlockChannel("a"))
	defer sub.Close()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	heard := sub.Channel()
	for end := time.Now().Add(5 * time.Second); ; {
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		select {
		case <-heard:
			return
		default:
			require.True(t, time.Now().Before(end), "no release for 5 s")
		}
	}
}

// A client that announces in one way recalls a lock from one that listens in another.
func TestClusterRecallReachesEveryFamily(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	client := func(mode rlock.ShardedPubSub) *rlock.Client {
		c, err := rlock.New(cluster.Client(t), &rlock.Options{ShardedPubSub: mode})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, closeSoon(c)) })
		return c
	}
	for name, modes := range map[string][2]rlock.ShardedPubSub{
		"a": {rlock.ShardedOff, rlock.ShardedOn}, "b": {rlock.ShardedOn, rlock.ShardedOff},
		"c": {rlock.ShardedBoth, rlock.ShardedOn}, "d": {rlock.ShardedBoth, rlock.ShardedOff},
		"e": {rlock.ShardedOff, rlock.ShardedBoth}, "f": {rlock.ShardedOn, rlock.ShardedBoth},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := client(modes[0]).NewLock(name, rlock.WithRetention(time.Hour)), client(modes[1]).NewFairLock(name)
			require.Eventually(t, func() bool {
				held, hold := lock(t, t.Context(), a)
				require.NoError(t, hold.Unlock(held))
				return cluster.Owner(cluster.Slot(name)).Client(t).Exists(t.Context(), name).Val() == 1
			}, 10*time.Second, time.Millisecond)
			began := time.Now()
			held, hold := lock(t, t.Context(), b)
			require.NoError(t, hold.Unlock(held))
			require.Less(t, time.Since(began), time.Second)
		})
	}
}

// once otherwise.
func TestFakeTimeParkedGrantEndsWithTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a", rlock.WithRetention(time.Hour))
		open := f.hold(isScript("try"))
		var all sync.WaitGroup
		var first *rlock.Hold
		var firstCtx context.Context
		all.Go(func() {
			var err error
			firstCtx, first, err = mu.TryLock(t.Context())
			require.NoError(t, err)
		})
		synctest.Wait()
		held, hold := lock(t, t.Context(), mu)
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, hold.Unlock(held))
		require.True(t, f.Exists("a"), "kept")
		f.Del("a") // as a failover may
		open()
		all.Wait()
		require.NoError(t, firstCtx.Err())
		_, _, err := mu.TryLockFor(t.Context(), time.Second)
		require.ErrorIs(t, err, rlock.ErrNotAcquired, "held twice")
		require.NoError(t, first.Unlock(t.Context()))
	})
}

// Whoever has other options than those who keep the lock gets it although they never leave it.
func TestRetainedLockIsNotKeptFromOtherOptions(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, nil)
	keeping, other := c.NewLock("a", rlock.WithRetention(time.Hour)), c.NewLock("a")
	kept(t, srv, keeping)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = keeping.Do(ctx, func(context.Context) error { time.Sleep(time.Millisecond); return nil })
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	held, hold, err := other.TryLockFor(t.Context(), 30*time.Second)
	took := time.Since(began)
	cancel()
	all.Wait()
	require.NoError(t, err)
	require.NoError(t, hold.Unlock(held))
	require.Less(t, took, 2*time.Second)
}
