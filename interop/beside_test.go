package interop

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// Of the figures of one side beside the other.
const (
	besideProcesses = 8
	besideWarmup    = time.Second
	besideWindow    = 3 * time.Second
)

// TestFiguresBeside measures one thread in Java beside busy Go processes: its share
// of the turns at one plain lock, against that of each process, and its waits.
func TestFiguresBeside(t *testing.T) {
	needed(t)
	if redistest.RaceEnabled {
		t.Skip("the race detector slows one side down: run without -race")
	}
	srv := newServer(t, "standalone")
	var busy []*remoteParty
	for range besideProcesses {
		busy = append(busy, newRemoteParty(t, "Go", goPeer(t), "standalone", srv.Addr(), defaultLease))
	}
	var columns []string
	for _, version := range versions() {
		columns = append(columns, "Redisson "+version)
	}
	rep := newReport("Figures, Java beside Go", "scenario", columns...)
	for i, version := range versions() {
		run := build(t, version)
		java := newRemoteParty(t, "Java", startProcess(t, run()), "standalone", srv.Addr(), defaultLease)
		for row, goroutines := range []int{1, 8} {
			beside(t, java, busy, goroutines) // warms the JVM up
			var share []float64
			var waits sample
			for range rounds {
				c := beside(t, java, busy, goroutines)
				share = append(share, shareOfTurns(c))
				waits = append(waits, c.waitsOf[besideProcesses]...)
			}
			title := fmt.Sprintf("%d Go processes with %d goroutines and one thread in Java, one lock: ", besideProcesses, goroutines)
			rep.set(fmt.Sprintf("%d %sJava's share of its fair share of turns", 2*row, title), columns[i], fmt.Sprintf("%.2f", middle(share)))
			rep.set(fmt.Sprintf("%d … its wait", 2*row+1), columns[i], waits.String())
		}
	}
	rep.write(t, fmt.Sprintf("%d rounds of %v. Shares: the middle one of the rounds; waits: median / worst (how many).", rounds, besideWindow))
}

// beside lets everybody want the lock for a while. The contest is between the
// processes, Java the last.
func beside(t *testing.T, java *remoteParty, busy []*remoteParty, goroutines int) contest {
	t.Helper()
	name := lockName()
	var actors []*remoteActor
	var process []int
	for i, p := range append(busy[:len(busy):len(busy)], java) {
		n := goroutines
		if p == java {
			n = 1
		}
		for range n {
			actors, process = append(actors, p.actor("plain", name).(*remoteActor)), append(process, i)
		}
	}
	shifts := later(func() []shift { return working(t, actors, besideWarmup+besideWindow+wideTail, 0) })
	time.Sleep(besideWarmup)
	begin := time.Now()
	time.Sleep(besideWindow)
	end := time.Now()
	byProcess := make([]shift, len(busy)+1)
	for i, s := range <-shifts {
		sections := &byProcess[process[i]].sections
		*sections = append(*sections, s.sections...)
	}
	c := within(byProcess, begin, end)
	require.Positive(t, c.handovers)
	return c
}

// shareOfTurns is that of the last, 1 if it is as great as that of the others.
func shareOfTurns(c contest) float64 {
	total := 0
	for _, n := range c.turns {
		total += n
	}
	return float64(c.turns[len(c.turns)-1]*len(c.turns)) / float64(max(total, 1))
}
