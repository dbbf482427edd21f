package rlock_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// tester is a *testing.T or a *rapid.T.
type tester interface {
	require.TestingT
	Helper()
}

// newServer runs a redis-server until the test ends.
func newServer(tb testing.TB, args ...string) *redistest.Server {
	tb.Helper()
	return redistest.Start(tb, args...)
}

// newClient returns a client of srv. The test has to unlock everything: the
// client is closed when the test ends, and that must succeed.
func newClient(tb testing.TB, srv *redistest.Server, opts *rlock.Options) *rlock.Client {
	tb.Helper()
	return clientOn(tb, srv.Client(tb), opts)
}

// clientOn is newClient on a given connection.
func clientOn(tb testing.TB, rdb redis.UniversalClient, opts *rlock.Options) *rlock.Client {
	tb.Helper()
	c, err := rlock.New(rdb, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, closeSoon(c)) })
	return c
}

// closeSoon closes c; the error of a Close that takes longer than half a minute matches
// context.DeadlineExceeded. What is released in the background may take two leases.
func closeSoon(c *rlock.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return c.Close(ctx)
}

type unlocker interface {
	Unlock(ctx context.Context) error
}

// locker is a Lock or a MultiLock, with its type of hold.
type locker[H unlocker] interface {
	Lock(ctx context.Context) (context.Context, H, error)
	TryLock(ctx context.Context) (context.Context, H, error)
	TryLockFor(ctx context.Context, wait time.Duration) (context.Context, H, error)
}

// lock locks mu, which must be possible within half a minute.
func lock[H unlocker](t tester, ctx context.Context, mu locker[H]) (context.Context, H) {
	t.Helper()
	held, hold, err := mu.TryLockFor(ctx, 30*time.Second)
	require.NoError(t, err)
	return held, hold
}

// hgetall returns what the server holds under key.
func hgetall(t tester, rdb redis.UniversalClient, key string) map[string]string {
	t.Helper()
	fields, err := rdb.HGetAll(context.Background(), key).Result()
	require.NoError(t, err)
	return fields
}

// holds returns the hold count on the server, 0 if the lock is free. There must
// be no other field than that of the owner.
func holds(t tester, rdb redis.UniversalClient, key string) int {
	t.Helper()
	fields := hgetall(t, rdb, key)
	require.LessOrEqual(t, len(fields), 1, "%v", fields)
	for owner, value := range fields {
		require.Regexp(t, `^[0-9a-v]{20}:[1-9][0-9]*$`, owner)
		n, err := strconv.Atoi(value)
		require.NoError(t, err)
		require.Positive(t, n)
		return n
	}
	return 0
}

// lockKeys returns all keys but the records of clients, which say who held or waited for
// a moment: they stay until the next record, or Close.
func lockKeys(tb testing.TB, rdb redis.UniversalClient) []string {
	tb.Helper()
	keys, err := rdb.Keys(context.Background(), "*").Result()
	require.NoError(tb, err)
	return slices.DeleteFunc(keys, isRecord)
}

// isRecord reports whether a key is that of a record, or of the list of records.
func isRecord(key string) bool { return strings.HasPrefix(key, "rlock_client") }

// isProbe reports whether a command is one of those that clients send now and then, to find
// out whether their subscription is sound.
func isProbe(c redistest.Command) bool {
	name := strings.ToLower(c.Args[0])
	channel := 1
	if name == "eval" { // around the publication
		channel = 3
	}
	return slices.Contains([]string{"eval", "publish", "spublish"}, name) && strings.Contains(c.Args[channel], "rlock-probe:")
}

// sent returns the names of the commands that clients send while f runs, less
// those that only set up a connection, or find out whether one is sound, and those that
// tell who waits on a slow machine.
func sent(tb testing.TB, srv *redistest.Server, f func()) []string {
	tb.Helper()
	m := srv.Monitor(tb)
	defer m.Stop()
	f()
	var names []string
	for _, c := range m.Commands() {
		name := strings.ToLower(c.Args[0])
		if slices.ContainsFunc(c.Args, isRecord) || isProbe(c) {
			continue
		}
		if c.Client != "lua" && !slices.Contains([]string{"hello", "client", "auth"}, name) {
			names = append(names, name)
		}
	}
	return names
}
