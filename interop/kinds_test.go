package interop

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// nested: both sides see the same hold counts, and a waiter comes in after the
// last unlock only.
func nested(t *testing.T, p pairing) {
	const depth = 3
	name := lockName()
	holding, watching := p.holder(t, defaultLease), p.other(t, defaultLease)
	holder, waiter, visitor := holding.actor(p.held, name), watching.actor(p.wanted, name), watching.actor(p.wanted, name)
	agree := func(want int) {
		t.Helper()
		n, err := holder.holdCount()
		require.NoError(t, err)
		require.Equal(t, want, n)
		_, shown := p.owner(t, name)
		require.Equal(t, strconv.Itoa(want), shown)
		for _, side := range []party{holding, watching} {
			holds, ttl, err := side.look(p.held, name)
			require.NoError(t, err)
			require.Len(t, holds, 1, side)
			for _, count := range holds {
				require.EqualValues(t, want, count, side)
			}
			require.Greater(t, ttl, defaultLease/2, side)
		}
		n, err = visitor.holdCount()
		require.NoError(t, err)
		require.Zero(t, n, "it is somebody else's")
		ok, err := visitor.tryLock()
		require.NoError(t, err)
		require.False(t, ok)
	}
	for n := range depth {
		require.NoError(t, holder.lock(0).err)
		agree(n + 1)
	}
	got := p.wait(t, waiter, name)
	for n := depth - 1; n > 0; n-- {
		unlocked(t, holder)
		stillOut(t, got, "holds are left")
		agree(n)
	}
	released := unlocked(t, holder)
	took := await(t, got).ended.Sub(released)
	unlocked(t, waiter)
	for _, side := range []party{holding, watching} {
		holds, ttl, err := side.look(p.held, name)
		require.NoError(t, err)
		require.Empty(t, holds, side)
		require.Negative(t, ttl, side)
	}
	require.Less(t, took, woken)
	p.passed(sample{took})
}

// tokens of mixed holders strictly grow in the order in which they held the
// lock, over Java's re-entries too, each of which counts the token up.
func tokens(t *testing.T, s *site, row string) {
	name := lockName()
	inGo, inJava := s.goParty(t, defaultLease), s.javaParty(t, defaultLease)
	var actors []actor
	var sides []string
	for _, p := range []party{inGo, inJava} {
		for range 3 {
			actors, sides = append(actors, p.actor("fenced", name)), append(sides, p.String())
		}
	}
	all, violations := together(t, actors, sides, 2*time.Second)
	slices.SortFunc(all, func(a, b section) int { return cmp.Compare(a.place, b.place) })
	changes := 0
	last := section{}
	for i, o := range all {
		require.EqualValues(t, i+1, o.place)
		require.Greater(t, o.token, last.token, "section %d, %s after %s", i, o.side, last.side)
		if i > 0 && o.side != last.side {
			changes++
		}
		last = o
	}
	require.Zero(t, violations)
	require.Greater(t, changes, 20, "the sides hardly mixed")
	s.report.count(len(all), violations)

	token := last.token
	for range 20 {
		for _, p := range []party{inJava, inGo} {
			a := p.actor("fenced", name)
			outer, inner := a.lock(0), a.lock(0)
			require.NoError(t, outer.err)
			require.NoError(t, inner.err)
			require.Greater(t, outer.token, token, p)
			require.GreaterOrEqual(t, inner.token, outer.token, p)
			token = inner.token
			unlocked(t, a)
			unlocked(t, a)
		}
	}
	s.report.set(row, s.column, fmt.Sprintf("%d tokens, %d changes of side", len(all)+80, changes))
}

// spin: a Java spin lock announces no release, so a Go waiter comes in when the
// TTL it has seen is over, at the latest. Java's spin waiters poll.
func spin(t *testing.T, p pairing) {
	const lease = shortLease
	name := lockName()
	holder, waiter := p.holder(t, lease).actor("spin", name), p.other(t, lease).actor("spin", name)
	require.NoError(t, holder.lock(0).err)
	got := later(func() acquired { return waiter.lock(0) })
	time.Sleep(2 * lease)
	stillOut(t, got, "the holder renews it")
	released := unlocked(t, holder)
	took := await(t, got).ended.Sub(released)
	unlocked(t, waiter)
	p.passed(text(sample{took}.String() + ", lease " + ms(lease) + " ms"))
}
