package lua_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A queue is served without its lock: tickets are taken out, and the first that can
// hear is told to ask and keeps its place. Nothing is granted.
func TestServeApart(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	of := func(owner string) lua.Grant { return lua.Grant{Key: "lock", Queue: lua.QueueOf("lock"), Owner: owner} }
	_, err := lua.Acquire(ctx, rdb, of("a:1"), time.Minute, 0)
	require.NoError(t, err)
	for _, owner := range []string{"b:1", "dead:1", "c:1", "d:1"} {
		_, err := lua.Ask(ctx, rdb, of(owner), time.Minute, lua.Ticket{Claim: time.Second, Hears: lua.Counted}, 0)
		require.NoError(t, err)
	}
	sub := rdb.Subscribe(ctx, lua.GrantChannel("lock", "c"), lua.GrantChannel("lock", "b"))
	defer func() { require.NoError(t, sub.Close()) }()
	for range 2 {
		_, err = sub.Receive(ctx)
		require.NoError(t, err)
	}

	require.NoError(t, lua.ServeApart(ctx, rdb, of(""), []string{"b:1", "x:1"}, false))
	require.Equal(t, []string{"dead:1", "c:1", "d:1"}, tickets(t, rdb))
	require.NoError(t, lua.ServeApart(ctx, rdb, of(""), nil, true))
	require.Equal(t, []string{"c:1", "d:1"}, tickets(t, rdb), "nobody hears what is for the first")
	msg, err := sub.ReceiveMessage(ctx)
	require.NoError(t, err)
	require.Equal(t, "c:1", msg.Payload)
	require.Equal(t, map[string]string{"a:1": "1"}, rdb.HGetAll(ctx, "lock").Val())

	require.NoError(t, lua.ServeApart(ctx, rdb, of(""), []string{"c:1", "d:1"}, true))
	require.Empty(t, rdb.Exists(ctx, of("").Queue).Val())
	require.NoError(t, lua.ServeApart(ctx, rdb, of(""), []string{"c:1"}, true), "there is no queue")
}

func tickets(t *testing.T, rdb *redis.Client) []string {
	all, err := rdb.ZRange(t.Context(), lua.QueueOf("lock"), 0, -1).Result()
	require.NoError(t, err)
	return all
}
