package topology

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// TestThroughput compares a cluster of three masters with a single server, in
// pairs of runs one right after the other.
func TestThroughput(t *testing.T) {
	long(t)
	single := clientOn(t, redistest.Start(t).Client(t), nil)
	cluster := clientOn(t, redistest.StartCluster(t, 3, 0).Client(t), nil)
	for range 3 {
		alone, three := pairsPerSecond(t, single), pairsPerSecond(t, cluster)
		t.Logf("64 goroutines on 64 locks, Lock+Unlock per second: single server %.0f, cluster of three masters %.0f: ratio %.2f", alone, three, three/alone)
		require.Positive(t, three)
	}
}

func pairsPerSecond(t *testing.T, c *rlock.Client) float64 {
	t.Helper()
	const span = 3 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	var pairs atomic.Int64
	var done sync.WaitGroup
	for n := range 64 {
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
