package rlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// The application has all connections for single commands. A lock is acquired and released
// all the same, by those for pipelines, also if only one goroutine asks.
func TestNoConnectionForSingleCommands(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	for name, obeys := range map[string]bool{"default": false, "ContextTimeoutEnabled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			small := srv.Client(t, func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled = 1, obeys })
			mu := clientOn(t, small, nil).NewLock(name)
			for range 2 { // the answers are fast
				held, hold := lock(t, t.Context(), mu)
				require.NoError(t, hold.Unlock(held))
			}
			application := small.Conn()
			defer func() { require.NoError(t, application.Close()) }()
			require.NoError(t, application.Ping(t.Context()).Err())
			for range 2 {
				held, hold := lock(t, t.Context(), mu)
				inner, nested := lock(t, held, mu)
				require.NoError(t, nested.Unlock(inner))
				require.NoError(t, hold.Unlock(held))
			}
		})
	}
}

// Many waiters with a deadline each, on a busy lock of a server that is well.
func TestBusyIsNotUnavailable(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	start := time.Now()
	errs := make(chan error, 500)
	for range cap(errs) {
		go func() {
			_, _, err := mu.TryLockFor(t.Context(), time.Until(start.Add(2*time.Second)))
			errs <- err
		}()
	}
	wrong := make(map[string]int)
	for range cap(errs) {
		if err := <-errs; !errors.Is(err, rlock.ErrNotAcquired) || errors.Is(err, rlock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			wrong[err.Error()]++
		}
	}
	took := time.Since(start)
	require.NoError(t, hold.Unlock(held))
	require.Empty(t, wrong)
	require.Less(t, took, 2*time.Second+slack)
}
