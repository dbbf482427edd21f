package rlock_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-rlock/rlock/rlock"
)

// The readers of one lock must not be much slower than if each had a lock of its
// own: 0.9 of that rate is what issue 5 asks for.

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
