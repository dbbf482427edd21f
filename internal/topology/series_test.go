package topology

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// blow is one failover or move.
type blow struct {
	kind         string
	move         bool // of a slot, in which nothing can be forgotten
	woke         bool // the former master woke up at switched
	from, healed time.Time
	switched     time.Time         // when the test saw that another master serves
	reachable    time.Time         // since when clients could find it; zero: since it serves
	old, master  *redistest.Server // nil for a quorum, of which one server fails
}

// stroke is a kind of blow. strike returns when another master serves, heal when all
// is well again.
type stroke struct {
	kind   string
	move   bool
	wakes  bool // heal begins with that
	strike func(old *redistest.Server)
	heal   func(old *redistest.Server)
}

// calm is the time between two blows.
const calm = 3 * time.Second

// deal has the strokes strike in turn.
func deal(t *testing.T, n int, strokes []stroke, master func() *redistest.Server) (blows []blow) {
	for i := range n {
		s := strokes[i%len(strokes)]
		time.Sleep(calm) // and Sentinels refuse a failover within 4 s of the one before
		b := blow{kind: s.kind, move: s.move, woke: s.wakes, old: master(), from: time.Now()}
		s.strike(b.old)
		b.switched, b.master = time.Now(), master()
		if s.heal != nil {
			s.heal(b.old)
		}
		b.healed = time.Now()
		t.Logf("%s: switched after %v, healed after %v", b.kind, b.switched.Sub(b.from).Round(time.Millisecond), b.healed.Sub(b.from).Round(time.Millisecond))
		blows = append(blows, b)
	}
	time.Sleep(calm)
	return blows
}

// TestSeries has masters replaced, added and removed, and slots moved, again and
// again, while the locks on them are held, renewed and waited for by several
// clients.
func TestSeries(t *testing.T) {
	long(t)
	var mu sync.Mutex // guards rows
	var rows strings.Builder
	t.Run("on", func(t *testing.T) {
		for name, series := range map[string]func(*testing.T) string{
			"Sentinel": sentinelSeries, "Cluster": clusterSeries, "Quorum": quorumSeries,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				table := series(t)
				mu.Lock()
				defer mu.Unlock()
				rows.WriteString(table)
			})
		}
	})
	fmt.Print(heading + rows.String())
}

// clients returns the party's locks on clients of their own.
func clients(t *testing.T, lease time.Duration, dial func() *rlock.Client) func(int, subject) *rlock.Lock {
	var all []*rlock.Client
	for range members {
		all = append(all, dial())
	}
	return func(member int, s subject) *rlock.Lock {
		return all[member].NewLock(s.name, append(s.options(), rlock.WithLeaseTime(lease))...)
	}
}

func sentinelSeries(t *testing.T) string {
	s := redistest.StartSentinels(t)
	subjects := []subject{
		{name: "a", lingerings: 4},
		{name: "b", lingerings: 4},
		{name: "c", lingerings: 2},
		{name: "d"},
		{name: "safe1", replicas: 2, lingerings: 4},
		{name: "safe2", replicas: 2, lingerings: 2},
	}
	const lease = 6 * time.Second // a failover takes less, mostly
	p := newParty(t, lease+2*time.Second, subjects, clients(t, lease, func() *rlock.Client { return clientOn(t, s.Client(t), nil) }))
	for _, server := range s.Servers {
		p.watch(server)
	}
	await := func(old *redistest.Server) { s.AwaitSwitch(old) }
	blows := deal(t, 21, []stroke{
		{
			kind:   "Sentinel: manual failover",
			strike: func(old *redistest.Server) { s.Failover(); await(old) },
			heal:   func(*redistest.Server) { s.AwaitReplicas() },
		},
		{kind: "Sentinel: SIGKILL", strike: func(old *redistest.Server) { old.Kill(); await(old) }, heal: s.Rejoin},
		{
			kind: "Sentinel: SIGSTOP", wakes: true,
			strike: func(old *redistest.Server) { old.Stop(); await(old) },
			heal:   func(old *redistest.Server) { old.Cont(); s.AwaitReplicas() },
		},
	}, s.Master)
	for i := range blows { // when all Sentinels name it: a client asks one of them
		blows[i].reachable = blows[i].switched
	}
	p.end()
	return judge(t, p, blows)
}

func clusterSeries(t *testing.T) string {
	c := redistest.StartCluster(t, 3, 1)
	// All of one slot, so that each blow meets all of them.
	subjects := []subject{
		{name: "{s}a", lingerings: 4},
		{name: "{s}b", lingerings: 4},
		{name: "{s}c", lingerings: 2},
		{name: "{s}d"},
		{name: "{s}safe1", replicas: 1, lingerings: 4},
		{name: "{s}safe2", replicas: 1, lingerings: 2},
	}
	slot := c.Slot("{s}a")
	const shard = 16384 / 3
	home, away, aside := slot^1, (slot+shard)%16384, (slot+2*shard)%16384 // one on each master
	require.NotSame(t, c.Owner(home), c.Owner(away))
	for i := range 100 { // on the master to which nothing happens
		if name := fmt.Sprintf("aside%d", i); c.Owner(c.Slot(name)) == c.Owner(aside) {
			subjects = append(subjects, subject{name: name, bystander: true, lingerings: 4})
			break
		}
	}
	const lease = 8 * time.Second // likewise
	p := newParty(t, lease+2*time.Second, subjects, clients(t, lease, func() *rlock.Client { return clientOn(t, c.Client(t), nil) }))
	for _, server := range c.Nodes {
		p.watch(server)
	}
	await := func(old *redistest.Server) { c.AwaitFailover(old, slot) }
	healthy := func(*redistest.Server) { c.AwaitHealthy() }
	blows := deal(t, 24, []stroke{
		{kind: "Cluster: manual failover", strike: func(old *redistest.Server) { c.Failover(c.Replica(old)) }, heal: healthy},
		{
			kind: "Cluster: SIGKILL", strike: func(old *redistest.Server) { old.Kill(); await(old) },
			heal: func(old *redistest.Server) { old.Restart(); c.AwaitHealthy() },
		},
		{
			kind: "Cluster: SIGSTOP", wakes: true, strike: func(old *redistest.Server) { old.Stop(); await(old) },
			heal: func(old *redistest.Server) { old.Cont(); c.AwaitHealthy() },
		},
		{kind: "Cluster: slot moves", move: true, strike: func(old *redistest.Server) {
			to := c.Owner(away)
			if old == to {
				to = c.Owner(home)
			}
			c.MoveSlot(slot, to)
		}},
		{kind: "Cluster: slot moves to an added node", move: true, strike: func(*redistest.Server) {
			added := c.AddNode()
			p.watch(added)
			c.AddReplica(added)
			c.MoveSlot(slot, added)
		}},
		{
			kind: "Cluster: its node is removed", move: true,
			strike: func(*redistest.Server) { c.MoveSlot(slot, c.Owner(home)) },
			heal: func(old *redistest.Server) {
				c.RemoveNode(c.Replica(old))
				c.RemoveNode(old)
			},
		},
	}, func() *redistest.Server { return c.Owner(slot) })
	p.end()
	return judge(t, p, blows)
}
