package lua_test

import (
	"fmt"
	"net"
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

// A master that has become a replica knows lock and ticket. It must not answer that the lock is
// held, also if nothing would be written.
func TestAskOfAReplicaIsRefused(t *testing.T) {
	t.Parallel()
	former, next := redistest.Start(t), redistest.Start(t)
	rdb := former.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
	_, err := lua.Acquire(t.Context(), rdb, queued("a:1"), time.Minute, 0)
	require.NoError(t, err)
	ticket := lua.Ticket{Claim: 5 * time.Second}
	for range 2 { // the second changes nothing
		_, err = lua.Ask(t.Context(), rdb, queued("b:1"), time.Minute, ticket, 0)
		require.NoError(t, err)
	}
	host, port, err := net.SplitHostPort(next.Addr())
	require.NoError(t, err)
	require.NoError(t, rdb.ReplicaOf(t.Context(), host, port).Err())
	_, err = lua.Ask(t.Context(), rdb, queued("b:1"), time.Minute, ticket, 0)
	require.Error(t, err)
	require.True(t, redis.IsReadOnlyError(err) || strings.Contains(err.Error(), "READONLY"), "%v", err)
}

// The answer tells a client that believes to hear whether it is subscribed there.
func TestAskTellsWhoIsAbsent(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	_, err := lua.Acquire(t.Context(), rdb, queued("a:1"), time.Minute, 0)
	require.NoError(t, err)
	absent := func(how lua.Hearing) bool {
		r, err := lua.Ask(t.Context(), rdb, queued("b:1"), time.Minute, lua.Ticket{Claim: 5 * time.Second, Hears: how}, 0)
		require.NoError(t, err)
		require.True(t, r.Place.Held())
		return r.Place.Absent
	}
	require.False(t, absent(lua.Deaf))
	require.True(t, absent(lua.Counted))
	require.False(t, absent(lua.Uncounted), "of a cluster it is not known")
	require.False(t, absent(lua.ShardHeard), "nor while a slot moves")
	sub := rdb.Subscribe(t.Context(), lua.GrantChannel(queued("").Key, "b"))
	defer func() { require.NoError(t, sub.Close()) }()
	_, err = sub.Receive(t.Context())
	require.NoError(t, err)
	require.False(t, absent(lua.Counted))
}

func queued(owner string) lua.Grant {
	return lua.Grant{Key: "former", Queue: lua.QueueOf("former"), Owner: owner}
}

// While a cluster slot moves, a node that has all keys of a script executes it, but makes
// none anew: a script that looks at a key which it has removed itself would fail half-way.
func TestQueueWhileTheSlotMoves(t *testing.T) {
	cluster := redistest.StartCluster(t, 2, 0)
	slot := cluster.Slot("lock")
	rdb, ctx, queue := cluster.Client(t), t.Context(), lua.QueueOf("lock")
	for _, tc := range []struct {
		name   string
		ticket string // the only member of the queue
		score  float64
		call   func() string
		answer string
		after  string // the lock, and who is in the queue
	}{
		{
			"the only one in the queue begins to hear", own("b:1"), 1<<15 + 6000*4,
			func() string {
				return replyText(lua.Ask(ctx, rdb, grant(own("b:1")), time.Minute, lua.Ticket{Claim: claim, Hears: lua.Uncounted}, 0))
			},
			"refused by a:1, 20s, first", "a:1=1 20s [b:1]",
		},
		{
			"a release takes the only ticket out", own("a:1"), 1<<15 + 6000*4,
			func() string {
				return releasedText(lua.Release(ctx, rdb, grant(own("a:1")), lua.Ending{Tickets: []string{own("a:1")}}))
			},
			"done", " []",
		},
		{
			"a release finds that the grant of another has lapsed", "!" + own("b:1"), 0,
			func() string { return releasedText(lua.Release(ctx, rdb, grant(own("a:1")), lua.Ending{})) },
			"done", " []",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from, to := cluster.Owner(slot), cluster.Another(slot)
			source, target := from.Client(t), to.Client(t)
			put(t, source, "lock", own("a:1")+"=1 20s")
			require.NoError(t, source.ZAdd(ctx, queue, redis.Z{Score: tc.score, Member: tc.ticket}).Err())
			require.NoError(t, source.PExpire(ctx, queue, time.Minute).Err())
			heard := listen(t, source, lua.UnlockChannel("lock"))
			move := cluster.BeginMove(slot, to)
			answer := shorten(tc.call())
			move.MoveKeys()
			move.Finish()
			require.Equal(t, tc.answer, answer)
			require.Equal(t, tc.answer == "done", len(heard()) > 0, "announced")
			left, err := target.ZRange(ctx, queue, 0, -1).Result()
			require.NoError(t, err)
			require.Equal(t, tc.after, shorten(fmt.Sprint(show(t, target, "lock"), " ", left)))
			require.NoError(t, target.FlushAll(ctx).Err())
		})
	}
}

// A client is still subscribed to the former master, which is a replica now: what the new one
// sends reaches it, although that has no receiver. A grant that is taken back for want of
// one must not have been sent: the client would take the lock beside whoever has it then.
func TestWhoListensToAReplicaIsToldNothing(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	for name, tt := range map[string]struct {
		how     string
		channel lua.ChannelKind
		start   func(t *testing.T) (master, replica *redis.Client)
	}{
		"single": {"P", lua.Ordinary, func(t *testing.T) (master, replica *redis.Client) {
			server := redistest.Start(t, "--repl-diskless-sync-delay", "0")
			host, port, err := net.SplitHostPort(server.Addr())
			require.NoError(t, err)
			return server.Client(t), redistest.Start(t, "--replicaof", host, port).Client(t)
		}},
		"cluster": {"S", lua.Sharded, func(t *testing.T) (master, replica *redis.Client) {
			nodes := redistest.StartCluster(t, 1, 1).Nodes
			return nodes[0].Client(t), nodes[1].Client(t)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			master, replica := tt.start(t)
			redistest.Eventually(t, "the replica follows", func() bool {
				return strings.Contains(replica.Info(t.Context(), "replication").Val(), "master_link_status:up")
			})
			w := newWaiters(t, master, func(owner string) lua.Grant {
				g := fenced(owner)
				g.ChannelKind = tt.channel
				return g
			})
			sharded := tt.channel == lua.Sharded
			sub, heard := subscribeTo(t, replica, master, w.channel("b"), sharded)
			defer func() { require.NoError(t, sub.Close()) }()
			w.follow(master, false,
				"c listens",
				"a:1 ask -> acquired",
				"b:1 ask "+tt.how+" -> refused by a:1, 20s, first, new",
				"c:1 ask "+tt.how+" -> refused by a:1, 20s, new",
				"a:1 release -> done => c:1=1 10s | !c:1 >> c: grant c:1 for 6s",
				"b:1 ask "+tt.how+" -> refused by c:1, 10s, first, new",
				"c:1 release -> done => |",
			)
			require.Empty(t, heard())

			// A server that must not be asked who listens: then a grant stays, whoever hears of it.
			require.NoError(t, master.Do(t.Context(), "acl", "setuser", "app", "reset", "on", "nopass", "~*", "&*", "+@all", "-pubsub").Err())
			opts := *master.Options()
			opts.Username, opts.Password = "app", "none"
			app := redis.NewClient(&opts)
			defer func() { require.NoError(t, app.Close()) }()
			w.follow(app, false,
				"a:2 ask -> acquired",
				"b:2 ask "+tt.how+" -> refused by a:2, 20s, first, new",
				"a:2 release -> done => b:2=1 10s | !b:2",
			)
			require.Equal(t, []string{"grant b:2 for 6s"}, heardAs(heard))
		})
	}
}

// heardAs are the grants among what was heard.
func heardAs(heard func() []string) (grants []string) {
	for _, payload := range heard() {
		if payload != "-0" {
			grants = append(grants, shorten(messageText(payload)))
		}
	}
	return grants
}
