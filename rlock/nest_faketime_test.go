package rlock_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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

// A nested TryLock is one attempt, also behind others that get no answer.
func TestFakeTimeNestedTryLockIsBounded(t *testing.T) {
	for _, before := range []string{"Lock", "TryLock"} {
		t.Run(before, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, &rlock.Options{LeaseTime: 15 * time.Second}).NewLock("a")
				held, hold := lock(t, t.Context(), mu)
				f.deafDown.Store(true)
				var all sync.WaitGroup
				if before == "Lock" {
					all.Go(func() { _, _, _ = mu.Lock(held) })
				}
				synctest.Wait()
				began := time.Now()
				for range 5 {
					all.Go(func() {
						_, _, err := mu.TryLock(held)
						assert.ErrorIs(t, err, rlock.ErrUnavailable)
						assert.ErrorContains(t, err, "answer")
						assert.Equal(t, 2*time.Second, time.Since(began))
					})
				}
				all.Wait()
				f.heal()
				_ = hold.Unlock(t.Context())
			})
		})
	}
}

// An Unlock returns in its time, also behind others that get no answer.
func TestFakeTimeUnlockIsBoundedInACrowd(t *testing.T) {
	for _, timeout := range []time.Duration{300 * time.Millisecond, time.Second, 5 * time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				c := f.client(t, &rlock.Options{UnlockTimeout: timeout, LeaseTime: 15 * time.Second})
				var all sync.WaitGroup
				for i := range 20 {
					_, hold := lock(t, t.Context(), c.NewLock(strconv.Itoa(i)))
					all.Go(func() {
						time.Sleep(time.Duration(i+1) * timeout / 20)
						began := time.Now()
						assert.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrUnavailable)
						assert.LessOrEqual(t, time.Since(began), timeout)
					})
				}
				f.deafDown.Store(true)
				all.Wait()
				f.heal()
			})
		})
	}
}
