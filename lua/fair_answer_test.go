package lua_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
)

// The message to an owner of the client that releases comes as the answer, and in no
// other way.
func TestFairAnswerIsTheMessage(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		heard := listen(t, rdb, "calls:{lock}:a")
		for _, owner := range []string{"a:1", "a:2", "ab:1"} {
			fairCalls["queue"](t.Context(), rdb, fair(owner), time.Minute)
		}
		before := serverMicros(t, rdb)
		released, err := lua.ReleaseFair(t.Context(), rdb, fair("a:1"), nil)
		require.NoError(t, err)
		require.Empty(t, heard())
		words := strings.Fields(released.Call)
		require.Len(t, words, 4)
		require.Equal(t, "a:2", words[0])
		at, err := strconv.ParseInt(words[1], 10, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, at, before)
		require.LessOrEqual(t, at, serverMicros(t, rdb))
		require.Equal(t, "10000", words[2])
		again, err := lua.AcquireFair(t.Context(), rdb, fair("a:2"), time.Minute, lua.Ticket{})
		require.NoError(t, err)
		require.True(t, again.Acquired)
		require.Equal(t, strconv.FormatInt(again.Token, 10), words[3])

		others := listen(t, rdb, "calls:{lock}:ab")
		for _, owner := range []string{"a:2", "ab:1"} { // the next is of another client; there is none
			released, err = lua.ReleaseFair(t.Context(), rdb, fair(owner), nil)
			require.NoError(t, err)
			require.Empty(t, released.Call)
		}
		require.Len(t, others(), 1)
	})
}

// A repeated release tells whom the first may have granted the lock to, if that is of
// the same client, and tells nothing that is not so.
func TestFairAnswerToRepeatedRelease(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		release := func(owner string, want error) string {
			released, err := lua.ReleaseFair(t.Context(), rdb, fair(owner), nil)
			require.Equal(t, want, err)
			return released.Call
		}
		for _, owner := range []string{"a:1", "a:2", "ab:1", "a:3"} {
			fairCalls["queue"](t.Context(), rdb, fair(owner), time.Minute)
		}
		require.NotEmpty(t, release("a:1", nil))
		require.Equal(t, "a:2", release("a:1", lua.ErrNotOwner))
		require.Empty(t, release("ab:2", lua.ErrNotOwner), "of another client")
		require.Empty(t, release("a:3", lua.ErrNotOwner), "it had a ticket, and no more")
		require.Empty(t, release("a:2", nil))
		require.Empty(t, release("a:2", lua.ErrNotOwner), "ab:1 holds it, and was told")
		require.Empty(t, release("ab:1", nil))
		require.Empty(t, release("ab:1", lua.ErrNotOwner), "nobody holds it")
		for _, verb := range [][]any{{"set", "lock", "x"}, {"hset", "lock", "a:5", "1", "a:6", "1"}} {
			require.NoError(t, rdb.Del(t.Context(), "lock").Err())
			require.NoError(t, rdb.Do(t.Context(), verb...).Err())
			require.Empty(t, release("a:1", lua.ErrNotOwner), "it is no lock")
		}
	})
}

// A fair lock without a counter has the token 0, also in a message.
func TestFairMessageWithoutToken(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		plain := func(owner string) lua.Fair {
			f := fair(owner)
			f.Counter = ""
			return f
		}
		for _, owner := range []string{"a:1", "a:2"} {
			fairCalls["queue"](t.Context(), rdb, plain(owner), time.Minute)
		}
		released, err := lua.ReleaseFair(t.Context(), rdb, plain("a:1"), nil)
		require.NoError(t, err)
		require.Equal(t, "0", strings.Fields(released.Call)[3])
	})
}

// However soon the queue and its tickets would expire when an owner comes, they
// outlive its ticket several times.
func TestFairQueueOutlivesItsTickets(t *testing.T) {
	const kept = 10 * ticketLife
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		keys := []string{fair("").Queue, fair("").Tickets}
		for i := range 3 {
			fairCalls["queue"](t.Context(), rdb, fair(fmt.Sprint("a:", i)), time.Minute)
		}
		age := []func(key string) error{
			func(key string) error { return rdb.Persist(t.Context(), key).Err() },
			func(key string) error { return rdb.PExpire(t.Context(), key, time.Second).Err() },
			func(key string) error { return rdb.PExpire(t.Context(), key, kept/2-time.Second).Err() },
		}
		for i, age := range age {
			for _, key := range keys {
				require.NoError(t, age(key))
				fairCalls["queue"](t.Context(), rdb, fair(fmt.Sprint("b:", i, key[:1])), time.Minute)
				for _, key := range keys {
					require.Greater(t, rdb.PTTL(t.Context(), key).Val(), kept/2, "%d %s", i, key)
				}
			}
		}
	})
}

// The answer names those of the same client who follow the next, and takes the
// tickets out of those who have had the lock in the meantime.
func TestFairRunOfOneClient(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		fair := func(owner string) lua.Fair {
			f := fair(owner)
			f.Counter = ""
			return f
		}
		for _, owner := range []string{"a:1", "a:2", "a:3", "a:4", "ab:1", "a:5"} {
			fairCalls["queue"](t.Context(), rdb, fair(owner), time.Minute)
		}
		released, err := lua.ReleaseFair(t.Context(), rdb, fair("a:1"), nil)
		require.NoError(t, err)
		require.Equal(t, "a:2", strings.Fields(released.Call)[0])
		require.Equal(t, []string{"a:3", "a:4"}, strings.Fields(released.Call)[4:])

		for range 2 { // also if it comes twice
			released, err = lua.ReleaseFair(t.Context(), rdb, fair("a:2"), []string{"a:3", "a:4"})
			require.Empty(t, released)
			require.Equal(t, "ab:1=1 10s", show(t, rdb, "lock"))
			left, err := rdb.ZRange(t.Context(), fair("").Queue, 0, -1).Result()
			require.NoError(t, err)
			require.Equal(t, []string{"a:5"}, left)
			require.EqualValues(t, 1, rdb.HLen(t.Context(), fair("").Tickets).Val())
		}
		require.ErrorIs(t, err, lua.ErrNotOwner)

		heard := listen(t, rdb, "calls:{lock}:a")
		for _, owner := range []string{"a:6", "b:1"} {
			fairCalls["queue"](t.Context(), rdb, fair(owner), time.Minute)
		}
		released, err = lua.ReleaseFair(t.Context(), rdb, fair("ab:1"), nil)
		require.NoError(t, err)
		require.Empty(t, released.Call)
		messages := heard()
		require.Len(t, messages, 1)
		require.Equal(t, "a:5", strings.Fields(messages[0])[0])
		require.Equal(t, []string{"a:6"}, strings.Fields(messages[0])[4:], "a message names them as well")
	})
}

// A fenced lock needs a token for each.
func TestFairRunIsNotFenced(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		for _, owner := range []string{"a:1", "a:2", "a:3"} {
			fairCalls["queue"](t.Context(), rdb, fair(owner), time.Minute)
		}
		released, err := lua.ReleaseFair(t.Context(), rdb, fair("a:1"), nil)
		require.NoError(t, err)
		require.Len(t, strings.Fields(released.Call), 4)
	})
}
