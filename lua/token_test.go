package lua_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
)

// lockOnce acquires and releases, and returns the token.
func lockOnce(t *testing.T, rdb *redis.Client, owner string) int64 {
	t.Helper()
	reply, err := lua.Acquire(t.Context(), rdb, fenced(owner), time.Minute, 0)
	require.NoError(t, err)
	require.True(t, reply.Acquired)
	_, err = lua.Release(t.Context(), rdb, fenced(owner), lua.Ending{})
	require.NoError(t, err)
	return reply.Token
}

// serverMicros is the server's clock as tokens count it.
func serverMicros(t *testing.T, rdb *redis.Client) int64 {
	t.Helper()
	now, err := rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	return now.UnixMicro()
}

func TestTokensGrow(t *testing.T) {
	counter := fenced("").Counter
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		last := int64(0)
		for i := range 200 {
			switch i {
			case 40: // the counter is evicted, or lost in a failover
				require.NoError(t, rdb.Del(t.Context(), counter).Err())
			case 80: // the clock is set back by an hour: the counter is ahead of it
				ahead := serverMicros(t, rdb) + time.Hour.Microseconds()
				require.NoError(t, rdb.Set(t.Context(), counter, ahead, 0).Err())
				last = ahead
			case 120: // Redisson takes some
				for range 10 {
					n, err := rdb.Incr(t.Context(), counter).Result()
					require.NoError(t, err)
					require.Equal(t, last+1, n)
					last = n
				}
			}
			token := lockOnce(t, rdb, fmt.Sprint("me:", i))
			require.Greater(t, token, last, "grant %d", i)
			last = token
		}
	})
}

func TestTokenIsServerTime(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		before := serverMicros(t, rdb)
		token := lockOnce(t, rdb, "me:1")
		require.GreaterOrEqual(t, token, before)
		require.LessOrEqual(t, token, serverMicros(t, rdb))
	})
}

// Whoever asks again has a token of its own: the earlier one is not known, or was never
// given.
func TestTokenOfRepeatedAcquire(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		last := int64(0)
		for _, ask := range []bool{false, false, true, true} {
			var reply lua.Reply
			var err error
			if ask {
				reply, err = lua.Ask(t.Context(), rdb, fenced("me:1"), time.Minute, lua.Ticket{Claim: claim}, 7)
			} else {
				reply, err = lua.Acquire(t.Context(), rdb, fenced("me:1"), time.Minute, 7)
			}
			require.NoError(t, err)
			require.Greater(t, reply.Token, last)
			require.EqualValues(t, 7, reply.Spare)
			last = reply.Token + reply.Spare
			state, err := lua.Inspect(t.Context(), rdb, fenced(""))
			require.NoError(t, err)
			require.Equal(t, last, state.Token)
		}
		refused, err := lua.Acquire(t.Context(), rdb, fenced("other:1"), time.Minute, 7)
		require.NoError(t, err)
		require.Zero(t, refused.Token)
		require.Zero(t, refused.Spare)
	})
}

// The counter outlives its newest token by far, but one that Redisson made has
// no TTL and keeps none.
func TestCounterTTL(t *testing.T) {
	g := fenced("me:1")
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		for range 2 {
			lockOnce(t, rdb, "me:1")
			ttl, err := rdb.PTTL(t.Context(), g.Counter).Result()
			require.NoError(t, err)
			require.InDelta(t, lua.CounterTTL, ttl, float64(10*time.Second))
			require.NoError(t, rdb.Expire(t.Context(), g.Counter, time.Minute).Err()) // time passes
		}
		require.NoError(t, rdb.Persist(t.Context(), g.Counter).Err())
		lockOnce(t, rdb, "me:1")
		ttl, err := rdb.PTTL(t.Context(), g.Counter).Result()
		require.NoError(t, err)
		require.Negative(t, ttl)
	})
}

// A counter that cannot be counted on grants nothing.
func TestConflictingCounter(t *testing.T) {
	g := fenced("me:1")
	for _, text := range []string{
		"", "garbage", "1.5", "-1", " 1", "1 ", "0x10", "nan", "inf", "-inf", "1e3", "1e400",
		"9223372036854775807", "99999999999999999999999",
	} {
		t.Run("string "+text, func(t *testing.T) {
			onBothServers(t, func(t *testing.T, rdb *redis.Client) {
				require.NoError(t, rdb.Set(t.Context(), g.Counter, text, 0).Err())
				requireConflict(t, rdb, lua.ConflictError{Key: g.Counter, Type: "string"})
				got, err := rdb.Get(t.Context(), g.Counter).Result()
				require.NoError(t, err)
				require.Equal(t, text, got)
			})
		})
	}
	for _, kind := range []string{"list", "me:1=1"} {
		t.Run(kind, func(t *testing.T) {
			onBothServers(t, func(t *testing.T, rdb *redis.Client) {
				put(t, rdb, g.Counter, kind)
				name, err := rdb.Type(t.Context(), g.Counter).Result()
				require.NoError(t, err)
				requireConflict(t, rdb, lua.ConflictError{Key: g.Counter, Type: name})
				require.Equal(t, kind, show(t, rdb, g.Counter))
				_, err = lua.Inspect(t.Context(), rdb, g)
				var conflict *lua.ConflictError
				require.ErrorAs(t, err, &conflict)
				require.Equal(t, g.Counter, conflict.Key)
			})
		})
	}
}

func requireConflict(t *testing.T, rdb *redis.Client, want lua.ConflictError) {
	t.Helper()
	_, err := lua.Acquire(t.Context(), rdb, fenced("me:1"), time.Minute, 0)
	var conflict *lua.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, want, *conflict)
	require.Empty(t, show(t, rdb, fenced("me:1").Key), "something was written")
}

// From 2^53 on Lua's numbers are not exact; tokens are, up to the largest that a counter
// can hold. Behind that nobody gets one.
func TestLargeTokens(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		for _, start := range []int64{1<<53 - 2, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<62 + 1, 9e18, math.MaxInt64 - 6} {
			require.NoError(t, rdb.Set(t.Context(), fenced("").Counter, start, 0).Err())
			for i := range int64(5) {
				require.Equal(t, start+i+1, lockOnce(t, rdb, fmt.Sprint("me:", i)))
				state, err := lua.Inspect(t.Context(), rdb, fenced(""))
				require.NoError(t, err)
				require.Equal(t, start+i+1, state.Token)
			}
		}
		require.Equal(t, int64(math.MaxInt64), lockOnce(t, rdb, "me:6"))
		requireConflict(t, rdb, lua.ConflictError{Key: fenced("").Counter, Type: "string"})
	})
}

// The token in a message is exact as well, and the client can count on from there.
func TestLargeTokensInMessages(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		for _, start := range []int64{0, 1<<53 - 2, 1<<62 + 1} {
			w := newWaiters(t, rdb, fenced)
			require.NoError(t, rdb.Set(t.Context(), fenced("").Counter, start, time.Hour).Err())
			w.do(rdb, "a:1 ask")
			w.do(rdb, "a:2 ask P")
			before := rdb.Get(t.Context(), fenced("").Counter).Val()
			released, err := lua.Release(t.Context(), rdb, fenced(own("a:1")), lua.Ending{})
			require.NoError(t, err)
			m := lua.ReadMessage(released.Message)
			require.Greater(t, strconv.FormatInt(m.Token, 10), before)
			if start > 0 {
				require.Equal(t, start+2, m.Token)
				require.Zero(t, m.Spare)
			} else {
				require.EqualValues(t, 1024, m.Spare)
			}
			require.Equal(t, rdb.Get(t.Context(), fenced("").Counter).Val(), strconv.FormatInt(m.Token+m.Spare, 10))
		}
	})
}

// reserve acquires with so many spare tokens.
func reserve(t *testing.T, rdb *redis.Client, owner string, spare int64) lua.Reply {
	t.Helper()
	reply, err := lua.Acquire(t.Context(), rdb, fenced(owner), time.Minute, spare)
	require.NoError(t, err)
	require.True(t, reply.Acquired)
	return reply
}

// Reserved tokens go to nobody else, and are no more than keeps the counter within a
// hundredth of a second of the server's clock, however many are asked for and however often.
func TestSpareTokens(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		first := reserve(t, rdb, "me:1", 10)
		require.EqualValues(t, 10, first.Spare)
		require.Equal(t, first.Token+10, counted(t, rdb))
		last := counted(t, rdb)
		for i := range 30 {
			owner := fmt.Sprint("me:", i+2)
			_, err := lua.Release(t.Context(), rdb, fenced(fmt.Sprint("me:", i+1)), lua.Ending{})
			require.NoError(t, err)
			reply := reserve(t, rdb, owner, []int64{0, 1 << 10, 1e5, 1e9, math.MaxInt64}[i%5])
			require.Greater(t, reply.Token, last)
			require.GreaterOrEqual(t, reply.Spare, int64(0))
			last = counted(t, rdb)
			require.Equal(t, last, reply.Token+reply.Spare)
			// Each grant takes one token in any case.
			require.LessOrEqual(t, last, serverMicros(t, rdb)+10_000+30)
		}

		// A counter that is far ahead, or the clock was set back: none is reserved.
		require.NoError(t, rdb.Set(t.Context(), fenced("").Counter, last+1e9, time.Minute).Err())
		_, err := lua.Release(t.Context(), rdb, fenced("me:31"), lua.Ending{})
		require.NoError(t, err)
		reply := reserve(t, rdb, "you:1", 10)
		require.Equal(t, last+1e9+1, reply.Token)
		require.Zero(t, reply.Spare)
	})
}

func counted(t *testing.T, rdb *redis.Client) int64 {
	t.Helper()
	n, err := rdb.Get(t.Context(), fenced("").Counter).Int64()
	require.NoError(t, err)
	return n
}

// A release gives back what is reserved and not used, if nobody has counted since. It
// does that once, and keeps the counter's TTL as it is.
func TestTokensGivenBack(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		release := func(owner string, used, reserved int64) {
			_, _ = lua.Release(t.Context(), rdb, fenced(owner), lua.Ending{Used: used, Reserved: reserved})
		}
		for i, tc := range []struct {
			between func(reserved int64) // what happens until the release
			back    bool
			ttl     bool
		}{
			{func(int64) {}, true, true},
			{func(int64) { require.NoError(t, rdb.Persist(t.Context(), fenced("").Counter).Err()) }, true, false},
			{func(int64) { require.NoError(t, rdb.Incr(t.Context(), fenced("").Counter).Err()) }, false, true},
			{func(r int64) { require.NoError(t, lua.Floor(t.Context(), rdb, fenced(""), r+5)) }, false, true},
			{func(int64) { require.NoError(t, rdb.Set(t.Context(), fenced("").Counter, "garbage", time.Hour).Err()) }, false, true},
			{func(int64) { put(t, rdb, fenced("").Counter, "x:1=1 20s") }, false, true},
			{func(int64) { put(t, rdb, "lock", "other:1=1 20s") }, false, true}, // it is not the owner any more
		} {
			require.NoError(t, rdb.FlushAll(t.Context()).Err())
			r := reserve(t, rdb, "me:1", 100)
			require.EqualValues(t, 100, r.Spare)
			tc.between(r.Token + 100)
			before := rdb.Dump(t.Context(), fenced("").Counter).Val()
			release("me:1", r.Token+3, r.Token+100)
			if !tc.back {
				require.Equal(t, before, rdb.Dump(t.Context(), fenced("").Counter).Val(), i)
				continue
			}
			require.Equal(t, r.Token+3, counted(t, rdb))
			require.Equal(t, tc.ttl, rdb.PTTL(t.Context(), fenced("").Counter).Val() > 29*24*time.Hour)
			next := reserve(t, rdb, "me:2", 0)
			require.Greater(t, next.Token, r.Token+3)
			release("me:1", r.Token+3, r.Token+100) // late
			require.Equal(t, next.Token, counted(t, rdb))
		}
	})
}

// Whoever grants on one counter, by whichever way, tokens grow.
func TestTokensOfAllKindsGrow(t *testing.T) {
	ctx := context.Background()
	writer := rw("")
	writer.Key, writer.Counter = "rw", fenced("").Counter
	acquired := func(reply lua.Reply, err error) []int64 {
		require.NoError(t, err)
		require.True(t, reply.Acquired)
		return []int64{reply.Token, reply.Token + reply.Spare}
	}
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		n := 0
		owner := func() string { n++; return own(fmt.Sprint("a:", n)) }
		free := func(owner string) { _, _ = lua.Release(ctx, rdb, fenced(owner), lua.Ending{}) }
		ways := map[string]func() []int64{
			"acquire": func() []int64 {
				g := fenced(owner())
				defer free(g.Owner)
				return acquired(lua.Acquire(ctx, rdb, g, time.Minute, 9))
			},
			"ask": func() []int64 {
				g := fenced(owner())
				defer free(g.Owner)
				return acquired(lua.Ask(ctx, rdb, g, time.Minute, lua.Ticket{Claim: claim}, 9))
			},
			"fair": func() []int64 {
				g := fair(owner())
				defer free(g.Owner)
				return acquired(lua.Ask(ctx, rdb, g, time.Minute, lua.Ticket{Claim: claim}, 9))
			},
			"message": func() []int64 {
				holder, waiter := fenced(owner()), fenced(owner())
				first := acquired(lua.Acquire(ctx, rdb, holder, time.Minute, 9))
				_, err := lua.Ask(ctx, rdb, waiter, time.Minute, lua.Ticket{Claim: claim}, 9)
				require.NoError(t, err)
				released, err := lua.Release(ctx, rdb, holder, lua.Ending{Used: first[0] + 2, Reserved: first[1]})
				require.NoError(t, err)
				defer free(waiter.Owner)
				m := lua.ReadMessage(released.Message)
				require.True(t, m.Granted)
				again := acquired(lua.Acquire(ctx, rdb, waiter, time.Minute, 9))
				return []int64{first[0], first[0] + 1, first[0] + 2, m.Token, m.Token + m.Spare, again[0], again[1]}
			},
			"write": func() []int64 {
				g := writer
				g.Owner = owner()
				defer func() { _, _ = lua.ReleaseRW(ctx, rdb, g, lua.Ending{}) }()
				reply, err := lua.AskRW(ctx, rdb, g, time.Minute, lua.Ticket{})
				return acquired(reply, err)[:1]
			},
			"all": func() []int64 {
				g := fenced(owner())
				defer free(g.Owner)
				other := lua.Grant{Key: "other", Owner: owner()}
				defer func() { _, _ = lua.Release(ctx, rdb, other, lua.Ending{}) }()
				reply, err := lua.AcquireAll(ctx, rdb, []lua.Wanted{{Grant: other, Lease: time.Minute}, {Grant: g, Lease: time.Minute}})
				require.NoError(t, err)
				require.True(t, reply.Acquired)
				return reply.Tokens[1:]
			},
			"floor": func() []int64 {
				floor := counted(t, rdb) + 11
				require.NoError(t, lua.Floor(ctx, rdb, fenced(""), floor))
				return []int64{floor}
			},
			"lost counter": func() []int64 {
				if ahead := counted(t, rdb) - serverMicros(t, rdb); ahead > 0 {
					time.Sleep(time.Duration(ahead) * time.Microsecond) // longer than any failover
				}
				require.NoError(t, rdb.Del(ctx, fenced("").Counter).Err())
				return nil
			},
			"Redisson": func() []int64 { return []int64{rdb.Incr(ctx, fenced("").Counter).Val()} },
		}
		names := slices.Sorted(maps.Keys(ways))
		last := ways["acquire"]()[0]
		var course []string
		for range 200 {
			name := names[rand.N(len(names))]
			if name == "Redisson" && rdb.Exists(ctx, fenced("").Counter).Val() == 0 {
				continue // it counts from 1
			}
			if (name == "lost counter" || name == "floor") && rdb.Exists(ctx, fenced("").Counter).Val() == 0 {
				continue
			}
			course = append(course, name)
			for _, token := range ways[name]() {
				require.GreaterOrEqual(t, token, last, "%v", course)
				last = token
			}
			if name != "floor" && name != "lost counter" { // the next one is greater
				last++
			}
		}
	})
}
