package lua_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
)

// Tokens of writers grow; a reader has that of the newest writer, and a first one
// before any writer.
func TestReadWriteTokens(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		fenced := func(owner string) lua.RW {
			g := rw(owner)
			g.Counter = "redisson_lock_token:{lock}"
			return g
		}
		read := func(owner string) int64 {
			r, err := lua.AskRW(t.Context(), rdb, reader(fenced(owner)), time.Minute, lua.Ticket{})
			require.NoError(t, err)
			require.True(t, r.Acquired)
			return r.Token
		}
		write := func(owner string) int64 {
			r, err := lua.AskRW(t.Context(), rdb, fenced(owner), time.Minute, lua.Ticket{})
			require.NoError(t, err)
			require.True(t, r.Acquired)
			return r.Token
		}
		release := func(owners ...string) {
			for _, owner := range owners {
				_, err := lua.ReleaseRW(t.Context(), rdb, fenced(owner), lua.Ending{})
				require.NoError(t, err)
			}
		}
		first := read("a:1")
		require.Positive(t, first)
		require.Equal(t, first, read("b:1"))
		release("a:1", "b:1")
		second := write("a:2")
		require.Greater(t, second, first)
		require.Equal(t, second, write("a:2"), "repeated")
		require.NoError(t, rdb.Del(t.Context(), fenced("").Counter).Err())
		second = write("a:2")
		require.Positive(t, second, "repeated after the counter is gone")
		release("a:2")
		require.Equal(t, second, read("a:3"))
		require.Equal(t, second, read("a:3"), "repeated")
		release("a:3")
		require.Greater(t, write("a:4"), second)
		release("a:4")
		require.NoError(t, rdb.Set(t.Context(), fenced("").Counter, "garbage", 0).Err())
		for _, err := range []error{
			func() error {
				_, err := lua.AskRW(t.Context(), rdb, reader(fenced("a:5")), time.Minute, lua.Ticket{})
				return err
			}(),
			func() error {
				_, err := lua.AskRW(t.Context(), rdb, fenced("a:5"), time.Minute, lua.Ticket{})
				return err
			}(),
		} {
			var conflict *lua.ConflictError
			require.ErrorAs(t, err, &conflict)
			require.Equal(t, fenced("").Counter, conflict.Key)
		}
		require.Empty(t, showRW(t, rdb))
	})
}
