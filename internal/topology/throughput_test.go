package topology

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// TestThroughput compares a cluster of three masters with a single server, in rounds
// in which they take turns to be the first; then both a millisecond away. It asserts
// nothing: the figures are those of the machine.
func TestThroughput(t *testing.T) {
	long(t)
	server, nodes := redistest.Start(t), redistest.StartCluster(t, 3, 0)
	for _, rtt := range []time.Duration{0, time.Millisecond} {
		dial := dialer(t, rtt, append(nodes.Nodes, server)...)
		single := clientOn(t, server.Client(t, func(o *redis.Options) { o.Dialer = dial }), nil)
		cluster := clientOn(t, nodes.Client(t, func(o *redis.ClusterOptions) { o.Dialer = dial }), nil)
		for _, goroutines := range []int{64, 256} {
			compareThroughput(t, rtt, goroutines, single, cluster)
		}
	}
}

// dialer returns what connects to servers by way of proxies, a round trip away.
func dialer(t *testing.T, rtt time.Duration, servers ...*redistest.Server) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	proxies := make(map[string]string)
	for _, s := range servers {
		if proxies[s.Addr()] = s.Addr(); rtt > 0 {
			p := netfault.New(t, s.Addr())
			p.Delay(rtt/2, rtt/2)
			proxies[s.Addr()] = p.Addr()
		}
	}
	var d net.Dialer
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return d.DialContext(ctx, network, proxies[addr])
	}
}

func compareThroughput(t *testing.T, rtt time.Duration, goroutines int, single, cluster *rlock.Client) {
	t.Helper()
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
	fmt.Printf("%d goroutines with a lock each, %v away, median (min..max) of %d rounds:\n", goroutines, rtt, len(ratio))
	fmt.Printf("| | Lock+Unlock per second |\n|---|---|\n| single server | %s |\n| cluster of three masters | %s |\n| ratio | %s |\n",
		spreadOf(alone, 0), spreadOf(three, 0), spreadOf(ratio, 2))
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
