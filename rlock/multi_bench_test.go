package rlock_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

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
