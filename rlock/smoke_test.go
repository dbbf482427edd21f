package rlock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestSmoke(t *testing.T) {
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	c, err := rlock.New(rdb, nil)
	require.NoError(t, err)
	ctx := context.Background()
	mu := c.NewLock("a", rlock.WithFencing())
	h1, hold, err := mu.Lock(ctx)
	require.NoError(t, err)
	h2, hold2, err := mu.Lock(h1)
	require.NoError(t, err)
	t.Log(mu.HoldCount(h2))
	t.Log(mu.Inspect(ctx))
	_, _, err = mu.TryLock(ctx)
	t.Log(err)
	require.NoError(t, hold.Unlock(ctx))
	require.NoError(t, h1.Err())
	t.Log(mu.Inspect(ctx))
	require.NoError(t, hold2.Unlock(ctx))
	t.Log(context.Cause(h1), context.Cause(h2), hold.Unlock(ctx))
	t.Log(mu.Inspect(ctx))

	n := 0
	var wg sync.WaitGroup
	start := time.Now()
	for range 64 {
		wg.Go(func() {
			for range 20 {
				require.NoError(t, mu.Do(ctx, func(ctx context.Context) error { n++; return nil }))
			}
		})
	}
	wg.Wait()
	t.Log(n, time.Since(start))
	t.Log(srv.CommandCalls(t))
	held, hold, err := mu.Lock(ctx)
	require.NoError(t, err)
	t.Log(mu.ForceUnlock(ctx))
	err = hold.Unlock(held)
	t.Log(err, errors.Is(err, rlock.ErrLeaseLost))
	require.NoError(t, c.Close(ctx))
}

func BenchmarkLock(b *testing.B) {
	srv := redistest.Start(b)
	c, _ := rlock.New(srv.Client(b), nil)
	ctx := context.Background()
	mu := c.NewLock("a")
	b.ReportAllocs()
	for b.Loop() {
		_, h, err := mu.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		h.Unlock(ctx)
	}
	c.Close(ctx)
}
