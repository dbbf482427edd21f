package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A lock without queue is announced as Redisson does.
func TestReleaseWithoutQueue(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		for key, channel := range map[string]string{"lock": "redisson_lock__channel:{lock}", "{a}lock": "redisson_lock__channel:{a}lock"} {
			heard := listen(t, rdb, channel)
			g := lua.Grant{Key: key, Owner: "me:1"}
			acquire(t, rdb, g)
			released, err := lua.Release(t.Context(), rdb, g, lua.Ending{})
			require.NoError(t, err)
			require.Equal(t, lua.Released{}, released)
			_, err = lua.Release(t.Context(), rdb, g, lua.Ending{})
			require.ErrorIs(t, err, lua.ErrNotOwner)
			require.Equal(t, []string{"0"}, heard())
			acquire(t, rdb, g)
			was, err := lua.ForceRelease(t.Context(), rdb, g)
			require.NoError(t, err)
			require.True(t, was)
			require.Equal(t, []string{"0"}, heard())
			require.Zero(t, rdb.Exists(t.Context(), key).Val())
		}
	})
}

func acquire(t *testing.T, rdb *redis.Client, g lua.Grant) {
	t.Helper()
	reply, err := lua.Acquire(t.Context(), rdb, g, time.Minute, 0)
	require.NoError(t, err)
	require.True(t, reply.Acquired)
}

// A repeated release tells whom the first may have granted the lock to only if that is
// so: not what else the key holds.
func TestReleaseOfWhatIsNoLock(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		for _, verb := range [][]any{{"set", "lock", "x"}, {"hset", "lock", "colour", "1"}, {"hset", "lock", own("b:5"), "1", own("b:6"), "1"}} {
			w := newWaiters(t, rdb, grant)
			w.do(rdb, "uuid:7 takes")
			w.do(rdb, "b:1 ask P")
			require.NoError(t, rdb.Del(t.Context(), "lock").Err())
			require.NoError(t, rdb.Do(t.Context(), verb...).Err())
			before := rdb.Dump(t.Context(), "lock").Val()
			require.Equal(t, "lua: not the owner", w.do(rdb, "a:1 release"))
			require.Equal(t, "lua: not the owner", w.do(rdb, "b:1 release b:1"))
			require.Equal(t, before, rdb.Dump(t.Context(), "lock").Val())
			require.Zero(t, rdb.Exists(t.Context(), lua.QueueOf("lock")).Val())
		}
	})
}

// A queue that is none is in the way of those who ask, not of a release.
func TestReleaseWithStrangeQueue(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		for _, lock := range []func(string) lua.Grant{grant, fenced} {
			for _, kind := range []string{"list", "string", "me:1=1 10s"} {
				put(t, rdb, "lock", "me:1=1 20s")
				put(t, rdb, lua.QueueOf("lock"), kind)
				require.Contains(t, calls["ask"](t.Context(), rdb, lock("you:1"), time.Minute), `key "rlock_queue:{lock}" holds a `)
				require.Contains(t, calls["inspect"](t.Context(), rdb, lock("you:1"), time.Minute), `key "rlock_queue:{lock}" holds a `)
				released, err := lua.Release(t.Context(), rdb, lock("me:1"), lua.Ending{Tickets: []string{"me:2"}})
				require.NoError(t, err)
				require.Equal(t, lua.Released{}, released)
				require.Empty(t, show(t, rdb, "lock"))
				require.NotEmpty(t, show(t, rdb, lua.QueueOf("lock")))
			}
		}
	})
}

// Whoever gets the lock by a request that looks at no queue may have a ticket there. It is
// not granted the lock anew when it releases it.
func TestReleaseByTheFirstInTheQueue(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		for kind, lock := range map[string]func(string) lua.Grant{"plain": grant, "fenced": fenced, "fair": fair} {
			t.Run(kind, func(t *testing.T) {
				newWaiters(t, rdb, lock).follow(rdb, true,
					"a listens", "b listens",
					"d:1 ask -> acquired => d:1=1 20s |",
					"a:1 ask P -> refused by d:1, 20s, first, new => d:1=1 20s | a:1P",
					"b:1 ask P -> refused by d:1, 20s, new => d:1=1 20s | a:1P b:1P",
					"- expires",
					"a:1 try -> acquired => a:1=1 20s | a:1P b:1P",
					"a:1 release -> done => b:1=1 10s | !b:1 >> b: grant b:1 for 6s",
				)
			})
		}
	})
}

// A counter that cannot be counted on does not keep the lock from being released, nor
// does the first in the queue lose its place; it learns of it when it asks.
func TestReleaseWithStrangeCounter(t *testing.T) {
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		w := newWaiters(t, rdb, fenced)
		w.hear("b")
		w.follow(rdb, false, "a:1 ask -> acquired", "b:1 ask P -> refused by a:1, 20s, first, new", "c:1 ask P -> refused by a:1, 20s, new")
		require.NoError(t, rdb.Set(t.Context(), fenced("").Counter, "garbage", time.Hour).Err())
		conflict := `lua: key "redisson_lock_token:{lock}" holds a string, not a lock`
		w.follow(rdb, false,
			"a:1 release -> done => | b:1P c:1P",
			"c:1 ask P -> "+conflict+" => | b:1P c:1P",
			"d:1 ask -> "+conflict+" => | b:1P c:1P",
			"d:2 ask P -> "+conflict+" => | b:1P c:1P", // its caller has an error, and leaves nothing
		)
		require.Equal(t, conflict, w.do(rdb, "b:1 ask P"))
	})
}

// Each kind of channel is told once by each release, and listeners of each are foreign ones.
func TestKindsOfChannels(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	node := redistest.StartCluster(t, 1, 0).Nodes[0]
	rdb := node.Client(t)
	for _, tc := range []struct {
		kind     lua.ChannelKind
		ordinary bool
		sharded  bool
	}{{lua.Ordinary, true, false}, {lua.Sharded, false, true}, {lua.Both, true, true}} {
		for _, listens := range []bool{false, true} { // to sharded channels
			grantOf := func(owner string) lua.Grant {
				g := fenced(owner)
				g.ChannelKind = tc.kind
				return g
			}
			w := newWaiters(t, rdb, grantOf)
			sub, heard := subscribe(t, rdb, lua.UnlockChannel("lock"), listens)
			told := tc.ordinary && !listens || tc.sharded && listens
			var announced []string
			if told {
				announced = []string{"-0"}
			}
			w.follow(rdb, false, "a:1 ask -> acquired", "a:1 release -> done => |")
			require.Equal(t, announced, heard())
			w.follow(rdb, false, "a:1 ask -> acquired", "b:1 ask p -> refused by a:1, 20s, first, new")
			if told { // there are foreign waiters
				w.follow(rdb, false, "a:1 release -> done => | b:1p")
			} else {
				w.follow(rdb, false, "a:1 release -> done => b:1=1 10s | !b:1")
			}
			require.Equal(t, announced, heard())
			require.NoError(t, sub.Close())
		}
	}
}

// A server without sharded channels still tells the others.
func TestBothWhereOneIsRefused(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	rdb := user(t, redistest.Start(t), "~*", "&*", "+@all", "-spublish")
	g := grant("me:1")
	g.ChannelKind = lua.Both
	acquire(t, rdb, g)
	released, err := lua.Release(t.Context(), rdb, g, lua.Ending{})
	require.NoError(t, err)
	require.NoError(t, released.PublishErr)
	acquire(t, rdb, g)
	g.ChannelKind = lua.Sharded
	released, err = lua.Release(t.Context(), rdb, g, lua.Ending{})
	require.NoError(t, err)
	require.Error(t, released.PublishErr)
}

// retained are courses of locks that are kept by a client where nobody holds them.
var retained = map[string][]string{
	"and recalled by a ticket": {
		"a listens", "b listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"a:1 retain -> kept: true => a:1=0 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=0 20s | b:1P >> a: wake a:1",
		"c:1 ask P -> refused by a:1, 20s, new => a:1=0 20s | b:1P c:1P >> a: wake a:1",
		"a:1 retain -> kept: false => a:1=0 20s | b:1P c:1P",
		"a:1 release -> done => b:1=1 10s | !b:1 c:1P >> b: grant b:1 for 6s",
		"a:1 retain -> kept: false => b:1=1 10s | !b:1 c:1P",
	},
	"and recalled without a ticket": {
		"a listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"a:1 retain -> kept: true => a:1=0 20s |",
		"b:1 try -> refused by a:1, 20s => a:1=0 20s | >> a: wake a:1",
		"b:2 ask -> refused by a:1, 20s => a:1=0 20s | >> a: wake a:1",
	},
	"although it is nested in": {
		"a listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"a:1 retain -> kept: true => a:1=0 20s |",
		"a:1 count 1 2 -> done => a:1=2 20s |",
		"b:1 try -> refused by a:1, 20s => a:1=2 20s |",
		"a:1 count 1 -> done => a:1=1 20s |",
		"a:1 retain -> kept: true => a:1=0 20s |",
	},
	"not beside those who wait": {
		"a listens", "b listens", "c listens",
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 ask P -> refused by a:1, 20s, first, new => a:1=1 20s | b:1P",
		"a:1 retain -> kept: false => a:1=1 20s | b:1P",
		"a:1 release -> done => b:1=1 10s | !b:1 >> b: grant b:1 for 6s",
		"b:1 retain -> kept: true => b:1=0 10s | !b:1",
		"c:1 ask P -> refused by b:1, 10s, first, new => b:1=0 10s | !b:1 c:1P >> b: wake b:1",
		"b:1 retain -> kept: false => b:1=0 10s | !b:1 c:1P",
		"b:1 release -> done => c:1=1 10s | !c:1 >> c: grant c:1 for 6s",
	},
	"not beside Redisson": {
		"a:1 ask -> acquired => a:1=1 20s |",
		"foreign listens",
		"a:1 retain -> kept: false => a:1=1 20s |",
		"foreign deaf",
		"a:1 retain -> kept: true => a:1=0 20s |",
	},
	"not by others": {
		"a:1 ask -> acquired => a:1=1 20s |",
		"b:1 retain -> kept: false => a:1=1 20s |",
		"- expires",
		"a:1 retain -> kept: false => |",
	},
}

func TestRetained(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(string) lua.Grant{"plain": grant, "fenced": fenced, "fair": fair, "{lock}": named("{lock}"), "{lock}::": named("{lock}::")}
	onEveryProtocol(t, func(t *testing.T, rdb *redis.Client) {
		for kind, lock := range kinds {
			for name, course := range retained {
				for _, again := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, %s, again %t", kind, name, again), func(t *testing.T) {
						newWaiters(t, rdb, lock).follow(rdb, again, course...)
					})
				}
			}
		}
	})
}

// A key that is no lock is left alone.
func TestRetainElsewhere(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		require.NoError(t, rdb.Set(t.Context(), "lock", "text", 0).Err())
		kept, err := lua.Retain(t.Context(), rdb, grant("a:1"))
		require.NoError(t, err)
		require.False(t, kept)
		require.Equal(t, "text", rdb.Get(t.Context(), "lock").Val())
	})
}
