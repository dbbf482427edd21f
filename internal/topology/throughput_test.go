package topology

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// TestThroughput compares a cluster of three masters with a single server, in rounds
// in which they take turns to be the first. It asserts nothing: the figures are those
// of the machine.
func TestThroughput(t *testing.T) {
	long(t)
	single := clientOn(t, redistest.Start(t).Client(t), nil)
	cluster := clientOn(t, redistest.StartCluster(t, 3, 0).Client(t), nil)
	for _, goroutines := range []int{64, 256} {
		var alone, three, ratio []float64
		for n := range 7 {
			var a, b float64
			if n%2 == 0 {
				a = pairsPerSecond(t, single, goroutines)
			}
			b = pairsPerSecond(t, cluster, goroutines)
			if n%2 == 1 {
				a = pairsPerSecond(t, single, goroutines)
			}
			alone, three, ratio = append(alone, a), append(three, b), append(ratio, b/a)
		}
		fmt.Printf("%d goroutines with a lock each, median (min..max) of %d rounds:\n", goroutines, len(ratio))
		fmt.Printf("| | Lock+Unlock per second |\n|---|---|\n| single server | %s |\n| cluster of three masters | %s |\n| ratio | %s |\n",
			spreadOf(alone, 0), spreadOf(three, 0), spreadOf(ratio, 2))
	}
}

// spreadOf formats median, minimum and maximum.
func spreadOf(figures []float64, decimals int) string {
	slices.Sort(figures)
	return fmt.Sprintf("%.*f (%.*f..%.*f)", decimals, figures[len(figures)/2], decimals, figures[0], decimals, figures[len(figures)-1])
}

func pairsPerSecond(t *testing.T, c *rlock.Client, goroutines int) float64 {
	t.Helper()
	const span = 2 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	var pairs atomic.Int64
	var done sync.WaitGroup
	for n := range goroutines {
		mu := c.NewLock(strconv.Itoa(n))
		done.Go(func() {
			for ctx.Err() == nil {
				if mu.Do(t.Context(), func(context.Context) error { return nil }) == nil {
					pairs.Add(1)
				}
			}
		})
	}
	done.Wait()
	return float64(pairs.Load()) / span.Seconds()
}
