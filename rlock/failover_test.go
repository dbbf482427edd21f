package rlock_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// detour sends the next scripts of a client to a replica that has no data, as a client does that
// looks up its master too late.
type detour struct {
	replica *redis.Client
	left    atomic.Int64 // so many pipelines and lone scripts are still to go there
	begun   atomic.Int64 // so many went there
	taken   atomic.Int64 // so many were answered there
}

func newDetour(t *testing.T, rdb *redis.Client) *detour {
	t.Helper()
	d := &detour{replica: newServer(t).Client(t, func(o *redis.Options) { o.MaxRetries = -1 })}
	require.NoError(t, d.replica.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	// A script that the replica does not know was not answered: its source follows.
	goes := func(send func() error, cmds ...redis.Cmder) (gone bool, err error) {
		if !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") }) || d.left.Add(-1) < 0 {
			return false, nil
		}
		d.begun.Add(1)
		err = send()
		if slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") }) {
			d.left.Store(1)
		} else {
			d.taken.Add(1)
		}
		return true, err
	}
	rdb.AddHook(redistest.Hook{
		Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if gone, err := goes(func() error { return d.replica.Process(ctx, cmd) }, cmd); gone {
				return err
			}
			return next(ctx, cmd)
		},
		Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			gone, err := goes(func() error {
				pipe := d.replica.Pipeline()
				for _, cmd := range cmds {
					_ = pipe.Process(ctx, cmd)
				}
				_, err := pipe.Exec(ctx)
				return err
			}, cmds...)
			if gone {
				return err
			}
			return next(ctx, cmds)
		},
	})
	return d
}

// A replica that has no data answers the next request of each server, whichever request that is. No
// hold is lost, and each Unlock releases the lock on the master.
func TestReplicaWithoutTheDataCostsNoHold(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	for name, kind := range map[string]struct {
		servers int
		lock    func(all ...*rlock.Client) locker[unlocker]
		under   func(all ...*rlock.Client) *rlock.Lock // nests under it, after an Unlock if that downgrades
	}{
		"plain": {servers: 1, lock: func(all ...*rlock.Client) locker[unlocker] { return anyLock[*rlock.Hold]{all[0].NewLock("a")} }},
		"fenced": {servers: 1, lock: func(all ...*rlock.Client) locker[unlocker] {
			return anyLock[*rlock.Hold]{all[0].NewLock("a", rlock.WithFencing())}
		}},
		"fair": {servers: 1, lock: func(all ...*rlock.Client) locker[unlocker] { return anyLock[*rlock.Hold]{all[0].NewFairLock("a")} }},
		"polling": {servers: 1, lock: func(all ...*rlock.Client) locker[unlocker] {
			return anyLock[*rlock.Hold]{all[0].NewLock("a", rlock.WithPolling(rlock.Polling{}))}
		}},
		"reader": {servers: 1, lock: func(all ...*rlock.Client) locker[unlocker] {
			return anyLock[*rlock.Hold]{all[0].NewRWLock("a").Reader()}
		}},
		"writer": {servers: 1, lock: func(all ...*rlock.Client) locker[unlocker] {
			return anyLock[*rlock.Hold]{all[0].NewRWLock("a").Writer()}
		}},
		"downgrade": {
			servers: 1, lock: func(all ...*rlock.Client) locker[unlocker] {
				return anyLock[*rlock.Hold]{all[0].NewRWLock("a").Writer()}
			},
			under: func(all ...*rlock.Client) *rlock.Lock { return all[0].NewRWLock("a").Reader() },
		},
		"multi": {servers: 1, lock: func(all ...*rlock.Client) locker[unlocker] {
			return anyLock[*rlock.MultiHold]{rlock.NewMultiLock(all[0].NewLock("a"), all[0].NewFairLock("b"), all[0].NewRWLock("c").Reader())}
		}},
		"quorum": {servers: 3, lock: func(all ...*rlock.Client) locker[unlocker] {
			return anyLock[*rlock.Hold]{rlock.NewQuorumLock("a", all)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := make(servers, kind.servers)
			var clients []*rlock.Client
			var detours []*detour
			for i := range all {
				all[i] = newServer(t)
				rdb := all[i].Client(t)
				detours = append(detours, newDetour(t, rdb))
				clients = append(clients, clientOn(t, rdb, &rlock.Options{LeaseTime: lease}))
			}
			for _, srv := range all {
				awaitAge(t, srv, lease+time.Second)
			}
			astray := func() {
				for _, d := range detours {
					d.begun.Store(0)
					d.left.Store(1)
				}
			}
			arrived := func(what string) {
				t.Helper()
				for _, d := range detours {
					// A renewal may have gone there instead, and not be back yet.
					require.Positive(t, d.begun.Load(), what)
					d.taken.Store(0)
					d.left.Store(0)
				}
			}
			mu := kind.lock(clients...)
			held, hold := lock(t, t.Context(), mu)
			nest := mu
			if kind.under != nil {
				nest = anyLock[*rlock.Hold]{kind.under(clients...)}
			}

			astray()
			nested, inner, err := nest.Lock(held)
			require.NoError(t, err)
			arrived("nested call")

			astray()
			redistest.Eventually(t, "a renewal goes astray", func() bool {
				return !slices.ContainsFunc(detours, func(d *detour) bool { return d.taken.Load() == 0 })
			})
			arrived("renewal")
			time.Sleep(lease) // others have renewed it
			require.NoError(t, held.Err(), context.Cause(held))

			first, firstOf, last, lastOf := inner, nested, hold, held
			if kind.under != nil {
				first, firstOf, last, lastOf = hold, held, inner, nested
			}
			astray()
			require.NoError(t, first.Unlock(firstOf))
			if name != "quorum" { // may be told in the background
				arrived("nested Unlock")
			}
			require.NoError(t, lastOf.Err(), context.Cause(lastOf))

			astray()
			require.NoError(t, last.Unlock(lastOf))
			arrived("Unlock")
			for _, srv := range all {
				rdb := srv.Client(t)
				redistest.Eventually(t, "the lock is released", func() bool {
					return len(lockKeys(t, rdb)) == 0 || name == "fenced" && rdb.Exists(t.Context(), "a").Val() == 0
				})
			}
		})
	}
}

// anyLock is a lock of any kind, whose holds can be unlocked.
type anyLock[H unlocker] struct{ of locker[H] }

func (a anyLock[H]) Lock(ctx context.Context) (context.Context, unlocker, error) {
	return a.of.Lock(ctx)
}

func (a anyLock[H]) TryLock(ctx context.Context) (context.Context, unlocker, error) {
	return a.of.TryLock(ctx)
}

func (a anyLock[H]) TryLockFor(ctx context.Context, wait time.Duration) (context.Context, unlocker, error) {
	return a.of.TryLockFor(ctx, wait)
}

// A joined hold is confirmed by the master only, and so is a proof.
func TestReplicaWithoutTheDataEndsNoJoinedHold(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	rdb := srv.Client(t)
	d := newDetour(t, rdb)
	mu := clientOn(t, rdb, nil).NewLock("a", rlock.WithLeaseTime(3*time.Second))
	d.left.Store(1)
	joined, mine := join(t, t.Context(), mu, hold.Proof())
	require.Positive(t, d.taken.Swap(0), "Join")
	d.left.Store(1)
	redistest.Eventually(t, "a confirmation goes astray", func() bool { return d.taken.Load() > 0 })
	time.Sleep(3 * time.Second)
	require.NoError(t, joined.Err(), context.Cause(joined))
	require.NoError(t, mine.Unlock(joined))
	require.NoError(t, hold.Unlock(held))
}
