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

// Whoever frees the lock may do so without a counter: the lock of another client, or of a command. Then a
// waiting writer has no token from the queue, and asks for one. The answer is a token of its own, and the same one
// when the request is repeated. The newest one before is the token of the writer before. So it is if the lock had
// lapsed, and the request of an owner without a counter has served the queue.
func TestReadWriteTokenAfterAReleaseWithoutCounter(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		fenced := func(owner string) lua.RW {
			g := rw(owner)
			g.Counter = "redisson_lock_token:{lock}"
			return g
		}
		ask := func(g lua.RW, lease time.Duration, ticket lua.Ticket) lua.Reply {
			reply, err := lua.AskRW(t.Context(), rdb, g, lease, ticket)
			require.NoError(t, err)
			return reply
		}
		for name, free := range map[string]func(lua.RW) error{
			"release": func(g lua.RW) error {
				_, err := lua.ReleaseRW(t.Context(), rdb, g, lua.Ending{})
				return err
			},
			"force": func(g lua.RW) error {
				_, err := lua.ForceReleaseRW(t.Context(), rdb, g)
				return err
			},
			"lapse": func(g lua.RW) error {
				require.NoError(t, rdb.Del(t.Context(), g.Key).Err())
				g = rw(own("c:1"))
				require.True(t, ask(g, time.Minute, lua.Ticket{Claim: claim, Hears: lua.Counted}).Leftover)
				_, err := lua.ReleaseRW(t.Context(), rdb, g, lua.Ending{})
				require.ErrorIs(t, err, lua.ErrNotOwner)
				return nil
			},
		} {
			t.Run(name, func(t *testing.T) {
				require.NoError(t, rdb.FlushAll(t.Context()).Err())
				hearRW(t, rdb, "bc")
				before := lockRW(t, rdb, fenced(own("a:1"))).Token
				queueUp(t, rdb, fenced, "wb:1")
				require.NoError(t, free(rw(own("a:1"))))
				token := lockRW(t, rdb, fenced(own("b:1"))).Token
				require.Greater(t, token, before)
				require.Equal(t, token, lockRW(t, rdb, fenced(own("b:1"))).Token, "repeated")
				_, err := lua.CountRW(t.Context(), rdb, fenced(own("b:1")), time.Minute, 0, 1)
				require.NoError(t, err)
				require.Equal(t, token, lockRW(t, rdb, reader(fenced(own("c:9")))).Token, "a reader beside the writer that has become one")
			})
		}
	})
}
