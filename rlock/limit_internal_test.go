package rlock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/watchdog"
)

// Progress comes after the limit, and before the watchdog has noticed: the lock is lost all the same.
func TestFakeTimeProgressTooLate(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, _ := newFake(t)
		l.terms.limits.progress = 5 * time.Second
		_, err := c.dog.Add(watchdog.Lease[*grant]{Duration: time.Second, Sent: time.Now(), Fixed: true, OnLost: func(error) {
			time.Sleep(10 * time.Second) // keeps the watchdog from its work
		}})
		require.NoError(t, err)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		select {
		case <-held.Done():
			require.Fail(t, "the watchdog has noticed")
		default:
		}
		Progress(context.WithoutCancel(held))
		require.ErrorIs(t, context.Cause(held), ErrNoProgress)
		require.ErrorIs(t, hold.Unlock(held), ErrNoProgress)
	})
}
