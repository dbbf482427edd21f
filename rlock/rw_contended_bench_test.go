package rlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// contender is a client with goroutines that take turns at a lock.
type contender struct {
	lock       *rlock.Lock
	goroutines int
	group      string
}

// compete has the contenders lock for a while, with holds of hold, and reports for each group the median and the
// longest wait, how much less than the most the least client got, and how many got the lock; for all together the
// scripts and messages of the server for each grant.
func compete(b *testing.B, srv *redistest.Server, contenders []contender, hold time.Duration) {
	b.Helper()
	const window, warmup = 4 * time.Second, time.Second
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		var mu sync.Mutex // guards waits and grants
		waits, grants := map[string][]time.Duration{}, make([]int, len(contenders))
		from := time.Now().Add(warmup)
		var wg sync.WaitGroup
		for i, c := range contenders {
			for range c.goroutines {
				wg.Go(func() {
					for ctx.Err() == nil {
						began := time.Now()
						held, h, err := c.lock.Lock(ctx)
						if err != nil {
							assert.ErrorIs(b, err, context.Canceled)
							return
						}
						if now := time.Now(); now.After(from) {
							mu.Lock()
							waits[c.group] = append(waits[c.group], now.Sub(began))
							grants[i]++
							mu.Unlock()
						}
						if hold > 0 {
							time.Sleep(hold)
						}
						assert.NoError(b, h.Unlock(held))
					}
				})
			}
		}
		time.Sleep(warmup)
		before := srv.CommandCalls(b)
		time.Sleep(window)
		after := srv.CommandCalls(b)
		mu.Lock()
		total := 0
		for group, all := range waits {
			slices.Sort(all)
			var of []int
			for i, c := range contenders {
				if c.group == group {
					of = append(of, grants[i])
				}
			}
			total += len(all)
			ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
			b.ReportMetric(ms(all[len(all)/2]), group+"-median-ms")
			b.ReportMetric(ms(all[len(all)-1]), group+"-longest-ms")
			b.ReportMetric(float64(slices.Min(of))/float64(max(slices.Max(of), 1)), group+"-least/most")
			b.ReportMetric(float64(len(all))/window.Seconds(), group+"-grants/s")
		}
		mu.Unlock()
		for command, what := range map[string]string{"evalsha": "scripts/grant", "publish": "messages/grant"} {
			b.ReportMetric(float64(after[command]-before[command])/float64(max(total, 1)), what)
		}
		b.ReportMetric(0, "ns/op")
		cancel()
		wg.Wait()
	}
}

// Clients that write, beside as many that take a plain lock: go test -run xxx -bench Writers -benchtime 1x ./rlock
func BenchmarkWriters(b *testing.B) {
	for _, n := range []int{20, 50} {
		for _, kind := range []string{"plain", "writer"} {
			for _, hold := range []time.Duration{2 * time.Millisecond, 0} {
				b.Run(fmt.Sprintf("%d/%s/%v", n, kind, hold), func(b *testing.B) {
					srv := newServer(b)
					var all []contender
					for range n {
						c := newClient(b, srv, nil)
						l := c.NewLock("a")
						if kind == "writer" {
							l = c.NewRWLock("a").Writer()
						}
						all = append(all, contender{l, 1, kind})
					}
					compete(b, srv, all, hold)
				})
			}
		}
	}
}

// 64 readers of some clients beside four clients that write: go test -run xxx -bench ReadersBeside -benchtime 1x ./rlock
func BenchmarkReadersBesideWriters(b *testing.B) {
	for _, clients := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("%d", clients), func(b *testing.B) {
			srv := newServer(b)
			var all []contender
			for range clients {
				all = append(all, contender{newClient(b, srv, nil).NewRWLock("a").Reader(), 64 / clients, "reader"})
			}
			for range 4 {
				all = append(all, contender{newClient(b, srv, nil).NewRWLock("a").Writer(), 1, "writer"})
			}
			compete(b, srv, all, 5*time.Millisecond)
		})
	}
}
