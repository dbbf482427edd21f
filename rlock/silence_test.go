package rlock_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// settings are those of go-redis that decide how long a call may hang there.
var settings = map[string]func(*redis.Options){
	"defaults":              func(*redis.Options) {},
	"no ReadTimeout":        func(o *redis.Options) { o.ReadTimeout = -1 },
	"ContextTimeoutEnabled": func(o *redis.Options) { o.ContextTimeoutEnabled = true },
	"MaxRetries -1":         func(o *redis.Options) { o.MaxRetries = -1 },
	"MaxRetries 10":         func(o *redis.Options) { o.MaxRetries = 10 },
}

var errEnough = errors.New("enough")

// calls are all that wait for an answer. Each uses a lock of its own.
var calls = map[string]func(ctx context.Context, c *rlock.Client) error{
	"Lock": func(ctx context.Context, c *rlock.Client) error {
		_, _, err := c.NewLock("lock").Lock(ctx)
		return err
	},
	"TryLock": func(ctx context.Context, c *rlock.Client) error {
		_, _, err := c.NewLock("trylock").TryLock(ctx)
		return err
	},
	"TryLockFor": func(ctx context.Context, c *rlock.Client) error {
		_, _, err := c.NewLock("trylockfor").TryLockFor(ctx, time.Minute)
		return err
	},
	"nested Lock": func(ctx context.Context, c *rlock.Client) error {
		_, _, err := c.NewLock("held").Lock(ctx)
		return err
	},
	"nested TryLock": func(ctx context.Context, c *rlock.Client) error {
		_, _, err := c.NewLock("held").TryLock(ctx)
		return err
	},
	"Do": func(ctx context.Context, c *rlock.Client) error {
		return c.NewLock("do").Do(ctx, func(context.Context) error { return errors.New("fn must not run") })
	},
	"Inspect": func(ctx context.Context, c *rlock.Client) error {
		_, err := c.NewLock("other").Inspect(ctx)
		return err
	},
	"ForceUnlock": func(ctx context.Context, c *rlock.Client) error {
		_, err := c.NewLock("other").ForceUnlock(ctx)
		return err
	},
	"UnlockOwner": func(ctx context.Context, c *rlock.Client) error {
		_, err := c.NewLock("other").UnlockOwner(ctx, "somebody:1")
		return err
	},
}

// requirePrompt makes all calls while nothing answers, under contexts that
// descend from ctx, and fails the test unless each returns soon after its own.
func requirePrompt(t *testing.T, ctx context.Context, c *rlock.Client) {
	t.Helper()
	const patience = 150 * time.Millisecond
	stalls := redistest.WatchStalls()
	defer stalls.Stop()
	var all sync.WaitGroup
	for name, call := range calls {
		all.Go(func() {
			start := time.Now()
			ctx, cancel := context.WithTimeoutCause(ctx, patience, errEnough)
			defer cancel()
			err := call(ctx, c)
			took := time.Since(start)
			assert.Less(t, took, patience+100*time.Millisecond+slack/2+stalls.Total(), name) // less than a ReadTimeout
			assert.GreaterOrEqual(t, took, patience, name)
			assert.ErrorIs(t, err, rlock.ErrUnavailable, name)
			assert.NotErrorIs(t, err, rlock.ErrNotAcquired, name)
			assert.ErrorIs(t, err, context.DeadlineExceeded, name)
			assert.ErrorIs(t, err, errEnough, name)
		})
	}
	all.Wait()
}

// settled waits until no more goroutines run than before.
func settled(t *testing.T, before int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			all := make([]byte, 1<<20)
			t.Logf("%d before, and now:\n%s", before, all[:runtime.Stack(all, true)])
		}
	}()
	redistest.Eventually(t, "the goroutines are gone", func() bool { return redistest.Goroutines() <= before })
}

// requireFree fails the test unless the keys are gone soon.
func requireFree(t *testing.T, rdb *redis.Client, limit time.Duration, keys ...string) {
	t.Helper()
	start := time.Now()
	redistest.Eventually(t, "everything is released", func() bool {
		n, err := rdb.Exists(context.Background(), keys...).Result()
		require.NoError(t, err)
		return n == 0
	})
	require.Less(t, time.Since(start), limit)
}

func TestSilentServer(t *testing.T) {
	for name, edit := range settings {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			c := clientOn(t, srv.Client(t, edit), &rlock.Options{LeaseTime: 3 * time.Second})
			held, hold := lock(t, t.Context(), c.NewLock("held", rlock.WithLeaseTime(time.Minute)))
			rdb := srv.Client(t)
			before, commands := redistest.Goroutines(), srv.CommandCalls(t)
			srv.Stop()
			requirePrompt(t, held, c)
			srv.Cont()
			requireFree(t, rdb, time.Second+slack, "lock", "trylock", "trylockfor", "do")
			settled(t, before)
			require.GreaterOrEqual(t, srv.CommandCalls(t)["pexpire"]-commands["pexpire"], int64(1), "some had been sent, and were acquired")
			redistest.Eventually(t, "the count of the nested call that was left is corrected", func() bool { return holds(t, rdb, "held") == 1 })
			require.NoError(t, held.Err())
			require.NoError(t, hold.Unlock(held))
			requireFree(t, rdb, slack, "held")
		})
	}
}

func TestSilentServerAndAThousandWaiters(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, &rlock.Options{LeaseTime: 900 * time.Millisecond})
	mu := c.NewLock("a")
	held, hold := lock(t, t.Context(), mu) // opens a connection
	require.NoError(t, hold.Unlock(held))
	rdb := srv.Client(t)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	before, commands := redistest.Goroutines(), srv.CommandCalls(t)
	srv.Stop()
	errs := make(chan error, 1000)
	deadline := time.Now().Add(700 * time.Millisecond)
	var callers sync.WaitGroup
	for range cap(errs) {
		callers.Go(func() {
			ctx, cancel := context.WithDeadlineCause(t.Context(), deadline, errEnough)
			defer cancel()
			_, _, err := mu.Lock(ctx)
			errs <- err
		})
	}
	wrong := make(map[string]int)
	for range cap(errs) { // whether they know by then that the server is silent: TestFakeTimeQueueLeavesAtOnce
		err := <-errs
		known := errors.Is(err, rlock.ErrUnavailable) || errors.Is(err, rlock.ErrNotAcquired)
		if !known || !errors.Is(err, errEnough) || !errors.Is(err, context.DeadlineExceeded) {
			wrong[err.Error()]++
		}
	}
	late := time.Since(deadline)
	callers.Wait()
	left := redistest.Goroutines() - before
	srv.Cont()
	t.Logf("all gone %v after the deadline, %d goroutines left behind", late, left)
	require.Empty(t, wrong)
	require.Less(t, late, 100*time.Millisecond+slack)
	require.Less(t, left, 100, "what is left behind does not grow with the callers")
	requireFree(t, rdb, time.Second+slack, "a")
	settled(t, before)
	scripts := srv.CommandCalls(t)["evalsha"] - commands["evalsha"]
	t.Logf("%d scripts", scripts)
	require.Less(t, scripts, int64(200))
}

func TestUnlockOnASilentServer(t *testing.T) {
	t.Parallel()
	for name, edit := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			const timeout = 300 * time.Millisecond
			c := clientOn(t, srv.Client(t, edit), &rlock.Options{UnlockTimeout: timeout})
			mu := c.NewLock("a")
			held, hold := lock(t, t.Context(), mu)
			inner, innerHold := lock(t, held, mu)
			srv.Stop()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			start := time.Now()
			require.NoError(t, innerHold.Unlock(ctx), "the count is only shown")
			err := hold.Unlock(ctx)
			took := time.Since(start)
			require.ErrorIs(t, err, rlock.ErrUnavailable)
			require.NotErrorIs(t, err, context.Canceled, "the end of its ctx is not why")
			require.GreaterOrEqual(t, took, timeout)
			require.Less(t, took, 2*timeout+slack)
			require.ErrorIs(t, context.Cause(held), rlock.ErrUnlocked)
			require.ErrorIs(t, context.Cause(inner), rlock.ErrUnlocked)
			require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrNotHeld)
			srv.Cont()
			requireFree(t, srv.Client(t), time.Second+slack, "a")
		})
	}
}

func TestCloseOnASilentServer(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, &rlock.Options{UnlockTimeout: 10 * time.Second})
	mu := c.NewLock("a", rlock.WithoutHandoff()) // which would not need the server
	held, hold := lock(t, t.Context(), mu)
	waiting := lockAsync(t.Context(), mu)
	awaitListener(t, srv.Client(t), "a")
	srv.Stop()
	unlocked := make(chan error, 1)
	go func() { unlocked <- hold.Unlock(held) }()
	<-held.Done()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errEnough)
	defer cancel()
	start := time.Now()
	err := c.Close(ctx)
	require.Less(t, time.Since(start), 300*time.Millisecond+slack)
	require.ErrorIs(t, err, errEnough)
	require.ErrorIs(t, (<-waiting).err, rlock.ErrClosed)
	srv.Cont()
	require.NoError(t, <-unlocked)
	require.NoError(t, closeSoon(c))
	require.Zero(t, holds(t, srv.Client(t), "a"))
}

func TestDeadServer(t *testing.T) {
	redistest.Long(t, "waits for 5 s to pass")
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, &rlock.Options{LeaseTime: time.Second})
	mu := c.NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	require.NoError(t, hold.Unlock(held))
	srv.Kill()

	start := time.Now()
	_, hold, err := mu.TryLock(t.Context())
	t.Logf("TryLock: %v after %v", err, time.Since(start))
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.Nil(t, hold)
	require.Less(t, time.Since(start), time.Second/3+slack, "the bound of an attempt")

	start = time.Now()
	_, hold, err = mu.Lock(context.Background())
	t.Logf("Lock: %v after %v", err, time.Since(start))
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.Nil(t, hold)
	require.GreaterOrEqual(t, time.Since(start), 5*time.Second)
	require.Less(t, time.Since(start), 5*time.Second+slack)

	waiting := lockAsync(t.Context(), mu)
	srv.Restart()
	await(t, waiting, 5*time.Second)
}

// A waiter whose user loses the rights to the lock cannot take its ticket out of the
// queue. The client does that when it has the rights again, even if a lease would have
// ended by then.
func TestFakeTimeTicketOutlivesTheLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		w := begin(t.Context(), f.client(t, nil).NewLock("a", rlock.WithLeaseTime(100*time.Millisecond)))
		synctest.Wait()
		require.Len(t, queueOf(t, f.rdb, "a"), 1)
		f.SetError("NOPERM this user has no permissions to access one of the keys used as arguments")
		<-w.done
		require.ErrorIs(t, w.err, rlock.ErrUnavailable)
		time.Sleep(3 * time.Second)
		f.heal()
		time.Sleep(time.Second)
		require.Empty(t, tickets(t, f.rdb, "a"))
	})
}

// The host is silent while the lock is acquired, another server while it is released. That
// the share of the host is given back does not take the place of the release of all.
func TestFakeTimeQuorumReleasesAllAndAShare(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		held, hold := lock(t, t.Context(), mu) // the servers learn the scripts
		require.NoError(t, hold.Unlock(held))
		time.Sleep(time.Second)
		all[0].deafUp.Store(true)
		held, hold = lock(t, t.Context(), mu)
		all[1].deafUp.Store(true)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrUnavailable)
		require.True(t, all[1].Exists("a"))
		for _, f := range all[:2] {
			f.deafUp.Store(false)
		}
		time.Sleep(10 * time.Second) // less than the lease
		synctest.Wait()
		for _, f := range all {
			require.False(t, f.Exists("a"))
		}
	})
}

// An attempt to release that was not sent, for want of a connection, is none: the answer to
// the next one, that the lock is gone, is not of its own doing.
func TestFakeTimeUnlockWithoutAConnection(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		var dials time.Time // not before
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", PoolSize: 10_000, PipelinePoolSize: 10_000, ConnMaxIdleTime: 50 * time.Millisecond,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(time.Until(dials))
				return f.dial()
			},
		})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		c := clientOn(t, rdb, nil)
		held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithLeaseTime(600*time.Millisecond), rlock.WithoutRenewal()))
		time.Sleep(100 * time.Millisecond) // the connections are too old
		require.True(t, f.Del("a"))
		dials = time.Now().Add(250 * time.Millisecond)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
		require.GreaterOrEqual(t, time.Now(), dials)
	})
}
