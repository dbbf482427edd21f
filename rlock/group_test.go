package rlock_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestNameGroup(t *testing.T) {
	for name, want := range map[string]string{
		"":                  "",
		"*":                 "*",
		"leader":            "leader",
		"order:4711":        "order:*",
		"4711":              "*",
		"4711:order":        "*:order",
		"order4711b":        "order*b",
		"invoice20240101":   "invoice*",
		"shop:7:order:4711": "shop:*:order:*",
		"10.0.0.1:6379":     "*.*.*.*:*",
		"user:{550e8400-e29b-41d4-a716-446655440000}:cart": "user:{*}:cart",
		"550E8400-E29B-41D4-A716-446655440000":             "*",
		"a-550e8400-e29b-41d4-a716-446655440000-b":         "a-*-b",
		"abcdefab-abcd-abcd-abcd-abcdefabcdef":             "*",
		"x550e8400-e29b-41d4-a716-446655440000":            "x*e*-e*b-*d*-a*-*",
		"550e8400-e29b-41d4-a716-4466554400001":            "*-e*b-*d*-a*-*",
		"550e8400-e29b-41d4-a716-44665544000":              "*-e*b-*d*-a*-*",
		"550e8400_e29b_41d4_a716_446655440000":             "*_e*b_*d*_a*_*",
		"blob:5f2ab3c4":                                    "blob:*",
		"blob_5F2AB3C4_x":                                  "blob_*_x",
		"blob:abcdefab":                                    "blob:abcdefab", // no digit
		"blob:5f2ab3c":                                     "blob:*f*ab*c",  // too short
		"blob:5f2ab3c4g":                                   "blob:*f*ab*c*g",
		"blob:5f2ab3cg":                                    "blob:*f*ab*cg",
		"blob:x5f2ab3c4":                                   "blob:x*f*ab*c*",
		"decade7":                                          "decade*",
		"d\u00e97":                                         "d\u00e9*",
		"\u00e95f2ab3c4":                                   "\u00e9*f*ab*c*", // part of a word
		"a\xff1":                                           "a\xff*",
	} {
		assert.Equal(t, want, rlock.NameGroup(name), name)
	}
}

// Whatever the name, NameGroup leaves no digit, and adds nothing.
func FuzzNameGroup(f *testing.F) {
	f.Add("user:{550e8400-e29b-41d4-a716-446655440000}:cart7")
	f.Fuzz(func(t *testing.T, name string) {
		group := rlock.NameGroup(name)
		require.NotContains(t, strings.Map(func(r rune) rune {
			if '0' <= r && r <= '9' {
				return '0'
			}
			return r
		}, group), "0")
		require.LessOrEqual(t, len(group), len(name))
	})
}

// The groups of a client add up to all that it has counted, whatever the kind of lock.
func TestFakeTimeGroups(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, ctx := newFakeRedis(t), t.Context()
		c := f.client(t, &rlock.Options{Group: func(name string) string {
			group, _, _ := strings.Cut(name, ":")
			return strings.TrimPrefix(group, "none")
		}})
		require.Nil(t, f.client(t, nil).Stats().Groups)
		require.NotNil(t, c.Stats().Groups)
		require.Empty(t, c.Stats().Groups)

		work := func(mu rlock.Locker, times int) {
			for range times {
				require.NoError(t, mu.Do(ctx, func(context.Context) error { return nil }))
			}
		}
		for i := range 100 {
			work(c.NewLock(fmt.Sprint("order:", i)), 2)
		}
		work(c.NewFairLock("user:1"), 3)
		work(c.NewRWLock("user:2").Reader(), 4)
		work(c.NewLock("none"), 5)
		work(rlock.NewMultiLock(c.NewLock("user:1"), c.NewLock("user:2")), 6)
		work(rlock.NewMultiLock(c.NewLock("user:1"), c.NewLock("order:2")), 7)
		held, hold := lock(t, ctx, c.NewLock("order:1"))
		require.ErrorIs(t, c.NewLock("order:1").TryDo(ctx, func(context.Context) error { return nil }), rlock.ErrNotAcquired)
		require.ErrorIs(t, c.NewLock("").Do(ctx, func(context.Context) error { return nil }), rlock.ErrInvalidOption)

		calls := func(g rlock.GroupStats, o rlock.Outcome) (n int64) {
			for _, k := range g.Kinds {
				n += k.Calls[o]
			}
			return n
		}
		s := c.Stats()
		order := s.Groups["order"]
		require.Len(t, s.Groups, 3)
		require.EqualValues(t, 201, calls(s.Groups["order"], rlock.OutcomeAcquired))
		require.EqualValues(t, 1, calls(s.Groups["order"], rlock.OutcomeBusy))
		require.EqualValues(t, 1, s.Groups["order"].Kinds[0].Held)
		require.EqualValues(t, 202, order.Waits.Count())
		require.EqualValues(t, 200, order.Holds.Count())
		require.EqualValues(t, 3+4+6, calls(s.Groups["user"], rlock.OutcomeAcquired))
		require.EqualValues(t, 5+7, calls(s.Groups[""], rlock.OutcomeAcquired))
		require.EqualValues(t, 1, calls(s.Groups[""], rlock.OutcomeError))
		require.Zero(t, calls(s.Groups["user"], rlock.OutcomeError))

		require.NoError(t, hold.Unlock(held))
		requireGroupsAddUp(t, c.Stats())
	})
}

// requireGroupsAddUp requires that the groups have what all locks have.
func requireGroupsAddUp(t *testing.T, s rlock.Stats) {
	t.Helper()
	add := func(to *rlock.Histogram, h rlock.Histogram) {
		to.Sum += h.Sum
		to.Counts = append(to.Counts, make([]int64, len(h.Counts)-len(to.Counts))...)
		for i, n := range h.Counts {
			to.Counts[i] += n
		}
	}
	var waits, holds rlock.Histogram
	calls, all := make(map[string]int64), make(map[string]int64)
	count := func(to map[string]int64, kinds []rlock.KindStats) {
		for _, k := range kinds {
			for o, n := range k.Calls {
				to[fmt.Sprint(k.Kind, o)] += n
			}
			to[fmt.Sprint(k.Kind, "-released")] += k.Released
			to[fmt.Sprint(k.Kind, "-lost")] += k.Lost
		}
	}
	for _, g := range s.Groups {
		add(&waits, g.Waits)
		add(&holds, g.Holds)
		count(calls, g.Kinds)
	}
	count(all, s.Kinds)
	require.Equal(t, all, calls)
	require.Equal(t, s.Waits, waits)
	require.Equal(t, s.Holds, holds)
}

// 10,000 names make no more groups than Group returns, and the 101st value is "other".
func TestManyGroups(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:1"}) // nothing is sent: the calls are canceled
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	use := func(group func(string) string, names int) rlock.Stats {
		c, err := rlock.New(rdb, &rlock.Options{Group: group})
		require.NoError(t, err)
		var all sync.WaitGroup
		for part := range 4 {
			all.Go(func() {
				for i := part; i < names; i += 4 {
					_, _, err := c.NewLock(fmt.Sprint("order:", i)).Lock(ctx)
					assert.ErrorIs(t, err, context.Canceled)
				}
			})
		}
		all.Wait()
		requireGroupsAddUp(t, c.Stats())
		require.EqualValues(t, names, c.Stats().Kinds[0].Calls[rlock.OutcomeCanceled])
		return c.Stats()
	}
	same := func(name string) string { return name }
	require.Len(t, use(rlock.NameGroup, 10_000).Groups, 1)
	hundred := use(same, 100)
	require.Len(t, hundred.Groups, 100)
	require.NotContains(t, hundred.Groups, "other")
	many := use(same, 10_000)
	require.Len(t, many.Groups, 101)
	require.EqualValues(t, 9900, many.Groups["other"].Kinds[0].Calls[rlock.OutcomeCanceled])
	delete(many.Groups, "other")
	for name, g := range many.Groups {
		require.EqualValues(t, 1, g.Kinds[0].Calls[rlock.OutcomeCanceled], name)
	}
}

// A Group that panics costs no lock, and fills no log. Its text is one that metrics can have.
func TestFakeTimeOddGroups(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, ctx := newFakeRedis(t), t.Context()
		var log bytes.Buffer
		c := f.client(t, &rlock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Group: func(name string) string {
			switch name {
			case "long":
				return strings.Repeat("\u00e9", 1000)
			case "invalid":
				return "a\xff"
			}
			panic("odd " + name)
		}})
		for i := range 10 {
			require.NoError(t, c.NewLock(fmt.Sprint(i)).Do(ctx, func(context.Context) error { return nil }))
		}
		require.NoError(t, c.NewLock("long").Do(ctx, func(context.Context) error { return nil }))
		require.NoError(t, c.NewLock("invalid").Do(ctx, func(context.Context) error { return nil }))
		require.NoError(t, c.Close(ctx))
		s := c.Stats()
		require.Len(t, s.Groups, 3)
		require.EqualValues(t, 10, s.Groups["other"].Kinds[0].Acquired())
		require.Contains(t, s.Groups, strings.Repeat("\u00e9", 128))
		require.Contains(t, s.Groups, "a\uFFFD")
		require.Equal(t, 1, strings.Count(log.String(), "Options.Group panicked"), log.String())
		require.Contains(t, log.String(), "odd 0")
	})
}

// Group is asked once for each lock, and not for each call: it may use the client, and take its time.
func TestFakeTimeGroupIsAskedOnce(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, ctx := newFakeRedis(t), t.Context()
		var c *rlock.Client
		var asked []string
		c = f.client(t, &rlock.Options{Group: func(name string) string {
			if asked = append(asked, name); name == "a" {
				assert.NoError(t, c.NewLock("inner").Do(ctx, func(context.Context) error { return nil }))
				_ = c.Stats()
			}
			return "g"
		}})
		mu := c.NewLock("a")
		for range 3 {
			require.NoError(t, mu.Do(ctx, func(held context.Context) error { return mu.Do(held, func(context.Context) error { return nil }) }))
		}
		held, hold := lock(t, ctx, mu)
		_, joined, err := mu.Join(ctx, hold.Proof())
		require.NoError(t, err)
		require.NoError(t, joined.Unlock(ctx))
		require.NoError(t, hold.Unlock(held))
		require.Equal(t, []string{"a", "inner"}, asked)
		requireGroupsAddUp(t, c.Stats())
	})
}
