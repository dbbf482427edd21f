package lua_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
)

// three are wanted together: the second is fenced.
func three(n string) []lua.Wanted {
	return []lua.Wanted{
		{Grant: lua.Grant{Key: "{k}1", Owner: "me:1" + n}, Lease: 10 * time.Second},
		{Grant: lua.Grant{Key: "{k}2", Owner: "me:2" + n, Counter: "{k}tokens"}, Lease: 20 * time.Second},
		{Grant: lua.Grant{Key: "{k}3", Owner: "me:3" + n}, Lease: 30 * time.Second},
	}
}

func TestAcquireAll(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		first, err := lua.AcquireAll(t.Context(), rdb, three(""))
		require.NoError(t, err)
		require.True(t, first.Acquired)
		require.Zero(t, first.Tokens[0])
		require.Positive(t, first.Tokens[1])
		for _, w := range three("") {
			held, err := lua.Acquire(t.Context(), rdb, w.Grant, time.Millisecond, 0)
			require.NoError(t, err)
			require.True(t, held.Acquired)
			require.Equal(t, w.Grant.Counter != "", held.Token > first.Tokens[1])
			require.InDelta(t, w.Lease, rdb.PTTL(t.Context(), w.Grant.Key).Val(), float64(5*time.Second))
		}

		again, err := lua.AcquireAll(t.Context(), rdb, three("")) // delivered twice
		require.NoError(t, err)
		require.True(t, again.Acquired)
		require.Zero(t, again.Tokens[0])
		require.Greater(t, again.Tokens[1], first.Tokens[1])
		first = again

		_, err = lua.Release(t.Context(), rdb, three("")[0].Grant, lua.Ending{})
		require.NoError(t, err)
		refused, err := lua.AcquireAll(t.Context(), rdb, three("x"))
		require.NoError(t, err)
		require.False(t, refused.Acquired)
		require.Equal(t, 1, refused.Busy)
		require.Equal(t, three("")[1].Grant.Owner, refused.Holder)
		require.InDelta(t, 20*time.Second, refused.TTL, float64(5*time.Second))
		require.Empty(t, show(t, rdb, "{k}1"), "none of them is taken")
	})
}

// What is not a lock, or does not count, is not touched, and nothing is taken.
func TestAcquireAllConflicts(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		for _, key := range []string{"{k}3", "{k}tokens"} {
			require.NoError(t, rdb.RPush(t.Context(), key, "x").Err())
			_, err := lua.AcquireAll(t.Context(), rdb, three(""))
			var conflict *lua.ConflictError
			require.ErrorAs(t, err, &conflict)
			require.Equal(t, lua.ConflictError{Key: key, Type: "list"}, *conflict)
			require.EqualValues(t, 1, rdb.DBSize(t.Context()).Val())
			require.NoError(t, rdb.Del(t.Context(), key).Err())
		}
	})
}
