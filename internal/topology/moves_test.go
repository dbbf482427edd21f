package topology

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

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
			// Nothing of it stays.
			redistest.Eventually(t, "no key is left", func() bool {
				n := 0
				for _, node := range cluster.Nodes {
					rdb := node.Client(t)
					n += len(rdb.Keys(context.Background(), "*").Val())
				}
				return n == 0
			})
		})
	}
}
