package rlock_test

import (
	"context"
	"fmt"
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

// So it is for a nested call of the same lock. It owns the lock as well until it fails, so
// that the outer Unlock does not end the context, but its own end does.
func TestFakeTimeOwnershipEndsUnderANestedCall(t *testing.T) {
	const lease = 15 * time.Second
	for name, tt := range map[string]struct {
		call func(*rlock.Lock, context.Context) (context.Context, *rlock.Hold, error)
		want error
		in   time.Duration
	}{
		"TryLock": {(*rlock.Lock).TryLock, rlock.ErrUnlocked, 2 * time.Second},
		"TryLockFor": {func(mu *rlock.Lock, ctx context.Context) (context.Context, *rlock.Hold, error) {
			return mu.TryLockFor(ctx, 4*time.Second)
		}, rlock.ErrUnlocked, 4 * time.Second},
		"Lock": {(*rlock.Lock).Lock, rlock.ErrLeaseLost, lease},
	} {
		for _, unlocked := range []bool{true, false} {
			for _, replies := range []bool{true, false} {
				t.Run(fmt.Sprint(name, " unlocked ", unlocked, " executed ", replies), func(t *testing.T) {
					redistest.Bubble(t, func(t *testing.T) {
						f := newFakeRedis(t)
						mu := f.client(t, &rlock.Options{LeaseTime: lease}).NewLock("a")
						ctx, hold := lock(t, t.Context(), mu)
						f.deafDown.Store(replies)
						f.deafUp.Store(!replies)
						var all sync.WaitGroup
						if unlocked {
							all.Go(func() {
								time.Sleep(time.Millisecond)
								_ = hold.Unlock(t.Context())
							})
						}
						began := time.Now()
						got, _, err := tt.call(mu, ctx)
						require.LessOrEqual(t, time.Since(began), tt.in)
						require.Equal(t, ctx, got)
						if unlocked || tt.want == rlock.ErrLeaseLost {
							require.ErrorIs(t, err, tt.want)
							require.NotErrorIs(t, err, rlock.ErrUnavailable)
							require.ErrorIs(t, context.Cause(ctx), tt.want)
						} else {
							require.ErrorIs(t, err, rlock.ErrUnavailable)
							require.NoError(t, ctx.Err())
						}
						all.Wait()
						f.heal()
						_ = hold.Unlock(t.Context())
						redistest.Eventually(t, "the lock is free", func() bool { return !f.Exists("a") })
					})
				})
			}
		}
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

// Nested calls that are made at the same time share a request about the hold count, and so do
// their Unlocks: none waits for those before it one after the other.
func TestFakeTimeNestedCallsShareARequest(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const calls, late = 50, 80 * time.Millisecond // too short for copies
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		held, hold := lock(t, t.Context(), mu)
		_, inner := lock(t, held, mu) // teaches the server the script
		require.NoError(t, inner.Unlock(held))
		before := len(f.scripts("count"))
		f.late.Store(int64(late))
		var all sync.WaitGroup
		nested := make([]*rlock.Hold, calls)
		began := time.Now()
		for i := range nested {
			all.Go(func() {
				_, h, err := mu.Lock(held)
				assert.NoError(t, err)
				nested[i] = h
			})
		}
		all.Wait()
		assert.LessOrEqual(t, time.Since(began), 2*late)
		assert.Equal(t, strconv.Itoa(calls+1), f.HGet("a", hold.Owner()))
		for _, h := range nested {
			all.Go(func() { assert.NoError(t, h.Unlock(held)) })
		}
		all.Wait()
		assert.LessOrEqual(t, time.Since(began), 4*late)
		assert.Equal(t, "1", f.HGet("a", hold.Owner()))
		assert.LessOrEqual(t, len(f.scripts("count"))-before, 4)
		assert.NoError(t, hold.Unlock(held))
	})
}
