package rlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// idle leaves n idle connections in each of the two pools of the client.
func (f *fakeRedis) idle(t *testing.T, n int) {
	f.late.Store(int64(50 * time.Millisecond)) // so that each request needs a connection of its own
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { _ = f.rdb.Ping(context.Background()).Err() })
		wg.Go(func() {
			_, _ = f.rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error { return p.Ping(context.Background()).Err() })
		})
	}
	wg.Wait()
	f.late.Store(0)
	stats := f.rdb.PoolStats()
	require.GreaterOrEqual(t, int(stats.IdleConns), n-1) // another may be in use
	require.GreaterOrEqual(t, int(stats.PipelineStats.IdleConns), n-1)
}

// stale closes the other side of all connections, as a server does that restarts.
func (f *fakeRedis) stale() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Conn.Close()
	}
	f.conns = nil
}

// However many connections are stale: calls take no longer than without, and the first renewal
// succeeds.
func TestFakeTimeStaleConnectionsTakeNoTime(t *testing.T) {
	for _, n := range []int{4, 12, 40} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				const lease = 9 * time.Second
				var renewed atomic.Int32
				mu := f.client(t, &rlock.Options{Trace: rlock.Trace{
					Renewed:    func(rlock.Renewal) { renewed.Add(1) },
					NotRenewed: func(r rlock.FailedRenewal) { t.Error(r.Err) },
				}}).NewLock("a", rlock.WithLeaseTime(lease))
				inNoTime := func(what string, call func() error) {
					f.idle(t, n)
					f.stale()
					began := time.Now()
					require.NoError(t, call(), what)
					require.Zero(t, time.Since(began), what)
				}
				var held context.Context
				var hold *rlock.Hold
				var err error
				inNoTime("TryLock", func() error { held, hold, err = mu.TryLock(t.Context()); return err })
				inNoTime("Unlock", func() error { return hold.Unlock(held) })
				inNoTime("Lock", func() error { held, hold, err = mu.Lock(t.Context()); return err })
				for range 2 {
					f.idle(t, n)
					f.stale()
					before := renewed.Load()
					time.Sleep(lease / 3) // there is one renewal in any such time
					require.Greater(t, renewed.Load(), before)
				}
				require.NoError(t, hold.Unlock(held))
			})
		})
	}
}
