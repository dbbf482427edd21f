package rlock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
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
