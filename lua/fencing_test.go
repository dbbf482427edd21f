package lua_test

import (
	"fmt"
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
	reply, err := lua.Acquire(t.Context(), rdb, fenced(owner), time.Minute)
	require.NoError(t, err)
	require.True(t, reply.Acquired)
	_, err = lua.Release(t.Context(), rdb, fenced(owner))
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

func TestTokenOfRepeatedAcquire(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		first, err := lua.Acquire(t.Context(), rdb, fenced("me:1"), time.Minute)
		require.NoError(t, err)
		for range 3 {
			again, err := lua.Acquire(t.Context(), rdb, fenced("me:1"), time.Minute)
			require.NoError(t, err)
			require.Equal(t, first, again)
		}
		state, err := lua.Inspect(t.Context(), rdb, fenced(""))
		require.NoError(t, err)
		require.Equal(t, first.Token, state.Token)

		refused, err := lua.Acquire(t.Context(), rdb, fenced("other:1"), time.Minute)
		require.NoError(t, err)
		require.Zero(t, refused.Token)
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
		strconv.Itoa(1 << 53), // from here on, adding 1 is not exact in Lua
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
	_, err := lua.Acquire(t.Context(), rdb, fenced("me:1"), time.Minute)
	var conflict *lua.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, want, *conflict)
	require.Empty(t, show(t, rdb, fenced("me:1").Key), "something was written")
}

// Reserved tokens go to nobody else, and a repeat gets the same one again.
func TestSpareTokens(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		g := fenced("me:1")
		g.Spare = 10
		first, err := lua.Acquire(t.Context(), rdb, g, time.Minute)
		require.NoError(t, err)
		again, err := lua.Acquire(t.Context(), rdb, g, time.Minute)
		require.NoError(t, err)
		require.Equal(t, first.Token, again.Token)
		newest, err := rdb.Get(t.Context(), g.Counter).Int64()
		require.NoError(t, err)
		require.Equal(t, first.Token+10, newest)

		// However slow the clock is, the next one is behind them.
		require.NoError(t, rdb.Set(t.Context(), g.Counter, newest+1_000_000_000, time.Minute).Err())
		_, err = lua.Release(t.Context(), rdb, g)
		require.NoError(t, err)
		g.Owner = "me:2"
		next, err := lua.Acquire(t.Context(), rdb, g, time.Minute)
		require.NoError(t, err)
		require.Equal(t, newest+1_000_000_001, next.Token)
	})
}
