package schedulers_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host returns the client of one host.
func host(t *testing.T, s *redistest.Server) *rlock.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	locks, err := rlock.New(rdb, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, locks.Close(ctx))
		require.NoError(t, rdb.Close())
	})
	return locks
}

// fires are those of a second that were run.
type fires struct {
	begun atomic.Int64
	mu    sync.Mutex // guards ran
	ran   []time.Time
}

func (f *fires) add(fire time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ran = append(f.ran, fire)
}

// note is the work of a job.
func (f *fires) note(_ context.Context, fire time.Time) error {
	f.add(fire)
	return nil
}

// await waits for n fires: each is a second after the one before.
func (f *fires) await(t *testing.T, n int) {
	t.Helper()
	redistest.Eventually(t, "the fires", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.ran) >= n
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fire := range f.ran[1:] {
		require.Equal(t, time.Second, fire.Sub(f.ran[i]), "%v", f.ran)
	}
}
