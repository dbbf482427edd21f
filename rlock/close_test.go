package rlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// While a goroutine of the client holds the lock, the next waiter of the client sleeps
// until it is unlocked. Close ends that wait, too.
func TestFakeTimeCloseEndsTheNextInLine(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		mu := c.NewLock("a", rlock.WithoutHandoff())
		held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
		var waiters []*waiting
		for range 3 {
			waiters = append(waiters, begin(t.Context(), mu))
			synctest.Wait() // until it sleeps
		}
		require.NoError(t, hold.Unlock(held))
		synctest.Wait()
		start := f.now()
		closed := make(chan error)
		go func() { closed <- c.Close(context.Background()) }()
		ended := 0
		synctest.Wait()
		for _, w := range waiters {
			select {
			case <-w.done:
				if w.err == nil {
					held, hold = w.held, w.hold
					continue
				}
				ended++
				require.ErrorIs(t, w.err, rlock.ErrClosed)
			default:
				require.Fail(t, "it waits on")
			}
		}
		require.Equal(t, 2, ended)
		require.NoError(t, hold.Unlock(held))
		require.NoError(t, <-closed)
		require.Equal(t, start, f.now())
	})
}

// Holders are told, keep their lease, and unlock as always; Close waits for them.
func TestCloseWaitsForHolders(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, &rlock.Options{LeaseTime: 6 * time.Second})
	mu, other := c.NewLock("a"), c.NewLock("b")
	held, hold := lock(t, t.Context(), mu)
	nested, nestedHold := lock(t, held, mu)
	inOther, otherHold := lock(t, t.Context(), other)

	closed := async(func() error { return closeSoon(c) })
	for _, ctx := range []context.Context{held, nested, inOther} {
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), rlock.ErrClosed)
		require.NotErrorIs(t, context.Cause(ctx), rlock.ErrLeaseLost, "nothing was lost")
	}
	awaitUntil(t, srv, "a", hold, 7*time.Second)
	require.NoError(t, nestedHold.Unlock(nested))
	require.NoError(t, otherHold.Unlock(inOther))
	select {
	case err := <-closed:
		t.Fatalf("Close did not wait for the holder: %v", err)
	default:
	}
	require.NoError(t, hold.Unlock(held))
	require.NoError(t, within(t, 10*time.Second, closed))
	require.Zero(t, srv.Client(t).Exists(t.Context(), "a", "b").Val())
}

// The lock was removed on the server, and the same client has acquired it again before it
// noticed that. Close ends the contexts of both holds.
func TestCloseTellsEveryHolder(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, nil)
	mu := c.NewLock("a")
	first, firstHold := lock(t, t.Context(), mu)
	require.NoError(t, srv.Client(t).Del(t.Context(), "a").Err())
	second, secondHold := lock(t, t.Context(), mu)
	closed := async(func() error { return closeSoon(c) })
	within(t, 10*time.Second, second.Done())
	require.ErrorIs(t, context.Cause(second), rlock.ErrClosed)
	select {
	case <-first.Done():
	case <-time.After(5 * time.Second): // before the next renewal
		t.Error("the first holder was not told")
	}
	requireUnlockedTooLate(t, firstHold.Unlock(first))
	require.NoError(t, secondHold.Unlock(second))
	require.NoError(t, <-closed)
}

// A nested Lock under a context that Close has ended.
func TestNestedAfterClose(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	mu := c.NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	closed := async(func() error { return closeSoon(c) })
	<-held.Done()
	for _, ctx := range []context.Context{held, context.WithoutCancel(held)} {
		_, _, err := mu.Lock(ctx)
		require.ErrorIs(t, err, rlock.ErrClosed)
	}
	require.NoError(t, hold.Unlock(held))
	require.NoError(t, <-closed)
}

// A client leaves no goroutine behind, whatever it did and whatever became of
// the server.
func TestCloseLeavesNothing(t *testing.T) {
	const lease = time.Second
	uses := map[string]func(t *testing.T, srv *redistest.Server, c *rlock.Client){
		"unused": func(*testing.T, *redistest.Server, *rlock.Client) {},
		"after holding": func(t *testing.T, _ *redistest.Server, c *rlock.Client) {
			require.NoError(t, c.NewLock("a").Do(t.Context(), func(context.Context) error { return nil }))
		},
		"after waiting": func(t *testing.T, srv *redistest.Server, c *rlock.Client) {
			require.NoError(t, wait(t, srv, c).Unlock(t.Context()))
		},
		"while waiting": func(t *testing.T, srv *redistest.Server, c *rlock.Client) {
			rdb := srv.Client(t)
			require.NoError(t, rdb.HSet(t.Context(), "a", "somebody:1", 1).Err())
			done := async(func() error { _, _, err := c.NewLock("a").Lock(t.Context()); return err })
			awaitListener(t, rdb, "a")
			t.Cleanup(func() { require.ErrorIs(t, within(t, 10*time.Second, done), rlock.ErrClosed) })
		},
		"server killed": func(t *testing.T, srv *redistest.Server, c *rlock.Client) {
			hold := wait(t, srv, c)
			srv.Kill()
			_ = hold.Unlock(t.Context())
		},
		"server stopped": func(t *testing.T, srv *redistest.Server, c *rlock.Client) {
			hold := wait(t, srv, c)
			srv.Stop()
			_ = hold.Unlock(t.Context())
		},
		"server stopped while held": func(t *testing.T, srv *redistest.Server, c *rlock.Client) {
			held, hold := lock(t, t.Context(), c.NewLock("a"))
			srv.Stop()
			<-held.Done()
			require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
			_ = hold.Unlock(t.Context())
		},
	}
	type subject struct {
		srv *redistest.Server
		rdb *redis.Client
	}
	subjects := make(map[string]subject)
	for name := range uses {
		srv := newServer(t)
		rdb := srv.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Second })
		require.NoError(t, rdb.Ping(t.Context()).Err())
		subjects[name] = subject{srv, rdb}
	}
	before := goleak.IgnoreCurrent()
	t.Run("all", func(t *testing.T) {
		for name, s := range subjects {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c, err := rlock.New(s.rdb, &rlock.Options{LeaseTime: lease, UnlockTimeout: 100 * time.Millisecond})
				require.NoError(t, err)
				uses[name](t, s.srv, c)
				require.NoError(t, closeSoon(c))
			})
		}
	})
	goleak.VerifyNone(t, before, redistest.Dials)
}

// wait has c wait for lock "w", and returns a hold of c's lock "a".
func wait(t *testing.T, srv *redistest.Server, c *rlock.Client) *rlock.Hold {
	t.Helper()
	rdb := srv.Client(t)
	require.NoError(t, rdb.HSet(t.Context(), "w", "somebody:1", 1).Err())
	ctx, cancel := context.WithCancel(t.Context())
	done := async(func() error { _, _, err := c.NewLock("w").Lock(ctx); return err })
	awaitListener(t, rdb, "w")
	cancel()
	require.ErrorIs(t, <-done, rlock.ErrNotAcquired)
	_, hold := lock(t, t.Context(), c.NewLock("a"))
	return hold
}

// What is left on the server cannot be released by a client of go-redis that is closed: Close
// does not wait for the end of its lease.
func TestCloseBehindTheRedisClient(t *testing.T) {
	srv := newServer(t)
	holder := newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), holder.NewLock("b"))
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	c, err := rlock.New(rdb, &rlock.Options{LeaseTime: time.Hour})
	require.NoError(t, err)
	mine, own := lock(t, t.Context(), c.NewLock("a"))
	waiting := make(chan error, 1)
	go func() { waiting <- errOf(c.NewLock("b").Lock(t.Context())) }() // has a ticket
	queued(t, srv, "b", 1)

	require.NoError(t, rdb.Close())
	require.ErrorIs(t, own.Unlock(mine), rlock.ErrUnavailable)
	require.ErrorIs(t, <-waiting, rlock.ErrUnavailable)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	require.NoError(t, c.Close(ctx))
	require.NoError(t, hold.Unlock(held))
}

func TestClosedClient(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	c := clientOn(t, rdb, nil)
	mu := c.NewLock("a")
	_, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("b"))
	require.NoError(t, closeSoon(c))
	for _, mu := range []*rlock.Lock{mu, c.NewLock("b")} {
		for name, call := range methods(mu) {
			t.Run(mu.Name()+"/"+name, func(t *testing.T) {
				require.Empty(t, sent(t, srv, func() {
					err := call(t.Context())
					require.ErrorIs(t, err, rlock.ErrClosed)
					require.ErrorContains(t, err, `"`+mu.Name()+`"`)
				}))
			})
		}
	}
	require.NoError(t, closeSoon(c), "a second Close")
	require.NoError(t, rdb.Ping(t.Context()).Err(), "the Redis client is its owner's to close")
	require.NoError(t, hold.Unlock(t.Context()))
}

func TestCloseUntilContextEnds(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	log := &logBuffer{}
	c, err := rlock.New(rdb, &rlock.Options{LeaseTime: time.Minute, Logger: log.logger()})
	require.NoError(t, err)
	held, hold := lock(t, t.Context(), c.NewLock("a"))

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Close(short), context.DeadlineExceeded)
	require.ErrorIs(t, context.Cause(held), rlock.ErrClosed)

	require.Equal(t, 1, holds(t, rdb, "a"), "what is left ends with its lease")
	_ = hold.Unlock(held) // whether that is a loss is not decided here
	require.Zero(t, holds(t, rdb, "a"))
	require.NoError(t, closeSoon(c))
	require.Contains(t, log.String(), "the client was closed before the lock was unlocked")
	require.NotContains(t, log.String(), "lease lost\"")
}

// Close succeeds under a context that has ended, if nothing is held: a server that ends
// because of a signal often has no other context.
func TestCloseWithAnEndedContext(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	for name, use := range map[string]func(*rlock.Client){
		"never used": func(*rlock.Client) {},
		"unlocked": func(c *rlock.Client) {
			held, hold := lock(t, t.Context(), c.NewLock("a"))
			require.NoError(t, hold.Unlock(held))
		},
		"has listened": func(c *rlock.Client) {
			held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("b"))
			_, _, err := c.NewLock("b").TryLockFor(t.Context(), time.Second)
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			require.NoError(t, hold.Unlock(held))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := rlock.New(srv.Client(t), nil)
			require.NoError(t, err)
			use(c)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			redistest.Eventually(t, "nothing is under way, and Close succeeds", func() bool { return c.Close(ctx) == nil })
		})
	}
}
