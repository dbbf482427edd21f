package rlock_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// An attempt to release that was not sent, for want of a connection, is none: the answer to
// the next one, that the lock is gone, is not of its own doing.
func TestFakeTimeUnlockWithoutAConnection(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		var dials time.Time // not before
		rdb := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", PoolSize: 10_000, PipelinePoolSize: 10_000, ConnMaxIdleTime: 50 * time.Millisecond,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(time.Until(dials))
				return f.dial()
			},
		})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		c := clientOn(t, rdb, nil)
		held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithLeaseTime(600*time.Millisecond), rlock.WithoutRenewal()))
		time.Sleep(100 * time.Millisecond) // the connections are too old
		require.True(t, f.Del("a"))
		dials = time.Now().Add(250 * time.Millisecond)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
		require.GreaterOrEqual(t, time.Now(), dials)
	})
}

func TestFakeTimeUnlockTimeout(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, &rlock.Options{UnlockTimeout: 3 * time.Second}).NewLock("a")
		held, hold := lock(t, t.Context(), mu)
		f.deafUp.Store(true)
		err := hold.Unlock(held)
		require.Equal(t, 3*time.Second, f.now())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.True(t, f.Exists("a"))
		require.ErrorIs(t, context.Cause(held), rlock.ErrUnlocked)

		time.Sleep(4 * time.Second)
		f.deafUp.Store(false)
		time.Sleep(3 * time.Second) // the attempt under way, and a back-off
		synctest.Wait()
		require.False(t, f.Exists("a"), "released in the background")
		require.Empty(t, f.scripts("renew"))
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrNotHeld)
	})
}
