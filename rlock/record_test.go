package rlock_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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

// heldAs returns what the record of the only client that has one tells of lock a; nil if
// nothing.
func heldAs(t *testing.T, f *fakeRedis) *record.Entry {
	t.Helper()
	synctest.Wait()
	for _, id := range listed(t, f.rdb, "") {
		r, _ := readRecord(t, f.rdb, "", id)
		if e := entry(r, record.Holds, "a"); e != nil {
			return e
		}
	}
	return nil
}

// A hold is told of when it is 10 s old, or in the ten seconds after, however long its
// lease is.
func TestFakeTimeRecordOfALongLease(t *testing.T) {
	for _, lease := range []time.Duration{30 * time.Second, time.Minute, 10 * time.Minute, 24 * time.Hour} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			held, hold := lock(t, t.Context(), f.recordedClient(t, &rlock.Options{LeaseTime: lease}).NewLock("a"))
			time.Sleep(21 * time.Second)
			require.NotNil(t, heldAs(t, f), "a lease of %v", lease)
			require.NoError(t, hold.Unlock(held))
		})
	}
}

// The purpose is that of the Lock which was locked, whoever the client has asked for, or
// has kept it from.
func TestFakeTimeRecordTellsTheHoldersPurpose(t *testing.T) {
	t.Run("kept", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			c := f.recordedClient(t, nil)
			first := c.NewLock("a", rlock.WithRetention(time.Hour), rlock.WithPurpose("first"))
			for range 2 {
				held, hold := lock(t, t.Context(), first)
				synctest.Wait()
				require.NoError(t, hold.Unlock(held))
			}
			held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithRetention(time.Hour), rlock.WithPurpose("second")))
			time.Sleep(45 * time.Second)
			require.Equal(t, "second", heldAs(t, f).Purpose)
			require.NoError(t, hold.Unlock(held))
		})
	})
	t.Run("asked for by a waiter who has left", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			other, otherHold := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
			c := f.recordedClient(t, nil)
			ctx, leave := context.WithCancel(t.Context())
			first := begin(ctx, c.NewLock("a", rlock.WithPurpose("first")))
			time.Sleep(500 * time.Millisecond)
			second := begin(t.Context(), c.NewLock("a", rlock.WithPurpose("second")))
			time.Sleep(500 * time.Millisecond)
			leave()
			<-first.done
			require.Error(t, first.err)
			require.NoError(t, otherHold.Unlock(other))
			held, hold := second.acquired(t)
			time.Sleep(40 * time.Second)
			require.Equal(t, "second", heldAs(t, f).Purpose)
			require.NoError(t, hold.Unlock(held))
		})
	})
}

// A lock that its client has kept since the last renewal, and that nobody holds, is told as
// kept; and no longer when it is held again.
func TestRecordOfAKeptLock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb, ctx := srv.Client(t), t.Context()
	c := newClient(t, srv, &rlock.Options{LeaseTime: 15 * time.Second})
	mu := c.NewLock("a", rlock.WithRetention(time.Hour), rlock.WithPurpose("partition 7"))
	kept(t, srv, mu)
	id := awaitRecord(t, rdb, "", record.Keeps, "a")
	r, ttl := readRecord(t, rdb, "", id)
	e := entry(r, record.Keeps, "a")
	require.Equal(t, "partition 7", e.Purpose)
	require.GreaterOrEqual(t, r.Age(*e, ttl), 5*time.Second, "a third of the lease")
	require.Nil(t, entry(r, record.Holds, "a"))

	require.NoError(t, mu.Do(ctx, func(context.Context) error {
		require.Equal(t, id, awaitRecord(t, rdb, "", record.Holds, "a"))
		r, _ := readRecord(t, rdb, "", id)
		require.Nil(t, entry(r, record.Keeps, "a"))
		return nil
	}))
}

// In a cluster the record and the list are on different nodes.
func TestRecordInACluster(t *testing.T) {
	redistest.Long(t, "starts a cluster")
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	rdb := cluster.Client(t)
	c, err := rlock.New(rdb, &rlock.Options{LeaseTime: 3 * time.Second})
	require.NoError(t, err)
	held, hold := lock(t, t.Context(), c.NewLock("a"))
	id := awaitRecord(t, rdb, "", record.Holds, "a")
	r, ttl := readRecord(t, rdb, "", id)
	require.NotEmpty(t, r.Host)
	require.Positive(t, ttl)
	require.NoError(t, hold.Unlock(held))
	require.NoError(t, closeSoon(c))
	require.Empty(t, listed(t, rdb, ""))
	require.Zero(t, rdb.Exists(t.Context(), record.Key("", id)).Val())
}

// A client writes no record as long as its holds are short and it does not wait. An
// anonymous client never writes one.
func TestNoRecord(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	quick := newClient(t, srv, nil)
	renewed := make(chan struct{}, 100)
	hidden := newClient(t, srv, &rlock.Options{
		LeaseTime: 10 * time.Second, Identity: rlock.Anonymous(),
		Trace: rlock.Trace{Renewed: func(rlock.Renewal) { renewed <- struct{}{} }},
	})
	_, hold := lock(t, t.Context(), hidden.NewLock("a"))
	waiting := lockAsync(t.Context(), hidden.NewLock("a"))
	m := srv.Monitor(t)
	// Others tell of a hold and a wait like that. Each name is new, because on a busy machine a late copy of a request may
	// have acquired the last one again.
	for n, began := 0, time.Now(); len(renewed) < 2; n++ {
		require.Less(t, time.Since(began), time.Minute, "two renewals")
		require.NoError(t, quick.NewLock(fmt.Sprint("quick", n)).Do(t.Context(), func(context.Context) error { return nil }))
		time.Sleep(5 * time.Millisecond) // the monitor keeps every command
	}
	for _, c := range m.Commands() {
		require.False(t, slices.ContainsFunc(c.Args, isRecord), "%v", c.Args)
	}
	require.NoError(t, hold.Unlock(t.Context()))
	await(t, waiting, 10*time.Second)
}

// A purpose is shown and has no other effect: locks of one name are one lock, whatever
// their purposes are.
func TestPurposeChangesNothing(t *testing.T) {
	c := newClient(t, newServer(t), nil)
	for _, purpose := range []string{"", strings.Repeat("x", 1<<20), "\xff\x1b[2J\n"} {
		held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithPurpose(purpose)))
		_, nested := lock(t, held, c.NewLock("a", rlock.WithPurpose("other")))
		require.Equal(t, hold.Owner(), nested.Owner())
		require.NoError(t, nested.Unlock(held))
		require.NoError(t, hold.Unlock(held))
	}
}

// recordWrites returns when the server got requests about records, less those by scripts.
func (f *fakeRedis) recordWrites() (at []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.log {
		if r.args[0] == "evalsha" && slices.ContainsFunc(r.args, isRecord) {
			at = append(at, r.at)
		}
	}
	return at
}

// However much a client holds and waits for, it makes two requests in ten seconds; and none
// when it has neither.
func TestFakeTimeRecordsAreCheap(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.recordedClient(t, nil)
		var unlock []func()
		for i := range 100 {
			held, hold := lock(t, t.Context(), c.NewLock(fmt.Sprint("held", i)))
			unlock = append(unlock, func() { require.NoError(t, hold.Unlock(held)) })
		}
		f.HSet("busy", "other:1", "1") // has no end
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		waiting := lockAsync(ctx, c.NewLock("busy"))
		time.Sleep(time.Minute + 500*time.Millisecond)
		at := f.recordWrites()
		require.Len(t, at, 2*6, "%v", at)
		for i := 2; i < len(at); i++ {
			require.GreaterOrEqual(t, at[i]-at[i-2], 10*time.Second)
		}
		ids := listed(t, f.rdb, "")
		require.Len(t, ids, 1)
		r, _ := readRecord(t, f.rdb, "", ids[0])
		require.Len(t, r.Entries, 101)

		for _, f := range unlock {
			f()
		}
		cancel()
		require.Error(t, (<-waiting).err)
		time.Sleep(time.Hour)
		require.Len(t, f.recordWrites(), len(at)+3*2, "as long as busy was hot in the last 20 s; then the record is removed")
		require.Equal(t, []string{"busy"}, f.Keys())
	})
}

// A record names a lock as held after a third of its lease, but ten seconds at most, also
// if the lease is fixed. When a lock was handed on in memory, the record has the purpose
// of the present holder.
func TestFakeTimeWhatIsLong(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		tell := func(c *rlock.Client, d time.Duration, what record.What, name string) *record.Entry {
			t.Helper()
			time.Sleep(d - f.now())
			synctest.Wait()
			for _, id := range listed(t, f.rdb, "") {
				r, ttl := readRecord(t, f.rdb, "", id)
				if e := entry(r, what, name); e != nil {
					require.Less(t, max(r.Age(*e, ttl)-f.now(), f.now()-r.Age(*e, ttl)), time.Minute)
					return e
				}
			}
			return nil
		}
		c := f.recordedClient(t, &rlock.Options{LeaseTime: 12 * time.Second})
		held, hold := lock(t, t.Context(), c.NewLock("renewed"))
		require.Nil(t, tell(c, 3500*time.Millisecond, record.Holds, "renewed"))
		require.NotNil(t, tell(c, 6*time.Second, record.Holds, "renewed"))
		require.NoError(t, hold.Unlock(held))
		require.Nil(t, tell(c, 20*time.Second, record.Holds, "renewed"))

		held, hold = lock(t, t.Context(), c.NewLock("fixed", rlock.WithoutRenewal(), rlock.WithLeaseTime(10*time.Minute)))
		require.Nil(t, tell(c, 29*time.Second, record.Holds, "fixed"))
		require.NotNil(t, tell(c, 32*time.Second, record.Holds, "fixed"))
		require.NoError(t, hold.Unlock(held))

		held, hold = lock(t, t.Context(), c.NewLock("passed", rlock.WithPurpose("first")))
		next := lockAsync(t.Context(), c.NewLock("passed", rlock.WithPurpose("second")))
		e := tell(c, 52*time.Second, record.Waits, "passed")
		require.Equal(t, "second", e.Purpose)
		require.Equal(t, "first", tell(c, 52*time.Second, record.Holds, "passed").Purpose)
		require.NoError(t, hold.Unlock(held))
		g := <-next
		require.NoError(t, g.err)
		require.Equal(t, "second", tell(c, 70*time.Second, record.Holds, "passed").Purpose)
		require.Nil(t, tell(c, 70*time.Second, record.Waits, "passed"))
		require.NoError(t, g.hold.Unlock(g.held))
	})
}

// The record is written anew after FLUSHALL, and whatever a server does that is down or
// hangs, no lock waits for that and Close comes back.
func TestFakeTimeRecordsOnABadServer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.recordedClient(t, nil)
		held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithLeaseTime(10*time.Minute)))
		waiting := lockAsync(t.Context(), c.NewLock("a"))
		time.Sleep(12 * time.Second)
		require.Len(t, listed(t, f.rdb, ""), 1)
		key := record.Key("", listed(t, f.rdb, "")[0])
		f.Del(key)
		f.Del(record.List(""))
		time.Sleep(11 * time.Second)
		require.Len(t, listed(t, f.rdb, ""), 1)
		require.True(t, f.Exists(key))

		f.deafDown.Store(true)
		time.Sleep(time.Minute)
		require.NoError(t, held.Err())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		start := time.Now()
		require.Error(t, c.Close(ctx))
		require.Less(t, time.Since(start), 2*time.Second)
		cancel()
		require.Error(t, (<-waiting).err)
		f.heal()
		_ = hold.Unlock(held)
		time.Sleep(2 * record.Lasts)
		require.NotContains(t, f.Keys(), key)
	})
}

// Close takes the record away. What was lost before stays told for half a minute; what Close
// itself ends is no news.
func TestFakeTimeRecordAfterClose(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		closeWith := func(c *rlock.Client, held context.Context, hold *rlock.Hold) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorContains(t, c.Close(ctx), "still held")
			_ = hold.Unlock(held)
		}
		c := f.recordedClient(t, nil)
		lost, _ := lock(t, t.Context(), c.NewLock("lost"))
		held, hold := lock(t, t.Context(), c.NewLock("held"))
		f.Del("lost")
		<-lost.Done()
		closeWith(c, held, hold)
		ids := listed(t, f.rdb, "")
		require.Len(t, ids, 1)
		r, _ := readRecord(t, f.rdb, "", ids[0])
		require.Len(t, r.Entries, 1, "%v", r.Entries)
		require.NotNil(t, entry(r, record.Lost, "lost"))

		c = f.recordedClient(t, nil)
		held, hold = lock(t, t.Context(), c.NewLock("other"))
		closeWith(c, held, hold)
		require.Equal(t, ids, listed(t, f.rdb, ""))
	})
}

// A client that is to tell promptly tells of each hold at once, also if it has just told that it
// waits.
func TestFakeTimePromptRecords(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		tells := func(what record.What, name string) bool {
			synctest.Wait()
			ids := listed(t, f.rdb, "")
			if len(ids) == 0 {
				return false
			}
			r, _ := readRecord(t, f.rdb, "", ids[0])
			return entry(r, what, name) != nil
		}
		c := f.recordedClient(t, &rlock.Options{Identity: rlock.Identity{Prompt: true}})
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		require.True(t, tells(record.Holds, "a"))
		require.NoError(t, hold.Unlock(held))
		time.Sleep(time.Minute)
		require.Empty(t, listed(t, f.rdb, ""))

		f.HSet("busy", "other:1", "1")
		waiting := lockAsync(t.Context(), c.NewLock("busy"))
		time.Sleep(1500 * time.Millisecond)
		require.True(t, tells(record.Waits, "busy"))
		f.Del("busy")
		g := <-waiting
		require.NoError(t, g.err)
		time.Sleep(time.Second)
		require.True(t, tells(record.Holds, "busy"))
		require.NoError(t, g.hold.Unlock(g.held))
	})
}
