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

// Redisson's own fair lock of the name queues in another way: nobody is granted
// anything, and no ticket is left, until it is out of use.
func TestAskBesideRedissonsFairLock(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		for _, key := range fair("").Rivals {
			for _, g := range []lua.Grant{fair("me:1"), {Key: "lock", Queue: lua.QueueOf("lock"), Rivals: fair("").Rivals, Owner: "me:1"}} {
				for _, lock := range []string{"", "uuid:7=1 20s", "me:1=1 20s"} {
					put(t, rdb, "lock", lock)
					require.NoError(t, rdb.RPush(t.Context(), key, "x").Err())
					_, err := lua.Ask(t.Context(), rdb, g, time.Minute, lua.Ticket{Claim: claim}, 0)
					var conflict *lua.ConflictError
					require.ErrorAs(t, err, &conflict)
					require.Equal(t, lua.ConflictError{Key: key, Type: "queue of Redisson's fair lock"}, *conflict)
					require.Equal(t, lock, show(t, rdb, "lock"))
					require.Zero(t, rdb.Exists(t.Context(), g.Queue).Val())
					require.NoError(t, rdb.Del(t.Context(), key).Err())
				}
			}
		}
		require.Equal(t, "acquired", calls["ask"](t.Context(), rdb, fair("me:1"), time.Minute))
	})
}

// A server that is full grants nothing to those who ask, gives no tickets, and says so;
// it still passes the lock on to those who have one.
func TestAskOutOfMemory(t *testing.T) {
	rdb := redistest.Start(t, "--maxmemory-policy", "noeviction").Client(t)
	full := func(is bool) {
		t.Helper()
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", map[bool]string{false: "0", true: "1"}[is]).Err())
	}
	for kind, lock := range map[string]func(string) lua.Grant{"plain": grant, "fenced": fenced, "fair": fair} {
		t.Run(kind, func(t *testing.T) {
			w := newWaiters(t, rdb, lock)
			w.hear("b")
			full(true)
			for _, ticket := range []string{"", " P"} {
				require.Contains(t, w.do(rdb, "a:1 ask"+ticket), "OOM ")
				require.Equal(t, "|", w.left())
			}
			full(false)
			w.follow(rdb, false,
				"a:1 ask -> acquired => a:1=1 20s |",
				"b:1 ask - -> refused by a:1, 20s, first, new => a:1=1 20s | b:1-")
			full(true)
			w.follow(rdb, true,
				"c:1 ask P -> refused by a:1, 20s => a:1=1 20s | b:1-",
				"b:1 ask P -> refused by a:1, 20s, first => a:1=1 20s | b:1P", // it has one
				"a:1 release -> done => b:1=1 10s | !b:1 >> b: grant b:1 for 6s",
				"b:1 ask P -> acquired => b:1=1 20s | !b:1")
			full(false)
			w.follow(rdb, false,
				"c:1 ask P -> refused by b:1, 20s, first, new => b:1=1 20s | !b:1 c:1P",
				"- expires")
			full(true)
			w.follow(rdb, false, "c:1 ask P -> acquired => c:1=1 20s |") // it is its turn
			full(false)
		})
	}
}

// Where a script may run, but not every command in it, the error must not look like a
// lock that is lost, free, or somebody else's, and nothing is left without TTL.
func TestQueueRefusedCommand(t *testing.T) {
	for _, command := range []string{
		"-zcard", "-zadd", "-zscore", "-zrange", "-zrem", "-zcount", "-zrangebyscore", "-hset", "-pexpire", "-pttl", "-del", "-hlen", "-hgetall", "-time", "-get", "-exists",
	} {
		t.Run(command, func(t *testing.T) {
			s := redistest.Start(t)
			admin := s.Client(t)
			rdb := user(t, s, "~*", "&*", "+@all", command)
			w := newWaiters(t, admin, fenced)
			for _, holder := range []string{"", "a:1 ask", "uuid:7 takes"} {
				for _, call := range []string{"b:1 ask P", "c:1 ask P", "a:1 release", "d:1 ask"} {
					require.NoError(t, admin.FlushAll(t.Context()).Err())
					if holder != "" {
						w.do(admin, holder)
						w.do(admin, "b:1 ask -")
						w.do(admin, "b:2 ask -")
					}
					answer := w.do(rdb, call)
					require.NotContains(t, answer, "holds a none", "%s: %s", holder, call)
					require.NotContains(t, answer, "holds a zset", "%s: %s", holder, call)
					require.False(t, holder == "a:1 ask" && strings.Contains(answer, "not the owner"), "%s: %s: %s", holder, call, answer)
					for _, key := range admin.Keys(t.Context(), "*").Val() {
						require.Positive(t, admin.PTTL(t.Context(), key).Val(), "%s: %s: %s", holder, call, key)
					}
				}
			}
		})
	}
}

// Where the server does not tell who listens on the unlock channel, the release is
// announced there, which tells the same.
func TestRefusedNumSub(t *testing.T) {
	s := redistest.Start(t)
	rdb := user(t, s, "~*", "&*", "+@all", "-pubsub")
	for name, lock := range map[string]func(string) lua.Grant{"plain": grant, "fair": fair} {
		t.Run(name, func(t *testing.T) {
			w := newWaiters(t, s.Client(t), lock)
			w.follow(rdb, false,
				"b listens",
				"a:1 ask -> acquired",
				"b:1 ask P -> refused by a:1, 20s, first, new",
				"a:1 release -> done => b:1=1 10s | !b:1 >> b: grant b:1 for 6s",
				"b:2 ask P -> refused by b:1, 10s, first, new",
				"redisson listens",
				"b:1 release -> done, wake b:2 => | b:2P >> redisson: -0",
				"a:2 ask P -> refused by b:2, 10s, first, new => b:2=1 10s | !b:2 a:2P >> b: grant b:2 for 6s",
			)
		})
	}
}

// Where the server refuses to tell the first in the queue, that one keeps its place,
// the lock is free, and whoever releases is told.
func TestRefusedMessage(t *testing.T) {
	for name, rules := range map[string][]any{
		"no channel of ours": {"~*", "+@all", "resetchannels", "&redisson_lock__channel:*"},
		"no PUBLISH":         {"~*", "&*", "+@all", "-publish"},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			rdb := user(t, s, rules...)
			w := newWaiters(t, s.Client(t), fenced)
			w.follow(rdb, false,
				"b listens",
				"a:1 ask -> acquired",
				"b:1 ask P -> refused by a:1, 20s, first, new",
				"c:1 ask - -> refused by a:1, 20s, new",
				"a:1 release -> done, not announced => | b:1P c:1-",
				"c:1 ask - -> refused by , 0s => | b:1P c:1-",
				"b:1 ask P -> acquired => b:1=1 20s | c:1-",
				"b:1 release -> done => c:1=1 10s | !c:1", // it need not be told
				"c:2 ask P -> refused by c:1, 10s, first, new",
				"c:1 release -> done, grant c:2 for 6s => c:2=1 10s | !c:2",
				"redisson listens",
				"b:3 ask P -> refused by c:2, 10s, first, new",
			)
			require.Equal(t, "done, not announced", w.do(rdb, "c:2 release"))
			require.Equal(t, "| b:3P", w.left())
		})
	}
}

// On a replica nobody is granted the lock, or has a ticket, and nobody is told that it is held:
// not even its holder. The replica may be behind. A master without its replicas is the same.
func TestAskWhereNothingIsWritten(t *testing.T) {
	for code, refuse := range map[string]func(*redis.Client) error{
		"READONLY":   func(rdb *redis.Client) error { return rdb.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err() },
		"NOREPLICAS": func(rdb *redis.Client) error { return rdb.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err() },
	} {
		t.Run(code, func(t *testing.T) {
			rdb := redistest.Start(t).Client(t)
			w := newWaiters(t, rdb, fenced)
			w.do(rdb, "a:1 ask")
			w.do(rdb, "c:1 ask -")
			require.NoError(t, refuse(rdb))
			for _, lock := range []func(string) lua.Grant{grant, fenced, fair} {
				for _, call := range []string{"a:1 ask P", "b:1 ask P", "c:1 ask P"} {
					w.lock = lock
					require.Contains(t, w.do(rdb, call), code+" ", call)
				}
			}
			_, err := lua.Release(t.Context(), rdb, grant(own("a:1")), lua.Ending{})
			require.True(t, says(err, code), "%v", err)
		})
	}
}
