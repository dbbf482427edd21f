package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

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
	t.Run("held", func(t *testing.T) {
		c, err := rlock.New(srv.Client(t), nil)
		require.NoError(t, err)
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, c.Close(ctx), context.Canceled)
		_ = hold.Unlock(held)
		require.NoError(t, closeSoon(c))
	})
}
