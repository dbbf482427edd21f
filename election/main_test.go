package election_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestMain(m *testing.M) {
	redistest.RunChild(map[string]func(args []string){"candidate": candidate})
	_ = flag.Set("test.parallel", "8") // most tests wait for a lease to end
	logging.Disable()
	goleak.VerifyTestMain(m, redistest.Dials)
}

// newLocks returns a client of a server or of a proxy. It is closed when the test ends, and that must
// succeed.
func newLocks(tb testing.TB, addr string, lease time.Duration) *rlock.Client {
	tb.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	return locksOn(tb, rdb, &rlock.Options{LeaseTime: lease})
}

func locksOn(tb testing.TB, rdb redis.UniversalClient, opts *rlock.Options) *rlock.Client {
	tb.Helper()
	locks, err := rlock.New(rdb, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(tb, locks.Close(ctx))
		require.NoError(tb, rdb.Close())
	})
	return locks
}

// campaign leads, which must be possible within half a minute.
func campaign(tb testing.TB, ctx context.Context, e *election.Election) (context.Context, *election.Term) {
	tb.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer time.AfterFunc(30*time.Second, cancel).Stop()
	tb.Cleanup(cancel)
	held, term, err := e.Campaign(ctx)
	require.NoError(tb, err)
	return held, term
}
