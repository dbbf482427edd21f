package rlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// A client that comes back to ask, and waits for nothing, gets the lock as well.
func TestRetainedLockIsNotKeptFromTryLock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	keeping, other := newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour)), newClient(t, srv, nil).NewLock("a")
	kept(t, srv, keeping)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			_ = keeping.Do(ctx, func(context.Context) error { time.Sleep(100 * time.Microsecond); return nil })
		}
	})
	var hold *rlock.Hold
	for end := time.Now().Add(2 * time.Second); hold == nil && time.Now().Before(end); {
		_, hold, _ = other.TryLock(t.Context())
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	all.Wait()
	require.NotNil(t, hold, "100 attempts")
	require.NoError(t, hold.Unlock(t.Context()))
}
