package topology

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

var modes = map[string]rlock.ShardedPubSub{
	"auto": rlock.ShardedAuto, "on": rlock.ShardedOn, "off": rlock.ShardedOff, "both": rlock.ShardedBoth,
}

// Whatever a lock of any kind mentions of its name is a key or channel in its slot.
func TestOneSlot(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 1, 0)
	for mode, sharded := range modes {
		for _, prefix := range []string{"", "app:"} {
			for _, name := range []string{"name", "a{name}b"} {
				t.Run(mode+"/"+prefix+name, func(t *testing.T) {
					monitor := cluster.Nodes[0].Monitor(t)
					c := clientOn(t, cluster.Client(t), &rlock.Options{ShardedPubSub: sharded, Prefix: prefix, Identity: rlock.Anonymous()})
					rw := c.NewRWLock("rw-"+name, rlock.WithFencing())
					for _, mu := range []*rlock.Lock{
						c.NewLock(name, rlock.WithFencing()), c.NewFairLock("fair-"+name, rlock.WithFencing()), rw.Reader(), rw.Writer(),
					} {
						held, hold := lock(t, t.Context(), mu)
						nested, inner := lock(t, held, mu)
						_, err := mu.Inspect(nested)
						require.NoError(t, err)
						require.NoError(t, inner.Unlock(nested))
						// Another client's, as those of one hand the lock on in memory.
						got := wait(t, sameLock(clientOn(t, cluster.Client(t), &rlock.Options{ShardedPubSub: sharded, Prefix: prefix, Identity: rlock.Anonymous()}), mu))
						awaitListener(t, cluster, mu.Name())
						since := time.Now()
						require.NoError(t, hold.Unlock(held))
						served(t, got, since)
						_, err = mu.ForceUnlock(t.Context())
						require.NoError(t, err)
					}
					commands := monitor.Commands()
					monitor.Stop()
					slots, published := make(map[string]map[int]bool), make(map[string]bool)
					for _, cmd := range commands {
						name := strings.ToLower(cmd.Args[0])
						published[name] = true
						if name == "eval" {
							cmd.Args = cmd.Args[2:] // without the source
						}
						for _, arg := range cmd.Args {
							for _, kind := range []string{"fair-", "rw-", ""} {
								if strings.Contains(arg, kind+"name") || strings.Contains(arg, kind+"a{name}b") {
									if slots[kind] == nil {
										slots[kind] = make(map[int]bool)
									}
									slots[kind][cluster.Slot(arg)] = true
									break
								}
							}
						}
					}
					require.Len(t, slots, 3)
					for kind, s := range slots {
						require.Len(t, s, 1, "the names of %q are in different slots", kind)
					}
					require.Equal(t, sharded != rlock.ShardedOff, published["spublish"])
					require.Equal(t, sharded == rlock.ShardedOff || sharded == rlock.ShardedBoth, published["subscribe"])
				})
			}
		}
	}
}

// sameLock returns a plain lock that waits for mu's, or one of its kind.
func sameLock(c *rlock.Client, mu *rlock.Lock) *rlock.Lock {
	switch {
	case strings.HasPrefix(mu.Name(), "fair-"):
		return c.NewFairLock(mu.Name(), rlock.WithFencing())
	case strings.HasPrefix(mu.Name(), "rw-"):
		return c.NewRWLock(mu.Name(), rlock.WithFencing()).Writer()
	}
	return c.NewLock(mu.Name(), rlock.WithFencing())
}

// awaitListener returns when somebody listens to a channel with name in it.
func awaitListener(tb testing.TB, cluster *redistest.Cluster, name string) {
	tb.Helper()
	awaitListeners(tb, cluster, name, 1)
}

// awaitListeners counts each connection in each kind of channel.
func awaitListeners(tb testing.TB, cluster *redistest.Cluster, name string, want int) {
	tb.Helper()
	redistest.Eventually(tb, "somebody listens to "+name, func() bool {
		n := 0
		for _, node := range cluster.Nodes {
			rdb := redis.NewClient(&redis.Options{Addr: node.Addr()})
			ctx := context.Background()
			for _, channel := range rdb.PubSubChannels(ctx, "*").Val() {
				if strings.Contains(channel, name) && !strings.Contains(channel, "probe") {
					n += int(rdb.PubSubNumSub(ctx, channel).Val()[channel])
				}
			}
			for _, channel := range rdb.PubSubShardChannels(ctx, "*").Val() {
				if strings.Contains(channel, name) && !strings.Contains(channel, "probe") {
					n += int(rdb.PubSubShardNumSub(ctx, channel).Val()[channel])
				}
			}
			_ = rdb.Close()
		}
		return n >= want
	})
}

// A release wakes the waiters of other clients, on whatever channels they have
// agreed, also while some have changed to both and others have not.
func TestHandOver(t *testing.T) {
	redistest.Long(t, "two clusters")
	t.Parallel()
	one, three := redistest.StartCluster(t, 1, 0), redistest.StartCluster(t, 3, 0)
	fleets := map[string][]rlock.ShardedPubSub{
		"from off to both": {rlock.ShardedBoth, rlock.ShardedOff},
		"from both to on":  {rlock.ShardedOn, rlock.ShardedBoth},
		"auto after on":    {rlock.ShardedOn, rlock.ShardedAuto},
	}
	for mode, sharded := range modes {
		fleets[mode] = []rlock.ShardedPubSub{sharded, sharded}
	}
	for _, cluster := range []*redistest.Cluster{one, three} {
		for name, fleet := range fleets {
			t.Run(name, func(t *testing.T) {
				var clients []*rlock.Client
				for _, sharded := range fleet {
					clients = append(clients, clientOn(t, cluster.Client(t), &rlock.Options{ShardedPubSub: sharded}))
				}
				for _, key := range []string{"a", "b", "c", "d"} { // on any of the masters
					key += name
					for i, c := range clients {
						held, hold := lock(t, t.Context(), c.NewLock(key))
						got := wait(t, clients[1-i].NewLock(key))
						awaitListener(t, cluster, key)
						since := time.Now()
						require.NoError(t, hold.Unlock(held))
						served(t, got, since)
					}
				}
			})
		}
	}
	// Who tells both reaches everybody at once.
	t.Run("one off, one on, one both", func(t *testing.T) {
		both := clientOn(t, three.Client(t), &rlock.Options{ShardedPubSub: rlock.ShardedBoth})
		for _, other := range []rlock.ShardedPubSub{rlock.ShardedOff, rlock.ShardedOn} {
			mu := both.NewLock("mixed")
			for range 2 { // the other's release reaches both as well
				held, hold := lock(t, t.Context(), mu)
				c := clientOn(t, three.Client(t), &rlock.Options{ShardedPubSub: other})
				got := wait(t, c.NewLock("mixed"))
				awaitListener(t, three, "mixed")
				since := time.Now()
				require.NoError(t, hold.Unlock(held))
				served(t, got, since)

				held, hold = lock(t, t.Context(), c.NewLock("mixed"))
				got = wait(t, mu)
				awaitListeners(t, three, "mixed", 2)
				since = time.Now()
				require.NoError(t, hold.Unlock(held))
				served(t, got, since)
			}
		}
	})
}

// A slot moves, step by step, while a lock in it is held, nested, renewed and
// waited for.
func TestSlotMoves(t *testing.T) {
	redistest.Long(t, "a cluster of three, and its moves")
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	for mode, sharded := range modes {
		t.Run(mode, func(t *testing.T) {
			opts := &rlock.Options{ShardedPubSub: sharded}
			name := "moved " + mode
			mu := clientOn(t, cluster.Client(t), opts).NewLock(name, rlock.WithLeaseTime(2*time.Second), rlock.WithFencing())
			other := clientOn(t, cluster.Client(t), opts).NewLock(name, rlock.WithLeaseTime(time.Minute), rlock.WithFencing())
			slot := cluster.Slot(name)
			var token int64
			for range 2 {
				held, hold := lock(t, t.Context(), mu)
				require.Greater(t, hold.Token(), token)
				token = hold.Token()
				got := wait(t, other)
				awaitListener(t, cluster, name)
				renewed := func(step string) {
					until := hold.Until()
					redistest.Eventually(t, "it is renewed "+step, func() bool { return hold.Until().After(until) })
					nested, inner := lock(t, held, mu)
					require.NoError(t, inner.Unlock(nested), step)
				}
				to := cluster.Another(slot)
				move := cluster.BeginMove(slot, to)
				renewed("before the keys move")
				move.MoveKeys()
				renewed("after the keys have moved")
				move.Finish()
				renewed("on the new node")
				require.NoError(t, held.Err())
				awaitListener(t, cluster, name)
				since := time.Now()
				require.NoError(t, hold.Unlock(held))
				served(t, got, since)
			}
		})
	}
}

// A move that lasts for several leases costs neither a writer nor a reader its hold. A
// writer has no key of a read hold, and a script that declares one that does not exist is
// refused for as long as the slot moves.
func TestSlotMovesUnderAReadWriteLock(t *testing.T) {
	redistest.Long(t, "a cluster, and a move that lasts")
	t.Parallel()
	const lease = 2 * time.Second
	cluster := redistest.StartCluster(t, 2, 0)
	c := clientOn(t, cluster.Client(t), nil)
	var held []context.Context
	var holds []*rlock.Hold
	for _, mu := range []*rlock.Lock{
		c.NewRWLock("{rw}written", rlock.WithLeaseTime(lease)).Writer(), c.NewRWLock("{rw}read", rlock.WithLeaseTime(lease)).Reader(),
	} {
		ctx, hold := lock(t, t.Context(), mu)
		held, holds = append(held, ctx), append(holds, hold)
	}
	kept := func(step string) {
		t.Helper()
		enough := time.Now().Add(3 * lease)
		for i, hold := range holds {
			redistest.Eventually(t, "it is kept "+step, func() bool { return hold.Until().After(enough) || held[i].Err() != nil })
			require.NoError(t, context.Cause(held[i]), "%s: %s", step, hold.Owner())
		}
	}
	slot := cluster.Slot("{rw}")
	to := cluster.Another(slot)
	move := cluster.BeginMove(slot, to)
	kept("before the keys move")
	move.MoveKeys()
	kept("after the keys have moved")
	move.Finish()
	kept("on the new node")
	for i, hold := range holds {
		require.NoError(t, hold.Unlock(held[i]))
	}
}

// stage is a point in the move of a slot.
type stage struct {
	name string
	move func(c *redistest.Cluster, m *redistest.Migration, lock, queue string)
}

// stages are where the keys of a lock may be while its slot moves, if they exist.
var stages = []stage{
	{"before the keys move", func(*redistest.Cluster, *redistest.Migration, string, string) {}},
	{"the lock has moved", func(_ *redistest.Cluster, m *redistest.Migration, lock, _ string) { m.MoveKeys(lock) }},
	{"the queue has moved", func(_ *redistest.Cluster, m *redistest.Migration, _, queue string) { m.MoveKeys(queue) }},
	{"both have moved", func(_ *redistest.Cluster, m *redistest.Migration, _, _ string) { m.MoveKeys() }},
}

// keptWaiting is how long a waiter may sleep whom a message did not reach: until it asks
// by itself.
const keptWaiting = 6 * time.Second

// TestUnlockWhileASlotMoves measures how long an unlock, a waiter, and a lock of somebody
// else take in each stage of the move of their slot. A stage may last for as long as it
// takes to move all other keys. Those who listen by sharded channels do so on the node
// that the slot leaves, so that whatever is sent from the other one does not reach them.
func TestUnlockWhileASlotMoves(t *testing.T) {
	redistest.Long(t, "two clusters, and their moves")
	t.Parallel()
	for mode, sharded := range map[string]rlock.ShardedPubSub{"auto": rlock.ShardedAuto, "off": rlock.ShardedOff} {
		t.Run(mode, func(t *testing.T) {
			cluster := redistest.StartCluster(t, 2, 0)
			opts := &rlock.Options{ShardedPubSub: sharded}
			one, two, three := clientOn(t, cluster.Client(t), opts), clientOn(t, cluster.Client(t), opts), clientOn(t, cluster.Client(t), opts)
			for i, s := range stages {
				limit := prompt
				if mode == "auto" && i > 1 {
					limit = keptWaiting
				}
				for _, waiters := range []int{0, 2} {
					name := fmt.Sprintf("{%s}%d/%d", mode, i, waiters)
					slot := cluster.Slot(name)
					held, hold := lock(t, t.Context(), one.NewLock(name))
					var got []<-chan time.Time
					for n := range waiters {
						got = append(got, wait(t, []*rlock.Client{two, three}[n].NewLock(name)))
						awaitListeners(t, cluster, name, n+1)
					}
					time.Sleep(100 * time.Millisecond) // the newest of them queues
					to := cluster.Another(slot)
					move := cluster.BeginMove(slot, to)
					s.move(cluster, move, name, "rlock_queue:"+name)
					stalls := redistest.WatchStalls()
					since := time.Now()
					require.NoError(t, hold.Unlock(held))
					unlocked := time.Since(since)
					var served []time.Duration
					for _, c := range got {
						select {
						case at := <-c:
							served = append(served, at.Sub(since))
						case <-time.After(8 * time.Second):
							served = append(served, -1)
						}
					}
					stalled := stalls.Total()
					stalls.Stop()
					pair := time.Now()
					again, other := lock(t, t.Context(), two.NewLock(name))
					locked := time.Since(pair)
					require.NoError(t, other.Unlock(again))
					t.Logf("%s, %s, %d waiters: unlocked after %v, waiters served after %v; then locked in %v, and both in %v", mode, s.name, waiters,
						unlocked.Round(time.Millisecond), served, locked.Round(time.Millisecond), time.Since(pair).Round(time.Millisecond))
					assert.Less(t, unlocked, prompt)
					for _, d := range served {
						assert.True(t, d >= 0 && d < limit+stalled, "a waiter was served after %v; the machine stalled for %v", d, stalled)
					}
					assert.Less(t, time.Since(pair), 2*prompt)
					move.MoveKeys()
					move.Finish()
				}
			}
			// Nothing of it stays, except records of who has waited, for half a minute.
			redistest.Eventually(t, "no key is left", func() bool {
				n := 0
				for _, node := range cluster.Nodes {
					rdb := node.Client(t)
					for _, key := range rdb.Keys(context.Background(), "*").Val() {
						if !strings.HasPrefix(key, "rlock_client") {
							n++
						}
					}
				}
				return n == 0
			})
		})
	}
}
