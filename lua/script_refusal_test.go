package lua_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A server that is full, and evicts nothing, grants no lock but lets those that
// hold one count, renew and release.
func TestOutOfMemory(t *testing.T) {
	rdb := redistest.Start(t, "--maxmemory-policy", "noeviction").Client(t)
	ctx := t.Context()
	held := fenced("me:1")
	reply, err := lua.Acquire(ctx, rdb, held, 10*time.Second, 0)
	require.NoError(t, err)
	require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	require.True(t, redis.IsOOMError(rdb.Set(ctx, "x", "y", 0).Err()))

	for _, g := range []lua.Grant{
		{Key: "free", Owner: "me:1"},
		{Key: "free", Owner: "me:1", Counter: "new"},
		{Key: "free", Owner: "me:1", Counter: held.Counter},
	} {
		_, err = lua.Acquire(ctx, rdb, g, time.Minute, 0)
		require.True(t, says(err, "OOM"), "%v", err)
		require.Empty(t, show(t, rdb, "free"))
		require.Zero(t, rdb.Exists(ctx, "new").Val())
	}
	token, err := rdb.Get(ctx, held.Counter).Int64()
	require.NoError(t, err)
	require.Equal(t, reply.Token, token)

	again, err := lua.Acquire(ctx, rdb, held, 20*time.Second, 0)
	require.NoError(t, err)
	require.True(t, again.Acquired)
	require.Greater(t, again.Token, reply.Token)
	refused, err := lua.Acquire(ctx, rdb, fenced("other:1"), 20*time.Second, 0)
	require.NoError(t, err)
	require.False(t, refused.Acquired)

	require.NoError(t, lua.Count(ctx, rdb, held, 20*time.Second, 2))
	require.Equal(t, "me:1=2 20s", show(t, rdb, "lock"))
	require.NoError(t, lua.Renew(ctx, rdb, []lua.Renewal{{Grant: held, Lease: 30 * time.Second}})[0])
	require.Equal(t, "me:1=2 30s", show(t, rdb, "lock"))
	_, err = lua.Inspect(ctx, rdb, held)
	require.NoError(t, err)
	_, err = lua.Release(ctx, rdb, held, lua.Ending{})
	require.NoError(t, err)
	require.Empty(t, show(t, rdb, "lock"))
}

// user returns a client that may do what the rules say.
func user(t *testing.T, s *redistest.Server, rules ...any) *redis.Client {
	t.Helper()
	args := append([]any{"acl", "setuser", "app", "reset", "on", "nopass"}, rules...)
	require.NoError(t, s.Client(t).Do(t.Context(), args...).Err())
	return s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "none" })
}

// A release that may not be announced is a release.
func TestRefusedPublish(t *testing.T) {
	for name, rules := range map[string][]any{
		"no channel": {"~*", "+@all", "resetchannels"},
		"no PUBLISH": {"~*", "&*", "+@all", "-publish"},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			rdb := user(t, s, rules...)
			ctx := t.Context()
			for range 2 {
				reply, err := lua.Acquire(ctx, rdb, grant("me:1"), time.Minute, 0)
				require.NoError(t, err)
				require.True(t, reply.Acquired)
				released, err := lua.Release(ctx, rdb, grant("me:1"), lua.Ending{})
				require.NoError(t, err)
				require.Error(t, released.PublishErr)
				require.NotEmpty(t, released.PublishErr.Error())
				require.Empty(t, show(t, s.Client(t), "lock"))

				put(t, s.Client(t), "lock", "other:1=1 10s")
				was, err := lua.ForceRelease(ctx, rdb, grant(""))
				require.NoError(t, err)
				require.True(t, was)
				require.Empty(t, show(t, s.Client(t), "lock"))
			}
		})
	}
}

// Without the right to a key nothing is done, and what the server says is the
// error, not a lock that somebody else holds.
func TestRefusedKey(t *testing.T) {
	s := redistest.Start(t)
	rdb := user(t, s, "~lock", "&*", "+@all")
	for name, g := range map[string]lua.Grant{
		"counter": fenced("me:1"),
		"lock":    {Key: "other lock", Owner: "me:1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := lua.Acquire(t.Context(), rdb, g, time.Minute, 0)
			require.True(t, redis.IsPermissionError(err), "%v", err)
			require.Empty(t, show(t, s.Client(t), g.Key))
		})
	}
}

// Where a script may run, but not every command in it, the error must not look
// like a lock that is lost.
func TestRefusedCommand(t *testing.T) {
	for _, command := range []string{"-type", "-hlen", "-hset", "-pexpire", "-pttl", "-del"} {
		t.Run(command, func(t *testing.T) {
			s := redistest.Start(t)
			put(t, s.Client(t), "lock", "me:1=1 10s")
			rdb := user(t, s, "~*", "&*", "+@all", command)
			for name, call := range calls {
				answer := call(t.Context(), rdb, grant("me:1"), 20*time.Second)
				require.NotEqual(t, "lua: not the owner", answer, name)
				put(t, s.Client(t), "lock", "me:1=1 10s")
			}
		})
	}
}
