package rlock_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// No renewal of a kept lock is answered for a whole lease, so the client has to give the
// lock up. The server has executed the renewals and would keep the lock for another lease:
// the client releases it.
func TestFakeTimeLostParkedGrantIsReleased(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const lease = 30 * time.Second
		f := newFakeRedis(t)
		f.teach(t)
		var lost atomic.Bool // the server executes renewals, and the client gets no answers
		renewal := isScript("renew")
		f.rdb.AddHook(redistest.Hook{Pipeline: func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			err := next(ctx, cmds)
			for _, cmd := range cmds {
				if len(cmd.Args()) > 1 && lost.Load() && renewal([]string{cmd.Name(), fmt.Sprint(cmd.Args()[1])}) {
					err = os.ErrDeadlineExceeded
					cmd.SetErr(err)
				}
			}
			return err
		}})
		mu := f.client(t, &rlock.Options{LeaseTime: lease}).NewLock("a", rlock.WithRetention(time.Hour))
		for range 3 {
			held, hold := lock(t, t.Context(), mu)
			time.Sleep(time.Second)
			require.NoError(t, hold.Unlock(held))
		}
		require.True(t, f.Exists("a"))
		lost.Store(true)
		time.Sleep(lease)
		lost.Store(false)
		time.Sleep(time.Second)
		require.False(t, f.Exists("a"), "nobody has it")
		began := time.Now()
		held, hold, err := mu.TryLockFor(t.Context(), time.Minute)
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
		require.Less(t, time.Since(began), time.Second)
	})
}

// A client keeps a lock, and the server forgets it. The client is granted the lock again
// by an answer that comes late, and must not take the kept one in memory then: it would be
// held twice.
func TestFakeTimeParkedGrantEndsWithTheNext(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a", rlock.WithRetention(time.Hour))
		open := f.hold(isScript("try"))
		var all sync.WaitGroup
		var first *rlock.Hold
		var firstCtx context.Context
		all.Go(func() {
			var err error
			firstCtx, first, err = mu.TryLock(t.Context())
			require.NoError(t, err)
		})
		synctest.Wait()
		held, hold := lock(t, t.Context(), mu)
		time.Sleep(50 * time.Millisecond) // too short for a copy of the request
		require.NoError(t, hold.Unlock(held))
		require.True(t, f.Exists("a"), "kept")
		f.Del("a") // as a failover may
		open()
		all.Wait()
		require.NoError(t, firstCtx.Err())
		_, _, err := mu.TryLockFor(t.Context(), time.Second)
		require.ErrorIs(t, err, rlock.ErrNotAcquired, "held twice")
		require.NoError(t, first.Unlock(t.Context()))
		_, hold, err = mu.TryLock(t.Context())
		require.NoError(t, err, "the client still believes in the grant that was kept")
		require.NoError(t, hold.Unlock(t.Context()))
	})
}
