package rlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// Many free locks at once, on one server and on three masters, 1 ms away:
//
//	go test -run xxx -bench 'MultiLock$' -benchtime 20x ./rlock
//	go test -run xxx -bench 'MultiLock$/server/20000' -benchtime 3x ./rlock
func BenchmarkMultiLock(b *testing.B) {
	for _, site := range []struct {
		name   string
		start  func(testing.TB) *slowSite
		ranges []int
	}{{"server", slowServer, []int{3, 100, 1000, 20_000}}, {"cluster", slowCluster, []int{3, 100, 1000}}} {
		for _, n := range site.ranges {
			b.Run(site.name+"/"+strconv.Itoa(n), func(b *testing.B) {
				s := site.start(b)
				c := clientOn(b, s.rdb, nil)
				var members []*rlock.Lock
				for i := range n {
					members = append(members, c.NewLock("lock"+strconv.Itoa(i)))
				}
				held, hold := lock(b, b.Context(), rlock.NewMultiLock(members...)) // the servers get to know the scripts
				require.NoError(b, hold.Unlock(held))
				s.delay(time.Millisecond)
				for _, node := range s.nodes {
					require.NoError(b, node.ConfigSet(b.Context(), "slowlog-log-slower-than", "1000").Err())
					require.NoError(b, node.Do(b.Context(), "slowlog", "reset").Err())
				}
				var making, locking, unlocking time.Duration
				for b.Loop() {
					began := time.Now()
					all := rlock.NewMultiLock(members...)
					made := time.Now()
					held, hold := lock(b, b.Context(), all)
					locked := time.Now()
					require.NoError(b, hold.Unlock(held))
					making, locking, unlocking = making+made.Sub(began), locking+locked.Sub(made), unlocking+time.Since(locked)
				}
				for unit, took := range map[string]time.Duration{"ms/new": making, "ms/lock": locking, "ms/unlock": unlocking} {
					b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), unit)
				}
				b.ReportMetric(float64(longestScript(b, s.nodes).Microseconds())/1000, "ms/longest")
			})
		}
	}
}

// longestScript is the longest script of more than 1 ms in the slow logs.
func longestScript(tb testing.TB, nodes []*redis.Client) (longest time.Duration) {
	tb.Helper()
	for _, node := range nodes {
		slow, err := node.SlowLogGet(tb.Context(), -1).Result()
		require.NoError(tb, err)
		for _, s := range slow {
			if len(s.Args) > 0 && (s.Args[0] == "evalsha" || s.Args[0] == "eval") {
				longest = max(longest, s.Duration)
			}
		}
	}
	return longest
}

// Sixteen callers in four clients want two or three of eight locks, over three masters 1 ms away.
func BenchmarkMultiLockContended(b *testing.B) {
	s := slowCluster(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	s.delay(time.Millisecond)
	b.ResetTimer()
	for range 4 {
		c := clientOn(b, s.rdb, nil)
		for range 4 {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					var members []*rlock.Lock
					for _, i := range rand.Perm(8)[:2+rand.IntN(2)] {
						members = append(members, c.NewLock("lock"+strconv.Itoa(i)))
					}
					if err := rlock.NewMultiLock(members...).Do(b.Context(), nothing); err != nil {
						b.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	b.StopTimer()
}

// The readers of one lock must not be much slower than if each had a lock of its
// own.

func BenchmarkReaders64(b *testing.B) {
	c := newClient(b, newServer(b), nil)
	mu := c.NewRWLock("a").Reader()
	everyoneLocks(b, func(int) *rlock.Lock { return mu })
}

func BenchmarkUncontended64(b *testing.B) {
	c := newClient(b, newServer(b), nil)
	everyoneLocks(b, func(i int) *rlock.Lock { return c.NewLock("lock " + strconv.Itoa(i)) })
}

// everyoneLocks has 64 goroutines lock and unlock b.N times altogether.
func everyoneLocks(b *testing.B, lockFor func(int) *rlock.Lock) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range 64 {
		mu := lockFor(i)
		all.Go(func() {
			for left.Add(-1) >= 0 {
				held, hold, err := mu.Lock(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				if err := hold.Unlock(held); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

// Very many readers of one client share a grant, and each unlocks: go test -run xxx -bench ReadersOfOneGrant -benchtime 1x ./rlock
func BenchmarkReadersOfOneGrant(b *testing.B) {
	const readers = 16_000
	mu := newClient(b, newServer(b), nil).NewRWLock("a").Reader()
	for b.Loop() {
		var held, left sync.WaitGroup
		took := make([]time.Duration, readers)
		held.Add(readers)
		for i := range readers {
			left.Go(func() {
				ctx, hold, err := mu.Lock(b.Context())
				held.Done()
				if err != nil {
					b.Error(err)
					return
				}
				held.Wait()
				began := time.Now()
				if err := hold.Unlock(ctx); err != nil {
					b.Error(err)
				}
				took[i] = time.Since(began)
			})
		}
		left.Wait()
		slices.Sort(took)
		b.ReportMetric(float64(took[readers*99/100])/1e6, "p99-ms")
		b.ReportMetric(float64(took[readers/2])/1e6, "median-ms")
	}
}

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
