package lua_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// Each family is told once by each release, and the receivers are those of the
// sharded one, if there is one.
func TestFamilies(t *testing.T) {
	node := redistest.StartCluster(t, 1, 0).Nodes[0]
	rdb := node.Client(t)
	const channel = "{a}channel"
	ordinary, sharded := rdb.Subscribe(t.Context(), channel), rdb.SSubscribe(t.Context(), channel)
	t.Cleanup(func() {
		require.NoError(t, ordinary.Close())
		require.NoError(t, sharded.Close())
	})
	second := rdb.SSubscribe(t.Context(), channel)
	t.Cleanup(func() { require.NoError(t, second.Close()) })
	redistest.Eventually(t, "all listen", func() bool {
		return rdb.PubSubNumSub(t.Context(), channel).Val()[channel] == 1 &&
			rdb.PubSubShardNumSub(t.Context(), channel).Val()[channel] == 2
	})
	for _, tc := range []struct {
		family    lua.Family
		receivers int64
		told      []string
	}{
		{lua.Ordinary, 1, []string{"publish"}},
		{lua.Sharded, 2, []string{"spublish"}},
		{lua.Both, 2, []string{"publish", "spublish"}},
	} {
		g := lua.Grant{Key: "{a}", Channel: channel, Owner: "o:1", Family: tc.family}
		acquire(t, rdb, g)
		monitor := node.Monitor(t)
		released, err := lua.Release(t.Context(), rdb, g)
		require.NoError(t, err)
		require.Equal(t, lua.Released{Receivers: tc.receivers}, released)
		acquire(t, rdb, g)
		_, err = lua.ForceRelease(t.Context(), rdb, g)
		require.NoError(t, err)
		var told []string
		for _, cmd := range monitor.Commands() {
			if cmd.Client == "lua" && cmd.Args[len(cmd.Args)-1] == "0" {
				told = append(told, strings.ToLower(cmd.Args[0]))
			}
		}
		monitor.Stop()
		require.Equal(t, append(tc.told, tc.told...), told)
	}
}

// A server without sharded channels still tells the others.
func TestBothWhereOneIsRefused(t *testing.T) {
	rdb := user(t, redistest.Start(t), "~*", "&*", "+@all", "-spublish")
	g := lua.Grant{Key: "a", Channel: "channel", Owner: "o:1", Family: lua.Both}
	acquire(t, rdb, g)
	released, err := lua.Release(t.Context(), rdb, g)
	require.NoError(t, err)
	require.NoError(t, released.PublishErr)
	acquire(t, rdb, g)
	g.Family = lua.Sharded
	released, err = lua.Release(t.Context(), rdb, g)
	require.NoError(t, err)
	require.Error(t, released.PublishErr)
}

func acquire(t *testing.T, rdb *redis.Client, g lua.Grant) {
	t.Helper()
	reply, err := lua.Acquire(t.Context(), rdb, g, time.Minute)
	require.NoError(t, err)
	require.True(t, reply.Acquired)
}
