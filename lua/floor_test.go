package lua_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
)

// Floors may be delivered twice, late and in any order: the counter is the largest,
// and the next token greater.
func TestFloor(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		g := fenced("me:1")
		ahead := serverMicros(t, rdb) + time.Hour.Microseconds()
		for _, floor := range []int64{ahead - 5, ahead, ahead, ahead - 5, 1} {
			require.NoError(t, lua.Floor(t.Context(), rdb, g, floor))
		}
		require.Equal(t, strconv.FormatInt(ahead, 10), rdb.Get(t.Context(), g.Counter).Val())
		require.InDelta(t, lua.CounterTTL, rdb.PTTL(t.Context(), g.Counter).Val(), float64(10*time.Second))
		require.Equal(t, ahead+1, lockOnce(t, rdb, "me:1"))

		require.NoError(t, rdb.Persist(t.Context(), g.Counter).Err()) // as Redisson makes it
		require.NoError(t, lua.Floor(t.Context(), rdb, g, ahead+10))
		require.Negative(t, rdb.PTTL(t.Context(), g.Counter).Val())

		require.NoError(t, rdb.Set(t.Context(), g.Counter, "garbage", 0).Err())
		var conflict *lua.ConflictError
		require.ErrorAs(t, lua.Floor(t.Context(), rdb, g, ahead), &conflict)
		require.Equal(t, "garbage", rdb.Get(t.Context(), g.Counter).Val())
	})
}
