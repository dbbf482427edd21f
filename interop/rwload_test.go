package interop

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// visited is a section of a reader or a writer.
type visited struct {
	section
	shared bool
}

// enoughVisits of each site.
const enoughVisits = 1500

// missed returns who left at the beginning of the longest time within a wait in which nobody left, and how long
// that was: the waiter has slept through that release. It is 0 if nobody left while the waiter waited.
func missed(all []visited, waiter visited) (last visited, asleep time.Duration) {
	left := slices.DeleteFunc(slices.Clone(all), func(v visited) bool {
		return v.done.Before(waiter.asked) || !v.released.Before(waiter.acquired)
	})
	slices.SortFunc(left, func(a, b visited) int { return a.released.Compare(b.released) })
	for i, v := range left {
		next := waiter.acquired
		if i+1 < len(left) {
			next = left[i+1].released
		}
		if d := next.Sub(v.released); d > asleep {
			last, asleep = v, d
		}
	}
	return last, asleep
}

// readWriteLoad lets two clients of each side, with three actors each, read
// thrice and write once, and again. Writers raise the counter in a way that
// loses updates unless they are alone; readers see the newest value. A thread in Java may sleep through the
// release of a writer in Java, see early, and through no other one.
func readWriteLoad(t *testing.T, s *site, row string) {
	name := lockName()
	var all []visited
	violations := 0
	for round := 0; len(all) < enoughVisits; round++ {
		before := len(all)
		visits, seen := s.visits(t, name, 2*time.Second)
		all, violations = append(all, visits...), violations+seen
		require.Greater(t, len(all), before, "it has come to a standstill")
	}
	slices.SortFunc(all, func(a, b visited) int { return a.acquired.Compare(b.acquired) })

	var written int64
	var writer time.Time                     // when the latest one has left
	readers := make(map[string]time.Time)    // by side, the same
	waits, met := make(map[string]sample), 0 // by who; readers that met one of the other side
	slept := 0                               // in Java, through the release of a writer in Java
	for _, o := range all {
		inGo, inJava := readers["Go"], readers["Java"]
		who, wait := "writers in "+o.side, o.acquired.Sub(o.asked)
		if o.shared {
			who = "readers in " + o.side
		}
		overslept := o.side == "Java" && wait >= woken
		if overslept {
			last, asleep := missed(all, o)
			overslept = asleep >= woken && last.side == "Java" && !last.shared
		}
		if overslept {
			slept++
		} else {
			waits[who] = append(waits[who], wait)
		}
		if o.shared {
			if o.side == "Go" && o.acquired.Before(inJava) || o.side == "Java" && o.acquired.Before(inGo) {
				met++
			}
			if o.released.After(readers[o.side]) {
				readers[o.side] = o.released
			}
		} else {
			written++
		}
		if o.place != written || o.acquired.Before(writer) || !o.shared && (o.acquired.Before(inGo) || o.acquired.Before(inJava)) {
			violations++
		}
		if !o.shared {
			writer = o.released
		}
	}
	counter, err := s.rdb.Get(t.Context(), name+":counter").Int64()
	require.NoError(t, err)
	s.report.count(len(all), violations)
	require.Equal(t, written, counter, "updates were lost")
	require.Zero(t, violations)
	require.Greater(t, met, 20, "readers of the two sides hardly met")
	s.report.set(row, s.column, fmt.Sprintf("%d (%d writes), %d with a reader of the other side inside, %d violations, %d slept in Java after a writer in Java",
		len(all), written, met, violations, slept))
	for _, who := range []string{"readers in Go", "readers in Java", "writers in Go", "writers in Java"} {
		s.report.set(row+": wait of "+who, s.column, waits[who].String())
		require.Less(t, waits[who].worst(), woken, who)
	}
}

// visits lets two clients of each side, with three actors each, go in and out at
// the same time for so long.
func (s *site) visits(t *testing.T, name string, d time.Duration) (all []visited, violations int) {
	t.Helper()
	parties := []party{
		s.goParty(t, defaultLease), s.goParty(t, defaultLease),
		s.javaParty(t, defaultLease), s.javaParty(t, defaultLease),
	}
	var group sync.WaitGroup
	var mu sync.Mutex        // guards the results
	end := time.Now().Add(d) // a JVM that is cold takes seconds for its clients
	for _, p := range parties {
		for range 3 {
			reader, writer := p.actor("read", name), p.actor("write", name)
			group.Go(func() {
				for time.Now().Before(end) {
					for _, a := range []actor{reader, writer} {
						most := 1
						if a == reader {
							most = 3
						}
						work, err := a.work(most, d, true)
						mu.Lock()
						assert.NoError(t, err)
						violations += work.violations
						for _, o := range work.sections {
							o.side = p.String()
							all = append(all, visited{o, a == reader})
						}
						mu.Unlock()
					}
				}
			})
		}
	}
	group.Wait()
	return all, violations
}
