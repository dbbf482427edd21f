package rlock_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// lockNames are n names of locks, in the order of waiting, and in many slots of a cluster.
func lockNames(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("lock%05d", i))
	}
	return names
}

// freeSoon waits until nobody has a lock.
func (s *slowSite) freeSoon(t *testing.T) {
	t.Helper()
	redistest.Eventually(t, "nothing is left", func() bool { return len(s.locks(t)) == 0 })
}

// trips counts the round trips that come one after the other: a request shares the trip of those before it,
// unless one of that trip was answered before.
type trips struct {
	mu       sync.Mutex // guards what follows
	n        int
	answered bool // the newest trip, in part
	commands int
}

func (c *trips) begin(commands int) (trip int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commands += commands
	if c.n == 0 || c.answered {
		c.answered = false
		c.n++
	}
	return c.n
}

func (c *trips) end(trip int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = c.answered || trip == c.n
}

func (c *trips) hook() redistest.Hook {
	return redistest.Hook{
		Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			defer c.end(c.begin(1))
			return next(ctx, cmd)
		},
		Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			defer c.end(c.begin(len(cmds)))
			return next(ctx, cmds)
		},
	}
}

// Free locks in many slots are taken and released in two round trips to each master, all masters at
// once. One goroutine of the call is the first to send, the others share the second trip.
func TestMultiOverMasters(t *testing.T) {
	redistest.Long(t, "waits for a network of 150 ms, and for a quiet machine")
	s := slowCluster(t)
	var mu sync.Mutex
	count := make(map[string]*trips)
	s.rdb.(*redis.ClusterClient).OnNewNode(func(node *redis.Client) {
		mu.Lock()
		defer mu.Unlock()
		c := new(trips)
		count[node.Options().Addr] = c
		node.AddHook(c.hook())
	})
	c := clientOn(t, s.rdb, nil)
	all := rlock.NewMultiLock(locksOf(c, lockNames(200)...)...)
	held, hold := lock(t, t.Context(), all) // the map is loaded, and the servers know the scripts
	require.NoError(t, hold.Unlock(held))
	s.delay(150 * time.Millisecond)
	within := func(f func()) bool {
		mu.Lock()
		for _, c := range count {
			c.mu.Lock()
			c.n, c.commands = 0, 0
			c.mu.Unlock()
		}
		mu.Unlock()
		f()
		mu.Lock()
		defer mu.Unlock()
		most, commands := 0, 0
		for _, c := range count {
			c.mu.Lock()
			most, commands = max(most, c.n), commands+c.commands
			c.mu.Unlock()
		}
		t.Logf("%d round trips, %d commands", most, commands)
		return most <= 2 && commands < 210
	}
	redistest.Eventually(t, "two round trips are enough, if the machine does not stall", func() bool {
		locking := within(func() { held, hold = lock(t, t.Context(), all) })
		require.Len(t, s.locks(t), 200)
		unlocking := within(func() { require.NoError(t, hold.Unlock(held)) })
		require.Empty(t, s.locks(t))
		return locking && unlocking
	})
}

// Whichever member is busy, TryLock takes nothing, and Lock waits with the members before it, and none
// behind it.
func TestMultiOverMastersWaitsInOrder(t *testing.T) {
	t.Parallel()
	s := slowCluster(t)
	c, other := clientOn(t, s.rdb, nil), clientOn(t, s.rdb, nil)
	names := lockNames(12)
	all := rlock.NewMultiLock(locksOf(c, names...)...)
	for i, name := range names {
		_, busy := lock(t, t.Context(), other.NewLock(name))
		var refusal *rlock.NotAcquiredError
		_, _, err := all.TryLock(t.Context())
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, name, refusal.Name)
		redistest.Eventually(t, "nothing is taken", func() bool { return len(s.locks(t)) == 1 })

		done := async(func() error {
			return all.Do(t.Context(), func(context.Context) error {
				if n := len(s.locks(t)); n != len(names) {
					return fmt.Errorf("%d locks are held", n)
				}
				return nil
			})
		})
		redistest.Eventually(t, "it waits, with those before", func() bool {
			state, err := other.NewLock(name).Inspect(t.Context())
			return err == nil && state.Waiters == 1 && slices.Equal(slices.Sorted(maps.Keys(s.locks(t))), names[:i+1])
		})
		require.NoError(t, busy.Unlock(t.Context()))
		require.NoError(t, <-done)
		s.freeSoon(t)
	}
}

// Of several TryLocks of the same locks at once, one has them: they do not refuse each other.
func TestMultiOverMastersOneTryLockWins(t *testing.T) {
	t.Parallel()
	s := slowCluster(t)
	s.delay(2 * time.Millisecond)
	var all []*rlock.MultiLock
	for range 4 {
		all = append(all, rlock.NewMultiLock(locksOf(clientOn(t, s.rdb, nil), lockNames(12)...)...))
		require.NoError(t, all[len(all)-1].Do(t.Context(), nothing))
	}
	for round := range 30 {
		s.freeSoon(t) // on a busy machine a copy of a request may acquire after the Unlock, and is released a second later
		var has atomic.Int64
		var hold *rlock.MultiHold
		refused := make([]error, len(all))
		var callers sync.WaitGroup
		for i, mu := range all {
			callers.Go(func() {
				var h *rlock.MultiHold
				if _, h, refused[i] = mu.TryLock(t.Context()); refused[i] == nil {
					hold = h
					has.Add(1)
				} else {
					assert.ErrorIs(t, refused[i], rlock.ErrNotAcquired)
				}
			})
		}
		callers.Wait()
		require.EqualValues(t, 1, has.Load(), "round %d: %v", round, refused)
		require.NoError(t, hold.Unlock(t.Context()))
	}
}

// Replies are lost on the way from any master: the locks are held all the same, and nothing is left.
func TestMultiOverMastersLosesReplies(t *testing.T) {
	t.Parallel()
	s := slowCluster(t)
	c := clientOn(t, s.rdb, nil)
	all := rlock.NewMultiLock(locksOf(c, lockNames(60)...)...)
	for i := range 20 {
		for _, p := range s.proxies {
			p.CutReplies(1+i%3, netfault.Command("evalsha", "eval"))
		}
		held, hold := lock(t, t.Context(), all)
		require.Len(t, s.locks(t), 60)
		require.NoError(t, hold.Unlock(held))
		s.freeSoon(t)
	}
	for _, p := range s.proxies {
		require.Positive(t, p.Stats().RepliesCut)
		heal(p)
	}
}

// One master is silent. The caller leaves when its context ends, and what the others have granted is
// released; so is what the silent one has, when it is heard again.
func TestMultiOverMastersOneIsSilent(t *testing.T) {
	redistest.Long(t, "has three masters")
	t.Parallel()
	for name, down := range map[string]bool{"hears nothing": false, "is not heard": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := slowCluster(t)
			c := clientOn(t, s.rdb, nil)
			all := rlock.NewMultiLock(locksOf(c, lockNames(60)...)...)
			held, hold := lock(t, t.Context(), all)
			require.NoError(t, hold.Unlock(held))
			silent := s.proxies[1]
			for _, patience := range []time.Duration{300 * time.Millisecond, 3 * time.Second} { // also beyond one attempt
				if silent.DropUp(!down); down {
					silent.DropDown(true)
				}
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				_, _, err := all.Lock(ctx)
				cancel()
				require.ErrorIs(t, err, rlock.ErrUnavailable)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Less(t, time.Since(began), patience+slack)
				redistest.Eventually(t, "the others are free", func() bool {
					return len(s.nodes[0].Keys(t.Context(), "lock*").Val())+len(s.nodes[2].Keys(t.Context(), "lock*").Val()) == 0
				})
				heal(silent)
				s.freeSoon(t)
			}
		})
	}
}

// An Unlock waits for a silent master no longer than UnlockTimeout, and frees what the others have at once.
func TestMultiOverMastersUnlockBesideSilence(t *testing.T) {
	redistest.Long(t, "has three masters")
	t.Parallel()
	s := slowCluster(t)
	c := clientOn(t, s.rdb, &rlock.Options{UnlockTimeout: time.Second})
	held, hold := lock(t, t.Context(), rlock.NewMultiLock(locksOf(c, lockNames(60)...)...))
	s.proxies[1].DropUp(true)
	began := time.Now()
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrUnavailable)
	require.Less(t, time.Since(began), time.Second+slack)
	require.Empty(t, s.nodes[0].Keys(t.Context(), "lock*").Val())
	require.Empty(t, s.nodes[2].Keys(t.Context(), "lock*").Val())
	heal(s.proxies[1])
	s.freeSoon(t)
}

// A server looks at slots though its client is one of a single server: that is found out by the first scripts,
// and then the slots are taken at once.
func TestMultiOfManyLocksWhereSlotsAreLookedAt(t *testing.T) {
	t.Parallel()
	rdb := redistest.StartCluster(t, 1, 0).Nodes[0].Client(t)
	c, all := clientOn(t, rdb, nil), lockNames(300)
	for range 2 {
		held, hold := lock(t, t.Context(), rlock.NewMultiLock(locksOf(c, all...)...))
		require.Len(t, rdb.Keys(t.Context(), "lock*").Val(), len(all))
		require.NoError(t, hold.Unlock(held))
		keysLeft(t, rdb)
	}
	require.NoError(t, rlock.NewMultiLock(locksOf(clientOn(t, rdb, nil), all...)...).TryDo(t.Context(), nothing))
	keysLeft(t, rdb)
}

// A master out of memory grants nothing: the call says so, and gives back what the others have granted.
func TestMultiOverMastersOneIsOutOfMemory(t *testing.T) {
	redistest.Long(t, "has three masters")
	t.Parallel()
	s := slowCluster(t)
	c := clientOn(t, s.rdb, nil)
	all := rlock.NewMultiLock(locksOf(c, lockNames(60)...)...)
	require.NoError(t, all.Do(t.Context(), nothing))
	for _, node := range s.nodes {
		require.NoError(t, node.ConfigSet(t.Context(), "maxmemory", "1").Err())
		for call, do := range map[string]func(context.Context, func(context.Context) error) error{"Lock": all.Do, "TryLock": all.TryDo} {
			err := do(t.Context(), nothing)
			require.ErrorIs(t, err, rlock.ErrUnavailable, call)
			require.ErrorContains(t, err, "OOM", call)
			s.freeSoon(t)
		}
		require.NoError(t, node.ConfigSet(t.Context(), "maxmemory", "0").Err())
		require.NoError(t, all.Do(t.Context(), nothing))
	}
}

// Slots move while the locks are taken and released.
func TestMultiOverMastersWhileSlotsMove(t *testing.T) {
	redistest.Long(t, "each move waits for the nodes to agree")
	cluster := redistest.StartCluster(t, 3, 0)
	rdb := cluster.Client(t)
	s := &slowSite{rdb: rdb}
	for _, node := range cluster.Nodes {
		s.nodes = append(s.nodes, node.Client(t))
	}
	c := clientOn(t, rdb, nil)
	names := lockNames(30)
	all := rlock.NewMultiLock(locksOf(c, names...)...)
	require.NoError(t, all.Do(t.Context(), nothing))
	for _, name := range names[:3] {
		slot := cluster.Slot(name)
		move := cluster.BeginMove(slot, cluster.Another(slot))
		held, hold := lock(t, t.Context(), all)
		require.Len(t, s.locks(t), len(names))
		require.NoError(t, hold.Unlock(held))
		s.freeSoon(t)

		held, hold = lock(t, t.Context(), all)
		move.MoveKeys()
		move.Finish()
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(held))
		s.freeSoon(t)
	}
}

// Callers of four processes want overlapping sets, over slots and clients, each in an order of its own.
// Nobody waits for ever, and nobody has what another has.
func TestMultiOverMastersOverlappingSets(t *testing.T) {
	redistest.Long(t, "has three masters")
	t.Parallel()
	s, two := slowCluster(t), newServer(t)
	const slots, least = 9, 60
	var inside [slots + 3]atomic.Int32
	var rounds, left atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	for range 4 {
		c, d := clientOn(t, s.rdb, nil), newClient(t, two, nil)
		all := append(locksOf(c, lockNames(slots)...), locksOf(d, "lock00000", "lock00004b", "z")...)
		for range 3 {
			callers.Go(func() {
				for rounds.Load() < least && !t.Failed() {
					order := rand.Perm(len(all))[:1+rand.IntN(len(all))]
					var members []*rlock.Lock
					for _, i := range order {
						members = append(members, all[i])
					}
					mu := rlock.NewMultiLock(members...)
					waiting, leave := context.WithTimeout(ctx, time.Duration(1+rand.IntN(20))*20*time.Millisecond)
					if rand.IntN(2) == 0 {
						leave()
						waiting, leave = context.WithCancel(ctx)
					}
					held, hold, err := mu.Lock(waiting)
					leave()
					if err != nil {
						left.Add(1)
						if !assert.NoError(t, ctx.Err(), "%d rounds", rounds.Load()) {
							return
						}
						continue
					}
					for _, i := range order {
						assert.EqualValues(t, 1, inside[i].Add(1), "two hold lock %d", i)
					}
					for _, i := range order {
						inside[i].Add(-1)
					}
					assert.NoError(t, hold.Unlock(held))
					rounds.Add(1)
				}
			})
		}
	}
	callers.Wait()
	t.Logf("%d rounds, %d have left", rounds.Load(), left.Load())
	s.freeSoon(t)
	keysLeft(t, two.Client(t))
}

// A hook ends the goroutine that asks one of two servers, by a panic or by Goexit. The panic comes to the
// caller, and nothing is left; a request that has ended otherwise is made again.
func TestMultiWhoseHookEnds(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(){"panic": func() { panic("hook") }, "Goexit": runtime.Goexit} {
		for _, after := range []bool{false, true} {
			one, two := newServer(t), newServer(t)
			var armed atomic.Bool
			hooked := two.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
			hooked.AddHook(redistest.Hook{Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				stack := make([]byte, 1<<16) // a panic elsewhere would end the program
				if !bytes.Contains(stack[:runtime.Stack(stack, false)], []byte("rlock.(*piece).ask(")) || !armed.CompareAndSwap(true, false) {
					return next(ctx, cmd)
				}
				if after {
					_ = next(ctx, cmd)
				}
				how()
				return nil
			}})
			mu := rlock.NewMultiLock(newClient(t, one, nil).NewLock("a"), clientOn(t, hooked, nil).NewLock("b"))
			require.NoError(t, mu.Do(t.Context(), nothing)) // the servers know the scripts, and answer fast
			armed.Store(true)
			call := func() (panicked any, err error) {
				defer func() { panicked = recover() }()
				return nil, mu.Do(t.Context(), nothing)
			}
			redistest.Eventually(t, "the goroutine of the call has sent the request itself, as the server answers fast", func() bool {
				panicked, err := call()
				require.NoError(t, err)
				require.Equal(t, name == "panic" && !armed.Load(), panicked == "hook", "%v", panicked)
				return !armed.Load()
			})
			keysLeft(t, one.Client(t))
			keysLeft(t, two.Client(t))
		}
	}
}

// mostKeys notes how many keys the scripts of a client have at most: so long a script keeps the server
// from everybody else.
func mostKeys(rdb redis.UniversalClient) *atomic.Int64 {
	most := new(atomic.Int64)
	rdb.AddHook(redistest.Sees(func(_ context.Context, cmd redis.Cmder) {
		if args := cmd.Args(); len(args) > 2 && (args[0] == "evalsha" || args[0] == "eval") {
			if n, ok := args[2].(int); ok && int64(n) > most.Load() {
				most.Store(int64(n))
			}
		}
	}))
	return most
}

// Many locks on one server are taken, renewed and released by scripts of a bounded length. A TryLock of
// the same locks fails as a whole.
func TestMultiOfManyLocks(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	most := mostKeys(rdb)
	c, other := clientOn(t, rdb, nil), newClient(t, srv, nil)
	names := lockNames(1000)
	all := rlock.NewMultiLock(locksOf(c, names...)...)
	held, hold := lock(t, t.Context(), all)
	require.Len(t, rdb.Keys(t.Context(), "lock*").Val(), len(names))
	_, _, err := rlock.NewMultiLock(locksOf(other, names[900:]...)...).TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	require.NoError(t, hold.Unlock(held))
	keysLeft(t, rdb)

	_, busy := lock(t, t.Context(), other.NewLock(names[600]))
	_, _, err = all.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	keysLeft(t, rdb, names[600])
	done := async(func() error { return all.Do(t.Context(), nothing) })
	awaitListener(t, rdb, names[600])
	require.NoError(t, busy.Unlock(t.Context()))
	require.NoError(t, <-done)
	keysLeft(t, rdb)
	require.LessOrEqual(t, most.Load(), int64(2*lua.MaxParts), "lock and queue of each")
}

// So many leases are renewed in time.
func TestMultiOfVeryManyLocksIsRenewed(t *testing.T) {
	redistest.Long(t, "holds locks for a third of a lease")
	const n = 20_000
	srv := newServer(t)
	rdb := srv.Client(t)
	most := mostKeys(rdb)
	c := clientOn(t, rdb, nil)
	held, hold := lock(t, t.Context(), rlock.NewMultiLock(locksOf(c, lockNames(n)...)...))
	latest := time.Now().Add(30 * time.Second)
	redistest.Eventually(t, "all leases are renewed", func() bool { return held.Err() != nil || hold.Until().After(latest) })
	require.NoError(t, held.Err())
	require.EqualValues(t, n, len(lockKeys(t, rdb)))
	require.NoError(t, hold.Unlock(held))
	keysLeft(t, rdb)
	require.LessOrEqual(t, most.Load(), int64(2*lua.MaxParts))
}
