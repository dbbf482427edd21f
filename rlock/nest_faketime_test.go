package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// The ownership that a call stands on ends while Redis is silent: that is what the
// error says, not that Redis is at fault.
func TestFakeTimeOwnershipEndsMeanwhile(t *testing.T) {
	for _, after := range []time.Duration{time.Millisecond, 5 * time.Second} { // before and after an attempt got no answer
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			c := f.client(t, nil)
			ctx, hold := lock(t, t.Context(), c.NewLock("a"))
			f.deafDown.Store(true)
			time.AfterFunc(after, func() { _ = hold.Unlock(t.Context()) })
			_, _, err := c.NewLock("b").Lock(ctx)
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			require.ErrorIs(t, err, rlock.ErrUnlocked)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, rlock.ErrUnavailable)
		})
	}
}

func TestFakeTimeLeaseIsLostMeanwhile(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, &rlock.Options{LeaseTime: 3 * time.Second})
		ctx, hold := lock(t, t.Context(), c.NewLock("a"))
		f.deafDown.Store(true)
		_, _, err := c.NewLock("b").Lock(ctx)
		require.Same(t, context.Cause(ctx), err)
		require.ErrorIs(t, err, rlock.ErrLeaseLost)
		f.heal()
		_ = hold.Unlock(t.Context())
	})
}
