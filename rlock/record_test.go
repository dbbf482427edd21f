package rlock_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// listed returns the ids of the clients that have a record.
func listed(t testing.TB, rdb redis.UniversalClient, prefix string) []string {
	t.Helper()
	ids, err := rdb.ZRange(context.Background(), record.List(prefix), 0, -1).Result()
	require.NoError(t, err)
	return ids
}

// readRecord returns the record of a client, and what is left of it.
func readRecord(t testing.TB, rdb redis.UniversalClient, prefix, id string) (record.Record, time.Duration) {
	t.Helper()
	key := record.Key(prefix, id)
	return record.Read(hgetall(t, rdb, key)), rdb.PTTL(context.Background(), key).Val()
}

// entry returns what a record has of a lock.
func entry(r record.Record, what record.What, name string) *record.Entry {
	for i := range r.Entries {
		if e := &r.Entries[i]; e.What == what && e.Name == name {
			return e
		}
	}
	return nil
}

// awaitRecord returns the id of the only client that has a record with such an entry.
func awaitRecord(t testing.TB, rdb redis.UniversalClient, prefix string, what record.What, name string) (id string) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for ; time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for _, id := range listed(t, rdb, prefix) {
			if r, _ := readRecord(t, rdb, prefix, id); entry(r, what, name) != nil {
				return id
			}
		}
	}
	t.Fatalf("nobody tells that it %ss %q", what, name)
	return ""
}

// A record says who holds, who waits, since when and what for. Close removes it at once.
func TestRecord(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb, ctx := srv.Client(t), t.Context()
	opts := rlock.Options{Prefix: "app:", LeaseTime: 9 * time.Second}
	holder, err := rlock.New(srv.Client(t), &opts)
	require.NoError(t, err)
	began := time.Now()
	held, hold := lock(t, ctx, holder.NewLock("a", rlock.WithPurpose("monthly\ninvoices")))
	opts.Identity = rlock.Identity{Host: "web-1", PID: 7, Program: "api", Version: "v2"}
	other, err := rlock.New(srv.Client(t), &opts)
	require.NoError(t, err)
	waiting := lockAsync(ctx, other.NewLock("a", rlock.WithPurpose("mail")))
	again := lockAsync(ctx, other.NewFairLock("a"))

	id := awaitRecord(t, rdb, "app:", record.Holds, "a")
	require.True(t, strings.HasPrefix(hold.Owner(), id+":"))
	r, ttl := readRecord(t, rdb, "app:", id)
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, host, r.Host)
	require.Equal(t, os.Getpid(), r.PID)
	require.Equal(t, filepath.Base(os.Args[0]), r.Program)
	require.LessOrEqual(t, ttl, record.Lasts)
	require.Positive(t, ttl)
	require.LessOrEqual(t, rdb.PTTL(ctx, record.List("app:")).Val(), record.Lasts)
	require.Positive(t, rdb.PTTL(ctx, record.List("app:")).Val())
	e := entry(r, record.Holds, "a")
	require.Equal(t, hold.Owner(), e.Owner)
	require.Equal(t, "plain", e.Kind)
	require.Equal(t, "monthly\ninvoices", e.Purpose)
	require.GreaterOrEqual(t, r.Age(*e, ttl), 3*time.Second, "a third of the lease")
	require.LessOrEqual(t, r.Age(*e, ttl), time.Since(began)+time.Second)

	id = awaitRecord(t, rdb, "app:", record.Waits, "a")
	r, _ = readRecord(t, rdb, "app:", id)
	require.Equal(t, []any{"web-1", 7, "api", "v2"}, []any{r.Host, r.PID, r.Program, r.Version})
	require.Equal(t, 2, entry(r, record.Waits, "a").Count)
	require.Contains(t, []string{"mail", ""}, entry(r, record.Waits, "a").Purpose)
	require.Len(t, listed(t, rdb, "app:"), 2)

	require.NoError(t, hold.Unlock(held))
	require.NoError(t, closeSoon(holder))
	require.Len(t, listed(t, rdb, "app:"), 1)
	first, second := waiting, again
	for range 2 {
		select {
		case g := <-first:
			require.NoError(t, g.err)
			require.NoError(t, g.hold.Unlock(g.held))
			first = nil
		case g := <-second:
			require.NoError(t, g.err)
			require.NoError(t, g.hold.Unlock(g.held))
			second = nil
		}
	}
	require.NoError(t, closeSoon(other))
	require.Empty(t, rdb.Keys(ctx, "*").Val(), "at once")
}

// The record of a killed process ends by itself within 30 s, and so does its place in the
// list; whoever writes takes out those whose time is over.
func TestRecordOfAKilledProcess(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb, ctx := srv.Client(t), t.Context()
	child := redistest.Spawn(t, "holder", srv.Addr(), "a", "3s")
	child.Expect("held ", 10*time.Second)
	id := awaitRecord(t, rdb, "", record.Holds, "a")
	child.Kill()
	for _, key := range []string{record.Key("", id), record.List("")} {
		ttl := rdb.PTTL(ctx, key).Val()
		require.Positive(t, ttl, key)
		require.LessOrEqual(t, ttl, 30*time.Second, key)
	}
	seconds, err := rdb.Time(ctx).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, rdb.ZScore(ctx, record.List(""), id).Val(), float64(seconds.Add(30*time.Second).UnixMilli()))

	require.NoError(t, rdb.ZAdd(ctx, record.List(""), redis.Z{Score: 1, Member: id}).Err(), "as if that time had passed")
	_, hold := lock(t, ctx, newClient(t, srv, &rlock.Options{LeaseTime: 9 * time.Second}).NewLock("b"))
	awaitRecord(t, rdb, "", record.Holds, "b")
	require.NotContains(t, listed(t, rdb, ""), id)
	require.NoError(t, hold.Unlock(ctx))
}

// A loss is told with its cause.
func TestRecordOfALoss(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb, ctx := srv.Client(t), t.Context()
	held, hold := lock(t, ctx, newClient(t, srv, &rlock.Options{LeaseTime: 9 * time.Second}).NewLock("a"))
	require.NoError(t, rdb.Del(ctx, "a").Err())
	<-held.Done()
	id := awaitRecord(t, rdb, "", record.Lost, "a")
	r, _ := readRecord(t, rdb, "", id)
	require.Equal(t, "gone", entry(r, record.Lost, "a").Cause)
	require.Equal(t, hold.Owner(), entry(r, record.Lost, "a").Owner)
	require.EqualValues(t, 1, r.Rates.Lost)
	require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrLeaseLost)
}

// A user without the right to the keys of records has locks as before, and one line in
// the log.
func TestRecordIsRefused(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	admin, ctx := srv.Client(t), t.Context()
	require.NoError(t, admin.Do(ctx, "acl", "setuser", "u", "reset", "on", ">secret", "~job", "~rlock_queue:{job}", "&*", "+@all").Err())
	var log logBuffer
	rdb := srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "u", "secret" })
	c := clientOn(t, rdb, &rlock.Options{LeaseTime: 10 * time.Second, Logger: log.logger()})
	held, hold := lock(t, ctx, c.NewLock("job"))
	waiting := lockAsync(ctx, c.NewLock("job"))
	// On a busy machine there may be other lines: of renewals without an answer in time.
	said := func() string {
		var about strings.Builder
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "record") {
				about.WriteString(line)
			}
		}
		return about.String()
	}
	redistest.Eventually(t, "it is said", func() bool { return said() != "" })
	require.NoError(t, held.Err())
	require.NoError(t, hold.Unlock(held))
	await(t, waiting, 10*time.Second)
	require.NoError(t, c.NewLock("job").Do(ctx, func(context.Context) error { return nil }))
	require.Equal(t, 1, strings.Count(said(), "\n"), log.String())
	require.Contains(t, said(), "NOPERM")
	require.Empty(t, admin.Keys(ctx, "rlock_client*").Val())
}
