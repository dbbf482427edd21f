package topology

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// blow is one failover or move.
type blow struct {
	kind         string
	move         bool // of a slot, in which nothing can be forgotten
	from, healed time.Time
	switched     time.Time // another master serves
}

// figures are those of a kind of blow.
type figures struct {
	blows                              int
	across, kept, told, late, unknown  int
	waits                              int
	slept                              time.Duration
	missed                             int
	lossy, violations, withWait, aside int
}

// calm is the time between two blows.
const calm = 3 * time.Second

// TestSeries has masters replaced and slots moved, again and again, while the
// locks on them are held, renewed and waited for by several clients.
func TestSeries(t *testing.T) {
	long(t)
	var mu sync.Mutex // guards tables
	var tables []string
	t.Run("on", func(t *testing.T) {
		t.Run("Sentinel", func(t *testing.T) {
			t.Parallel()
			table := sentinelSeries(t)
			mu.Lock()
			tables = append(tables, table)
			mu.Unlock()
		})
		t.Run("Cluster", func(t *testing.T) {
			t.Parallel()
			table := clusterSeries(t)
			mu.Lock()
			tables = append(tables, table)
			mu.Unlock()
		})
	})
	fmt.Printf("| | blows | holds across | renewed | lost, told in their window | told late | no answer to Unlock | waits | longest beside a free lock | longer than 1 s | two owners, as replication was behind | two owners otherwise | with WithReplicas | bystanders lost |\n|---|%s\n%s",
		strings.Repeat("---|", 13), strings.Join(tables, ""))
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
	p := newParty(t, 3*time.Second, subjects, // a failover takes nearly as long
		func() redis.UniversalClient { return s.Client(t) },
		s.Client(t, func(o *redis.FailoverOptions) {
			o.MaxRetries, o.DialerRetries = -1, 1
			o.DialTimeout, o.ReadTimeout = 200*time.Millisecond, 200*time.Millisecond
		}))
	var blows []blow
	for n := range 21 {
		time.Sleep(calm) // and Sentinels refuse a failover within 4 s of the one before
		old := s.Master()
		b := blow{from: time.Now()}
		switch n % 3 {
		case 0:
			b.kind = "Sentinel: manual failover"
			s.Failover()
			s.AwaitSwitch(old)
			b.switched = time.Now()
		case 1:
			b.kind = "Sentinel: SIGKILL"
			old.Kill()
			s.AwaitSwitch(old)
			b.switched = time.Now()
			s.Rejoin(old)
		case 2:
			b.kind = "Sentinel: SIGSTOP"
			old.Stop()
			s.AwaitSwitch(old)
			b.switched = time.Now()
			old.Cont()
		}
		s.AwaitReplicas()
		b.healed = time.Now()
		t.Logf("%s: switched after %v, healed after %v", b.kind, b.switched.Sub(b.from).Round(time.Millisecond), b.healed.Sub(b.from).Round(time.Millisecond))
		blows = append(blows, b)
	}
	time.Sleep(calm)
	p.end()
	return judge(t, p, subjects, blows)
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
	p := newParty(t, 4*time.Second, subjects, // likewise
		func() redis.UniversalClient { return c.Client(t) },
		c.Client(t, func(o *redis.ClusterOptions) {
			o.DialerRetries, o.MaxRedirects = 1, 3
			o.DialTimeout, o.ReadTimeout = 200*time.Millisecond, 200*time.Millisecond
		}))
	var blows []blow
	for n := range 24 {
		time.Sleep(calm)
		old := c.Owner(slot)
		b := blow{from: time.Now()}
		switch n % 4 {
		case 0:
			b.kind = "Cluster: manual failover"
			c.Failover(c.Replica(old))
			b.switched = time.Now()
		case 1:
			b.kind = "Cluster: SIGKILL"
			old.Kill()
			c.AwaitFailover(old, slot)
			b.switched = time.Now()
			old.Restart()
		case 2:
			b.kind = "Cluster: SIGSTOP"
			old.Stop()
			c.AwaitFailover(old, slot)
			b.switched = time.Now()
			old.Cont()
		case 3:
			b.kind, b.move = "Cluster: slot moves", true
			to := c.Owner(away)
			if old == to {
				to = c.Owner(home)
			}
			c.MoveSlot(slot, to)
			b.switched = time.Now()
		}
		c.AwaitHealthy()
		b.healed = time.Now()
		t.Logf("%s: switched after %v, healed after %v", b.kind, b.switched.Sub(b.from).Round(time.Millisecond), b.healed.Sub(b.from).Round(time.Millisecond))
		blows = append(blows, b)
	}
	time.Sleep(calm)
	p.end()
	return judge(t, p, subjects, blows)
}

// judge counts, and returns rows of the table. A blow's time is from its beginning
// to the one after.
func judge(t *testing.T, p *party, subjects []subject, blows []blow) string {
	table := make(map[string]*figures)
	var kinds []string
	end := time.Now()
	for i, b := range blows {
		f := table[b.kind]
		if f == nil {
			f = &figures{}
			table[b.kind] = f
			kinds = append(kinds, b.kind)
		}
		f.blows++
		next := end
		if i+1 < len(blows) {
			next = blows[i+1].from
		}
		for _, s := range subjects {
			slept := p.slept(s.name, b.from, next)
			f.slept = max(f.slept, slept)
			if slept > prompt {
				f.missed++
				t.Logf("%s (%d): somebody waited %v beside the free lock %s", b.kind, i, slept, s.name)
			}
			f.hold(t, p, s, blows, i, next)
		}
		for _, v := range p.vigils {
			if v.to.After(b.from) && v.to.Before(next) {
				f.waits++
			}
		}
	}
	var rows strings.Builder
	for _, kind := range kinds {
		f := table[kind]
		fmt.Fprintf(&rows, "| %s | %d | %d | %d | %d | %d | %d | %d | %v | %d | %d | %d | %d | %d |\n", kind, f.blows, f.across, f.kept, f.told, f.late,
			f.unknown, f.waits, f.slept.Round(time.Millisecond), f.missed, f.lossy, f.violations, f.withWait, f.aside)
		if f.late+f.missed+f.violations+f.withWait+f.aside > 0 {
			t.Errorf("%s: not everything that must be zero is", kind)
		}
	}
	require.NotEmpty(t, kinds)
	return rows.String()
}

// hold judges the grants of a lock that ended between a blow and the next.
func (f *figures) hold(t *testing.T, p *party, s subject, blows []blow, n int, next time.Time) {
	b := blows[n]
	var before []stay
	for _, st := range p.stays {
		if st.lock != s.name {
			continue
		}
		if st.to.After(b.from) && st.to.Before(next) {
			switch {
			case s.bystander && st.lost:
				f.aside++
			case s.bystander:
			case st.from.Before(b.from) && st.to.After(b.switched) || st.from.Before(b.from) && st.lost:
				f.across++
				switch {
				case st.lost && st.to.After(st.until):
					f.late++
				case st.lost:
					f.told++
				case st.unknown:
					f.unknown++
				default:
					f.kept++
				}
			}
			for _, other := range before {
				if !other.to.After(st.from) || !st.to.After(other.from) {
					continue
				}
				first, second := other, st
				if st.from.Before(other.from) {
					first, second = st, other
				}
				// A failover since the first grant may have forgotten it, or the
				// former master, when it woke up, may have granted it without asking.
				forgotten := slices.ContainsFunc(blows, func(b blow) bool {
					return !b.move && b.from.Before(second.from) && first.from.Before(b.healed)
				})
				t.Logf("%s (%d): two owners of %s, from %v to %v and from %v to %v after it began; replication was behind: %v", b.kind, n, s.name,
					first.from.Sub(b.from), first.to.Sub(b.from), second.from.Sub(b.from), second.to.Sub(b.from), forgotten)
				switch {
				case s.replicas > 0:
					f.withWait++
				case forgotten:
					f.lossy++
				default:
					f.violations++
				}
			}
		}
		before = append(before, st)
	}
}
