package interop

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// enough checked sections of each site: 20,000 over two versions and topologies.
const enough = 5200

// exclusion lets two clients of each side, with three actors each, contend for
// one lock. The sections raise a counter in a way that loses updates unless they
// exclude each other, and their times must not overlap.
func exclusion(t *testing.T, s *site, row string) {
	name := lockName()
	var actors []actor
	var sides []string
	for _, p := range []party{
		s.goParty(t, defaultLease), s.goParty(t, defaultLease),
		s.javaParty(t, defaultLease), s.javaParty(t, defaultLease),
	} {
		for range 3 {
			actors, sides = append(actors, p.actor("plain", name)), append(sides, p.String())
		}
	}
	var all []section
	violations := 0
	for len(all) < enough {
		before := len(all)
		sections, seen := together(t, actors, sides, 2*time.Second)
		all, violations = append(all, sections...), violations+seen
		require.Greater(t, len(all), before, "it has come to a standstill")
	}
	slices.SortFunc(all, func(a, b section) int { return a.acquired.Compare(b.acquired) })

	handOvers := make(map[string]sample)
	waits := make(map[string]sample)
	for i, o := range all {
		waits[o.side] = append(waits[o.side], o.acquired.Sub(o.asked))
		if o.place != int64(i+1) {
			violations++ // an update was lost, or the order of the sections is not that of the counter
		}
		if i == 0 {
			continue
		}
		before := all[i-1]
		if o.acquired.Before(before.released) {
			violations++
		}
		// Only while the next was waiting already.
		if o.side != before.side && o.asked.Before(before.released) {
			way := before.side + " → " + o.side
			handOvers[way] = append(handOvers[way], o.acquired.Sub(before.released))
		}
	}
	counter, err := s.rdb.Get(t.Context(), name+":counter").Int()
	require.NoError(t, err)
	s.report.count(len(all), violations)
	require.Equal(t, len(all), counter, "updates were lost")
	require.Zero(t, violations)

	s.report.set(row, s.column, fmt.Sprintf("%d (Go %d, Java %d), %d violations",
		len(all), len(waits["Go"]), len(waits["Java"]), violations))
	for _, way := range []string{"Go → Java", "Java → Go"} {
		s.report.set(row+": hand-off "+way, s.column, handOvers[way].String())
		require.Less(t, handOvers[way].worst(), woken, way)
	}
	for _, side := range []string{"Go", "Java"} {
		s.report.set(row+": wait in "+side, s.column, waits[side].String())
		require.Less(t, waits[side].worst(), woken, side)
	}
}

// together lets actors work at the same time for so long.
func together(t *testing.T, actors []actor, sides []string, d time.Duration) (all []section, violations int) {
	t.Helper()
	var group sync.WaitGroup
	shifts, errs := make([]shift, len(actors)), make([]error, len(actors))
	for i, a := range actors {
		group.Go(func() { shifts[i], errs[i] = a.work(enough, d, true) })
	}
	group.Wait()
	for i, s := range shifts {
		require.NoError(t, errs[i])
		violations += s.violations
		for _, o := range s.sections {
			o.side = sides[i]
			all = append(all, o)
		}
	}
	return all, violations
}

// handOver measures single releases with one waiter, which must not be left to
// the TTL.
func handOver(rounds int) func(*testing.T, pairing) {
	return func(t *testing.T, p pairing) {
		name := lockName()
		holder, waiter := p.holder(t, defaultLease).actor(p.held, name), p.other(t, defaultLease).actor(p.wanted, name)
		var took sample
		for i := range rounds {
			require.NoError(t, holder.lock(0).err)
			got := p.wait(t, waiter, name)
			stillOut(t, got, "the holder has it")
			released := unlocked(t, holder)
			took = append(took, await(t, got).ended.Sub(released))
			require.Less(t, took[i], woken, "round %d", i)
			unlocked(t, waiter)
		}
		p.passed(took)
	}
}

// crowd is 8 actors in so many clients of the holder's side that never stop to
// want the lock, against a single actor of the other side.
func crowd(clients int) func(*testing.T, pairing) {
	return func(t *testing.T, p pairing) {
		const actors, d = 8, 3 * time.Second
		name := lockName()
		many := make([]party, clients)
		for i := range many {
			many[i] = p.holder(t, defaultLease)
		}
		one := p.other(t, defaultLease).actor("plain", name)
		var group sync.WaitGroup
		shifts, errs := make([]shift, actors), make([]error, actors)
		for i := range actors {
			a := many[i%clients].actor("plain", name)
			group.Go(func() { shifts[i], errs[i] = a.work(1e6, d, false) })
		}
		alone, err := one.work(1e6, d, false)
		require.NoError(t, err)
		group.Wait()
		total := 0
		for i, s := range shifts {
			require.NoError(t, errs[i])
			total += len(s.sections)
		}
		var waits sample
		for _, o := range alone.sections {
			waits = append(waits, o.acquired.Sub(o.asked))
		}
		p.passed(text(fmt.Sprintf("%v of %d", waits, total+len(waits))))
		require.Greater(t, len(waits), 5)
		require.Less(t, waits.worst(), woken)
	}
}
