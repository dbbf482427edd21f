package companion_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

var (
	write = companion.NewScript(`redis.call('hset', KEYS[1], 'is', 'test', 'value', ARGV[1])
return redis.call('hincrby', KEYS[1], 'times', 1)`)
	guarded = companion.NewScript(`if not held(ARGV[1]) then return false end
return redis.call('hset', KEYS[1], 'is', 'test', 'guarded', 1)`)
	tell = companion.NewScript(`announce(ARGV[1], ARGV[2], ARGV[3]) return now()`)
)

func newClient(tb testing.TB, rdb redis.UniversalClient, opts *rlock.Options) *rlock.Client {
	tb.Helper()
	c, err := rlock.New(rdb, opts)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(tb, c.Close(ctx))
	})
	return c
}

func newLock(c *rlock.Client, name string) *rlock.Lock {
	return c.NewLock(name, rlock.WithoutHandoff())
}

func of(tb testing.TB, l *rlock.Lock) *companion.Companion {
	tb.Helper()
	c, err := companion.Of(l, "test")
	require.NoError(tb, err)
	return c
}

func TestNames(t *testing.T) {
	t.Parallel()
	c := newClient(t, redistest.Start(t).Client(t), &rlock.Options{Prefix: "p:"})
	keys := make(map[string]bool)
	for name, want := range map[string]string{
		"a": "rlock_companion:{p:a}", "{a}": "rlock_companion:p:{a}", "b{a}": "rlock_companion:p:b{a}", "p:a": "rlock_companion:{p:p:a}",
	} {
		beside := of(t, newLock(c, name))
		require.Equal(t, want, beside.Key())
		require.Equal(t, "rlock_channel"+want[len("rlock_companion"):]+":companion", beside.Channel())
		require.False(t, keys[want])
		keys[want] = true
	}
	require.NotEqual(t, companion.Key("a"), companion.Key("{a}"), "two locks, two companions")
	for _, l := range []*rlock.Lock{newLock(c, ""), c.NewLock("a", rlock.WithLeaseTime(-1))} {
		_, err := companion.Of(l, "test")
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
	}
}

// Data of another package, or of an application, is an error, and stays as it is.
func TestConflict(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	c := newClient(t, rdb, nil)
	for what, put := range map[string]func(key string) error{
		"job":    func(key string) error { return rdb.HSet(t.Context(), key, "is", "job", "value", "x").Err() },
		"hash":   func(key string) error { return rdb.HSet(t.Context(), key, "value", "x").Err() },
		"string": func(key string) error { return rdb.Set(t.Context(), key, "x", 0).Err() },
		"list":   func(key string) error { return rdb.RPush(t.Context(), key, "x").Err() },
	} {
		beside := of(t, newLock(c, what))
		require.NoError(t, put(beside.Key()))
		before := rdb.Dump(t.Context(), beside.Key()).Val()
		for _, call := range []func() (any, error){
			func() (any, error) { return beside.Run(t.Context(), write, "y") },
			func() (any, error) { return beside.RunHeld(t.Context(), guarded, "owner") },
		} {
			_, err := call()
			require.ErrorIs(t, err, rlock.ErrKeyConflict)
			require.ErrorContains(t, err, beside.Key())
			require.ErrorContains(t, err, what)
			require.Equal(t, before, rdb.Dump(t.Context(), beside.Key()).Val())
		}
		require.NoError(t, rdb.Del(t.Context(), beside.Key()).Err())
		n, err := beside.Run(t.Context(), write, "y")
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		_, err = beside.Run(t.Context(), write, "z")
		require.NoError(t, err, "its own data")
	}
}

func TestHeld(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	mu := newLock(newClient(t, rdb, nil), "held")
	beside := of(t, mu)
	reply, err := beside.RunHeld(t.Context(), guarded, "nobody:1")
	require.NoError(t, err)
	require.Nil(t, reply)
	held, hold, err := mu.Lock(t.Context())
	require.NoError(t, err)
	reply, err = beside.RunHeld(held, guarded, hold.Owner())
	require.NoError(t, err)
	require.EqualValues(t, 2, reply)
	reply, err = beside.RunHeld(held, guarded, "other:1")
	require.NoError(t, err)
	require.Nil(t, reply)
	require.NoError(t, held.Err(), "the question has not harmed the holder")
	require.NoError(t, hold.Unlock(held))
	require.NoError(t, rdb.Set(t.Context(), "held", "x", 0).Err())
	reply, err = beside.RunHeld(t.Context(), guarded, hold.Owner())
	require.NoError(t, err)
	require.Nil(t, reply, "of a key that is no lock")
}

// A replica may lack the newest grant, so it must not say that an owner does not hold the lock.
func TestReplica(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := redistest.Start(t, "--replicaof", strings.Replace(master.Addr(), ":", " ", 1))
	rdb := replica.Client(t)
	redistest.Eventually(t, "the replica follows", func() bool {
		return rdb.Do(t.Context(), "role").Val().([]any)[3] == "connected"
	})
	beside := of(t, newLock(newClient(t, rdb, nil), "a"))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := beside.RunHeld(ctx, guarded, "owner:1")
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.ErrorContains(t, err, "READONLY")
}

// A script is sent until there is an answer, and its own error is one.
func TestRun(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := netfault.New(t, srv.Addr())
	rdb := srv.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
	c := newClient(t, rdb, nil)
	beside := of(t, newLock(c, "run"))
	_, err := beside.Run(t.Context(), write, "x")
	require.NoError(t, err)
	proxy.CutReplies(3, netfault.Command("evalsha"))
	n, err := beside.Run(t.Context(), write, "x")
	require.NoError(t, err)
	require.EqualValues(t, 5, n, "executed four times more: scripts must be safe to repeat")

	_, err = beside.Run(t.Context(), companion.NewScript(`return redis.error_reply('ODD something')`))
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.ErrorContains(t, err, `"run"`)
	require.ErrorContains(t, err, "ODD something")

	srv.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = beside.Run(ctx, write, "x")
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	srv.Cont()
	require.NoError(t, c.Close(t.Context()))
	_, err = beside.Run(t.Context(), write, "x")
	require.ErrorIs(t, err, rlock.ErrClosed)
}

// Messages arrive by the command that the client has found out for the server.
func TestMessages(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(*testing.T) redis.UniversalClient{
		"single": func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client(t) },
		"cluster": func(t *testing.T) redis.UniversalClient {
			redistest.Long(t, "a cluster")
			return redistest.StartCluster(t, 3, 0).Client(t)
		},
	} {
		for _, sharded := range []rlock.ShardedPubSub{rlock.ShardedAuto, rlock.ShardedOff} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rdb := connect(t)
				for _, lock := range []string{"plain", "with{tag}x", "{all}"} {
					beside := of(t, newLock(newClient(t, rdb, &rlock.Options{Prefix: "p:", ShardedPubSub: sharded}), lock))
					other := of(t, newLock(newClient(t, rdb, &rlock.Options{Prefix: "p:", ShardedPubSub: sharded}), lock))
					messages := make(chan string, 10)
					s := beside.Subscribe(func(m string) { messages <- m }, func() {})
					redistest.Eventually(t, "subscribed", s.Live)
					at, err := other.Run(t.Context(), tell, other.Publish(), other.Channel(), "hello "+lock)
					require.NoError(t, err)
					require.WithinDuration(t, time.Now(), time.UnixMilli(at.(int64)), 10*time.Second)
					require.Equal(t, "hello "+lock, <-messages)
					s.Close()
				}
			})
		}
	}
}
