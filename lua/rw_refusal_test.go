package lua_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A full server refuses new holders, and lets those there are count, renew,
// become readers and leave.
func TestReadWriteOutOfMemory(t *testing.T) {
	rdb := redistest.Start(t, "--maxmemory-policy", "noeviction").Client(t)
	ctx := t.Context()
	_, err := lua.AskRW(ctx, rdb, rw("me:1"), 20*time.Second, lua.Ticket{})
	require.NoError(t, err)
	require.NoError(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	deliver := func(r rwRequest) {
		t.Helper()
		r.owner, r.lease = "me:1", 20*time.Second
		require.Equal(t, "done", r.deliver(t, rdb))
	}
	deliver(rwRequest{script: "count", writes: 1, reads: 1})
	deliver(rwRequest{script: "count", reads: 2})
	deliver(rwRequest{script: "renew"})
	require.NoError(t, rdb.Del(ctx, holdKey("me:1", 1), holdKey("me:1", 2)).Err())
	deliver(rwRequest{script: "renew"})
	require.Equal(t, "me:1=2,mode=read 20s; me:1#1 20s; me:1#2 20s", showRW(t, rdb))
	_, err = lua.AskRW(ctx, rdb, reader(rw("b:1")), time.Minute, lua.Ticket{})
	require.True(t, says(err, "OOM"), "%v", err)
	deliver(rwRequest{script: "release"})
	_, err = lua.AskRW(ctx, rdb, rw("b:1"), time.Minute, lua.Ticket{})
	require.True(t, says(err, "OOM"), "%v", err)
	require.Empty(t, showRW(t, rdb))
}

// Where a script may run, but not every command in it, the error must not look
// like a lock that is lost, or free.
func TestReadWriteRefusedCommand(t *testing.T) {
	for _, command := range []string{"-hmget", "-hset", "-pexpire", "-pexpire -del", "-pttl", "-del", "-set", "-get", "-hdel", "-hrandfield"} {
		t.Run(command, func(t *testing.T) {
			s := redistest.Start(t)
			admin := s.Client(t)
			rules := []any{"~*", "&*", "+@all"}
			for _, rule := range strings.Fields(command) {
				rules = append(rules, rule)
			}
			rdb := user(t, s, rules...)
			for _, script := range []string{"read", "write", "count", "release", "renew"} {
				require.NoError(t, admin.FlushAll(t.Context()).Err())
				putReader(t, admin, "me:1", 20*time.Second)
				putReader(t, admin, "b:1", 10*time.Second)
				r := rwRequest{script: script, owner: "me:1", lease: 30 * time.Second, reads: 2}
				require.NotEqual(t, lua.ErrNotOwner.Error(), r.deliver(t, rdb), script)

				require.NoError(t, admin.FlushAll(t.Context()).Err())
				r.owner = "c:1"
				r.deliver(t, rdb)
				require.NotEqual(t, time.Duration(-1), admin.PTTL(t.Context(), "lock").Val(), "%s leaves a lock without TTL", script)
			}
		})
	}
}

// A server that refuses messages cannot tell the tickets in front. Each answer says so, and the free lock
// goes to whoever has waited and asks. A new call takes its place behind them.
func TestReadWriteWhereMessagesAreRefused(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	hearRW(t, admin, "bc")
	rdb := user(t, s, "~*", "&*", "+@all", "-publish")
	ticket := lua.Ticket{Claim: claim, Hears: lua.Counted}
	ask := func(rdb lua.Runner, owner string) lua.Reply {
		t.Helper()
		reply, err := lua.AskRW(t.Context(), rdb, rw(own(owner)), time.Minute, ticket)
		require.NoError(t, err)
		return reply
	}
	lockRW(t, rdb, rw(own("a:1")))
	require.False(t, ask(admin, "b:1").Place.Mute)
	require.True(t, ask(rdb, "b:1").Place.Mute)
	require.True(t, ask(rdb, "c:1").Place.Mute)
	_, err := lua.ReleaseRW(t.Context(), rdb, rw(own("a:1")), lua.Ending{})
	require.NoError(t, err)
	require.Equal(t, "; queue [b:1 c:1]", shorten(showRW(t, admin)))
	fresh := ask(rdb, "a:2")
	require.False(t, fresh.Acquired, "it has passed those who wait")
	require.Zero(t, fresh.TTL)
	require.True(t, ask(rdb, "c:1").Acquired)
	require.Equal(t, "c:1:write=1,mode=write 1m0s; queue [b:1 a:2]", shorten(showRW(t, admin)))
}
