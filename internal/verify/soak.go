package verify

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// reading is what the parties take up, between two rounds.
type reading struct {
	heap        uint64 // after a collection, all parties together
	goroutines  int
	connections int
}

// soak runs a mixed load with one random fault after the other, in processes that stay.
func soak(t *testing.T, d time.Duration) {
	s := size{histories: 20, clients: 5, steps: 6, fault: 2 * time.Second, keep: true}
	rows := portable()
	seed := seed(t)
	w := newWorld(t, fault{name: "soak"}, seed, redistest.Start(t).Addr())
	order := random(seed, "soak")

	var total figures
	var readings []reading
	interval := min(time.Minute, d/10)
	for start, next := time.Now(), interval; time.Since(start) < d; {
		w.row = rows[order.IntN(len(rows))]
		total.sum(w.round(total.histories, s))
		if at := time.Since(start); at >= next {
			r := w.read()
			first := ""
			if readings = append(readings, r); len(readings) == 1 {
				first = " (not counted)"
			}
			fmt.Printf("%7v  heap %5d KiB  goroutines %3d  connections %3d  histories %6d  operations %8d  violations %d  missed %d%s\n",
				at.Round(time.Second), r.heap>>10, r.goroutines, r.connections, total.histories, total.operations, total.violations, total.missed, first)
			next = at + interval
		}
	}
	w.leftovers(&total, false)
	print(os.Stdout, []row{{"soak, " + d.String(), plain, total}})
	require.True(t, total.clean())
	require.GreaterOrEqual(t, len(readings), 3, "too short to tell")
	flat(t, readings[1:])
}

// portable are the rows that need no servers, client, user or crowd of their own, leave no
// silent connections behind, and in which all processes survive.
func portable() (rows []fault) {
	for _, r := range matrix() {
		if r.args == nil && r.setUp == nil && r.kind == "" && !r.kills && !r.crowd && !r.alone && r.lock.masters() == 1 {
			rows = append(rows, r)
		}
	}
	return rows
}

func (w *world) read() (r reading) {
	w.tell("sample")
	for _, answer := range w.expect("sample", 10*time.Second) {
		var heap uint64
		var goroutines int
		_, err := fmt.Sscan(answer, &heap, &goroutines)
		require.NoError(w, err)
		r.heap += heap
		r.goroutines += goroutines
	}
	r.connections = len(w.connections())
	return r
}

// flat compares the second half with the first. Some are always in between: a
// subscription that lingers, a pool that has shrunk with a fault.
func flat(t *testing.T, readings []reading) {
	t.Helper()
	mean := func(rs []reading) (heap, goroutines, connections float64) {
		for _, r := range rs {
			heap += float64(r.heap) / float64(len(rs))
			goroutines += float64(r.goroutines) / float64(len(rs))
			connections += float64(r.connections) / float64(len(rs))
		}
		return heap, goroutines, connections
	}
	half := len(readings) / 2
	heap1, goroutines1, _ := mean(readings[:half])
	heap2, goroutines2, connections2 := mean(readings[half:])
	require.Less(t, heap2, heap1*1.2+parties<<20, "memory grows")
	require.Less(t, goroutines2, goroutines1+5*parties, "goroutines grow")
	// The two pools of a go-redis client and its subscription.
	require.LessOrEqual(t, connections2, float64(parties*(2*10*runtime.GOMAXPROCS(0)+1)), "connections grow")
}
