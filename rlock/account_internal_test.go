package rlock

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A grant is lost before its call is counted: the acquisition has an end nevertheless, and one only.
func TestFakeTimeLostBeforeItIsCounted(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, _ := newFake(t)
		call := l.starts(t.Context())
		g, err := call.acquire()
		require.NoError(t, err)
		held, hold, err := g.take(t.Context(), l, true)
		require.NoError(t, err)
		time.Sleep(time.Second)
		hold.grant.lose(errGone)
		require.NoError(t, call.ends(t.Context(), hold, nil))
		require.ErrorIs(t, hold.Unlock(held), ErrLeaseLost)
		s := c.Stats()
		require.EqualValues(t, 1, s.Kinds[0].Acquired())
		require.EqualValues(t, 1, s.Kinds[0].Lost)
		require.Zero(t, s.Kinds[0].Released)
		require.EqualValues(t, 1, s.Losses[LossGone])
		require.Equal(t, time.Second, s.Holds.Sum)
	})
}

// The difference between the two is what a Lock and an Unlock add for being counted, with
// no Trace set: a call looked at the clock when it began before anything was counted.
func BenchmarkAccounting(b *testing.B) {
	b.Run("counted", func(b *testing.B) { benchmarkCounted(b, nil) })
	b.Run("grouped", func(b *testing.B) { benchmarkCounted(b, NameGroup) })
	b.Run("clock", func(b *testing.B) {
		var began time.Time
		for b.Loop() {
			began = time.Now()
		}
		_ = began
	})
}

// A group is found when the lock is made, not when it is used.
func BenchmarkNewLock(b *testing.B) {
	for name, group := range map[string]func(string) string{
		"no groups": nil, "constant": func(string) string { return "a" }, "NameGroup": NameGroup,
	} {
		b.Run(name, func(b *testing.B) {
			client, err := New(redis.NewClient(&redis.Options{Addr: "localhost:1"}), &Options{Group: group})
			if err != nil {
				b.Fatal(err)
			}
			defer client.server.RDB.Close()
			b.ReportAllocs()
			for b.Loop() {
				client.NewLock("order:4711")
			}
		})
	}
}

func benchmarkCounted(b *testing.B, group func(string) string) {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	defer rdb.Close()
	client, err := New(rdb, &Options{Group: group})
	if err != nil {
		b.Fatal(err)
	}
	l := client.NewLock("a")
	o := new(candidate).init(l)
	g := o.first.init(l, o, time.Now(), l.terms.lease, 0, run{})
	ctx, hold := g.derive(b.Context(), new(Hold), l, nil)
	b.ReportAllocs()
	for b.Loop() {
		c := l.starts(ctx)
		g.began = c.since // as one that was held, and passed on
		_ = c.ends(ctx, hold, nil)
		hold.ends = true
		hold.ended(ctx, c.since, nil)
	}
}

// The numbers are for counters, the names for whoever reads them: dashboards know them.
func TestEachNumberHasItsName(t *testing.T) {
	names := map[kindNumber]Kind{
		plainKind: "plain", fairKind: "fair", readKind: "read", writeKind: "write", quorumKind: "quorum", multiKind: "multi",
	}
	require.Len(t, names, int(kinds))
	for n, name := range names {
		require.Equal(t, name, n.name())
	}
	calls := map[outcomeNumber]Outcome{
		acquiredOutcome: "acquired", nestedOutcome: "nested", handedOffOutcome: "handed_off", busyOutcome: "busy",
		canceledOutcome: "canceled", unavailableOutcome: "unavailable", errorOutcome: "error",
	}
	require.Len(t, calls, int(outcomes))
	for n, name := range calls {
		require.Equal(t, name, n.name())
	}
	losses := map[lossNumber]LossCause{gone: "gone", lapsed: "lapsed", fixedOver: "fixed", limitOver: "limit", closedUnder: "closed"}
	require.Len(t, losses, int(lossCauses))
	for n, name := range losses {
		require.Equal(t, name, n.name())
	}
}

// A goroutine that waits behind another of its client keeps a stack of the first size, 2 KB: there may be
// very many of them.
func TestStackOfAWaiter(t *testing.T) {
	if redistest.RaceEnabled {
		t.Skip("the race detector needs more")
	}
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onAcquire = func(context.Context, int) (lua.Reply, error) { return lua.Reply{TTL: time.Hour, Holder: "x:1"}, nil }
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		wait := func() {
			_, _, err := l.Lock(ctx)
			assert.ErrorIs(t, err, ErrNotAcquired)
		}
		stacks := func() uint64 {
			synctest.Wait()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.StackInuse
		}
		all.Go(wait)
		before := stacks()
		const waiters = 4000
		for range waiters {
			all.Go(wait)
		}
		require.Less(t, float64(stacks()-before)/waiters, 3000.0)
		leave()
		all.Wait()
	})
}

// A later attempt may overtake a hanging one, and the window counts from the
// attempt that was answered.
func TestFakeTimeWindowCountsFromTheAnsweredAttempt(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onAcquire = func(ctx context.Context, n int) (lua.Reply, error) {
			if n == 1 {
				return lua.Reply{}, hang(ctx)
			}
			time.Sleep(700 * time.Millisecond)
			return lua.Reply{Acquired: true}, nil
		}
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		sent := f.start.Add(f.times("acquire")[1])
		require.Equal(t, sent.Add(700*time.Millisecond), time.Now())
		require.Equal(t, sent.Add(30*time.Second-302*time.Millisecond), hold.Until())
		calls := f.calls("acquire")
		require.Equal(t, calls[0].owner, calls[1].owner, "one grant, one owner")
		require.NoError(t, hold.Unlock(held))

		sleepLong(time.Minute)
		at := f.times("release")
		require.Len(t, at, 8, "the first attempt may still arrive")
		require.Equal(t, time.Second, at[1]-at[0])
		require.Equal(t, 31*time.Second, at[7]-at[0])
	})
}

// The client converts a time of the server's clock to its own. The result is never later
// than the true time, however long requests take, if the rates of the clocks differ by no
// more than 1 %.
func TestFakeTimeReckoning(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const us = int64(time.Microsecond)
		sent := time.Now()
		m := moment{sent, 5_000_000}
		for _, tt := range []struct {
			after time.Duration // by the server's clock
			want  time.Duration
			ok    bool
		}{
			{0, 0, true},
			{2 * time.Millisecond, 0, true},
			{time.Second, 988 * time.Millisecond, true},
			{30 * time.Second, 30*time.Second - 302*time.Millisecond, true},
			{30*time.Second + time.Microsecond, 0, false},
			{-time.Microsecond, 0, false},
		} {
			at, ok := m.before(m.there + int64(tt.after)/us)
			require.Equal(t, tt.ok, ok, tt.after)
			if ok {
				require.Equal(t, tt.want, at.Sub(sent), tt.after)
			}
		}
		_, ok := moment{}.before(5_000_000)
		require.False(t, ok, "nothing is known of the server's clock")
	})
}
