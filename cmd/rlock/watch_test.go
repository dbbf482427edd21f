package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The first release is shown at once, what follows is added up, and the end of a burst is
// forgotten, so that the next release is shown at once again.
func TestSumsOfReleases(t *testing.T) {
	var shown []event
	w := &watch{sums: make(map[string]*sum), show: func(e event) error { shown = append(shown, e); return nil }}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	release := func(name string, ms ...int) {
		for _, ms := range ms {
			require.NoError(t, w.released(name, at(ms)))
		}
	}
	second := func(ms int, want ...event) {
		t.Helper()
		require.NoError(t, w.tell(w.summed(at(ms), time.Second/2)))
		require.Equal(t, want, shown)
		shown = nil
	}
	one := func(name string, ms int) event { return event{At: at(ms), Event: "released", Lock: name} }
	many := func(name string, ms, times int, within time.Duration) event {
		return event{At: at(ms), Event: "released", Lock: name, times: times, within: within}
	}

	release("b", 100, 200, 300)
	release("a", 400, 500, 501)
	release("late", 900, 950)
	second(1000, one("b", 100), one("a", 400), one("late", 900), many("a", 1000, 2, 600*time.Millisecond), many("b", 1000, 2, 900*time.Millisecond))
	release("a", 1500)
	second(2000, one("a", 1500), one("late", 950)) // late has counted for long enough now, and b is forgotten
	release("b", 2100)
	second(3000, one("b", 2100))
	release("b", 3001, 3101, 3201)
	require.NoError(t, w.tell(w.summed(at(3301), 0))) // a signal: nothing is left out
	second(4000, one("b", 3001), many("b", 3301, 2, 300*time.Millisecond))
	second(5000)
	require.Empty(t, w.sums, "of locks that are not released any more")
}
