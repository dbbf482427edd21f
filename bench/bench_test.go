package bench_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// The hot paths, for benchstat and profiles. What a lock is worth beside others,
// and under contention between processes, is measured by Run.

func newClient(b *testing.B) (*rlock.Client, *redis.Client) {
	b.Helper()
	rdb := redistest.Start(b).Client(b)
	client, err := rlock.New(rdb, nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, client.Close(context.Background())) })
	b.ReportAllocs()
	return client, rdb
}

// cycle is a Lock and its Unlock.
func cycle(ctx context.Context, lock *rlock.Lock) error {
	held, hold, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	return hold.Unlock(held)
}

func BenchmarkPing(b *testing.B) {
	_, rdb := newClient(b)
	for b.Loop() {
		if err := rdb.Ping(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUncontended(b *testing.B) {
	client, _ := newClient(b)
	lock := client.NewLock("lock")
	for b.Loop() {
		if err := cycle(b.Context(), lock); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNested(b *testing.B) {
	client, _ := newClient(b)
	lock := client.NewLock("lock")
	held, hold, err := lock.Lock(b.Context())
	require.NoError(b, err)
	defer func() { require.NoError(b, hold.Unlock(context.Background())) }()
	for b.Loop() {
		if err := cycle(held, lock); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRefused is a TryLock of what this process is known to hold: it sends
// nothing.
func BenchmarkRefused(b *testing.B) {
	client, _ := newClient(b)
	lock := client.NewLock("lock")
	_, hold, err := lock.Lock(b.Context())
	require.NoError(b, err)
	defer func() { require.NoError(b, hold.Unlock(context.Background())) }()
	for b.Loop() {
		if _, _, err := lock.TryLock(b.Context()); err == nil {
			b.Fatal("got a lock that is held")
		}
	}
}

// BenchmarkParallel: goroutines with a lock each.
func BenchmarkParallel(b *testing.B) {
	client, _ := newClient(b)
	var n atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		lock := client.NewLock("lock:" + strconv.FormatInt(n.Add(1), 10))
		for pb.Next() {
			if err := cycle(b.Context(), lock); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkContended: goroutines with one lock between them.
func BenchmarkContended(b *testing.B) {
	client, _ := newClient(b)
	lock := client.NewLock("lock")
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := cycle(b.Context(), lock); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
