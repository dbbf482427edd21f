package schedulers_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host returns the client of one host.
func host(t *testing.T, s *redistest.Server) *rlock.Client {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	locks, err := rlock.New(rdb, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, locks.Close(context.Background()))
		require.NoError(t, rdb.Close())
	})
	return locks
}
