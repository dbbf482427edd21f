package rlock_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// name is an address that leads to a server, and later to another. Connections stay where they
// are.
type name struct {
	to atomic.Pointer[redistest.Server]
}

func (n *name) client(t *testing.T, edit ...func(*redis.Options)) *redis.Client {
	return n.to.Load().Client(t, append(edit, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, n.to.Load().Addr())
		}
	})...)
}

// oldScripts is how a server answers that knows no script which says that it writes: before
// Redis 7.
func oldScripts() redistest.Hook {
	return redistest.Hook{Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		for _, cmd := range cmds {
			if args := cmd.Args(); cmd.Name() == "eval" && strings.HasPrefix(args[1].(string), "#!lua") {
				cmd.SetErr(refusal("ERR Error compiling script"))
				return cmd.Err()
			}
		}
		return next(ctx, cmds)
	}}
}

type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// A former master lives on as a replica of its successor, with all connections to it, and the name
// leads there later, or at once: whoever waited before is handed the lock as before.
func TestFormerMasterLivesOn(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		rules string
		old   bool
	}{
		"all rights":            {},
		"no probe channel":      {rules: "resetchannels &rlock_channel:* &redisson_lock__channel:{a}"},
		"before Redis 7":        {old: true},
		"before 7, no channel":  {rules: "resetchannels &rlock_channel:* &redisson_lock__channel:{a}", old: true},
		"no PUBSUB, all others": {rules: "-pubsub"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if !c.old {
				redistest.Since7(t, "a script that says that it writes")
			}
			former, next := newServer(t), newServer(t)
			for _, s := range []*redistest.Server{former, next} {
				require.NoError(t, s.Client(t).ACLSetUser(t.Context(), "u",
					append([]string{"reset", "on", "nopass", "+@all", "allkeys", "allchannels"}, strings.Fields(c.rules)...)...).Err())
			}
			var n name
			n.to.Store(former)
			rdb := n.client(t, func(o *redis.Options) { o.Username, o.Password = "u", "x" })
			if c.old {
				rdb.AddHook(oldScripts())
			}
			waiter := clientOn(t, rdb, &rlock.Options{Identity: rlock.Anonymous()}).NewLock("a")
			others := newClient(t, next, &rlock.Options{Identity: rlock.Anonymous()}).NewLock("a")
			before := newClient(t, former, &rlock.Options{Identity: rlock.Anonymous()}).NewLock("a")
			held, hold := lock(t, t.Context(), before)
			waiting := lockAsync(t.Context(), waiter)
			awaitHearing(t, former.Client(t), "a", 1)
			redistest.Eventually(t, "a connection for probes", func() bool { return len(former.Clients(t, "normal")) > 2 })
			require.NoError(t, hold.Unlock(held))
			await(t, waiting, byTimer)

			host, port, err := net.SplitHostPort(next.Addr())
			require.NoError(t, err)
			require.NoError(t, former.Client(t).ReplicaOf(t.Context(), host, port).Err())
			held, hold = lock(t, t.Context(), others)
			n.to.Store(next)
			waiting = lockAsync(t.Context(), waiter)
			redistest.Eventually(t, "the waiter listens where the lock is", func() bool {
				return len(next.Client(t).PubSubChannels(t.Context(), "rlock_channel:{a}:*").Val()) == 1
			})
			require.NoError(t, hold.Unlock(held))
			await(t, waiting, byTimer)
		})
	}
}

// Plain servers among which a function divides the slots hand locks over by messages.
func TestSlotsOfPlainServers(t *testing.T) {
	t.Parallel()
	for _, mode := range []rlock.ShardedPubSub{rlock.ShardedAuto, rlock.ShardedOff} {
		servers := []*redistest.Server{newServer(t), newServer(t), newServer(t)}
		client := func() *rlock.Client {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{
					{Start: 0, End: 5460, Nodes: []redis.ClusterNode{{Addr: servers[0].Addr()}}},
					{Start: 5461, End: 10922, Nodes: []redis.ClusterNode{{Addr: servers[1].Addr()}}},
					{Start: 10923, End: 16383, Nodes: []redis.ClusterNode{{Addr: servers[2].Addr()}}},
				}, nil
			}})
			t.Cleanup(func() { _ = rdb.Close() })
			return clientOn(t, rdb, &rlock.Options{ShardedPubSub: mode, Identity: rlock.Anonymous()})
		}
		holder, waiter := client(), client()
		var all sync.WaitGroup
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} { // two on each
			all.Go(func() {
				held, hold, err := holder.NewLock(key).Lock(t.Context())
				require.NoError(t, err)
				waiting := lockAsync(t.Context(), waiter.NewLock(key))
				redistest.Eventually(t, key+" has a waiter that listens where its lock is", func() bool {
					for _, s := range servers {
						rdb := s.Client(t)
						if rdb.Exists(t.Context(), key).Val() == 1 {
							channels := rdb.PubSubChannels(t.Context(), "rlock_channel:{"+key+"}:*").Val()
							return len(channels) == 1
						}
					}
					return false
				})
				require.NoError(t, hold.Unlock(held))
				await(t, waiting, byTimer)
			})
		}
		all.Wait()
	}
}
