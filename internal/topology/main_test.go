package topology

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})          // of the servers that the tests kill
	_ = flag.Set("test.parallel", "3") // unless the command line says otherwise: they do little but wait
	goleak.VerifyTestMain(m, redistest.Dials)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// long skips what takes minutes, unless it is asked for.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("RLOCK_TOPOLOGY") == "" {
		t.Skip("takes minutes: set RLOCK_TOPOLOGY=1")
	}
}

// prompt is how soon a waiter must have a lock that is free.
const prompt = 2 * time.Second

// clientOn returns a client that must close when the test ends: everything is
// unlocked by then.
func clientOn(tb testing.TB, rdb redis.UniversalClient, opts *rlock.Options) *rlock.Client {
	tb.Helper()
	c, err := rlock.New(rdb, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(tb, c.Close(ctx))
	})
	return c
}

// lock takes a lock that must be free, or become so.
func lock(tb testing.TB, ctx context.Context, mu *rlock.Lock) (context.Context, *rlock.Hold) {
	tb.Helper()
	held, hold, err := mu.TryLockFor(ctx, 10*time.Second)
	require.NoError(tb, err)
	return held, hold
}

// wait begins to wait for a lock. The channel gets the time at which it was
// acquired; it is unlocked then.
func wait(tb testing.TB, mu *rlock.Lock) <-chan time.Time {
	got := make(chan time.Time, 1)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		held, hold, err := mu.Lock(ctx)
		if err != nil {
			return
		}
		got <- time.Now()
		_ = hold.Unlock(held)
	}()
	return got
}

// served requires that a waiter has got the lock, and soon after since.
func served(tb testing.TB, got <-chan time.Time, since time.Time) {
	tb.Helper()
	servedWithin(tb, got, since, prompt)
}

func servedWithin(tb testing.TB, got <-chan time.Time, since time.Time, limit time.Duration) {
	tb.Helper()
	select {
	case at := <-got:
		tb.Logf("the waiter had the lock after %v", at.Sub(since).Round(time.Millisecond))
		assert.Less(tb, at.Sub(since), limit)
	case <-time.After(10 * time.Second):
		require.Fail(tb, "the waiter does not get the lock")
	}
}
