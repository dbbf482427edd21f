package rlock_test

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

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
