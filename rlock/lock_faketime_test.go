package rlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestFakeTimeUnavailable(t *testing.T) {
	for _, tt := range []struct {
		name        string
		lease, want time.Duration
		fault       func(*fakeRedis)
	}{
		{"silent, short lease", time.Second, 5 * time.Second, func(f *fakeRedis) { f.deafUp.Store(true) }},
		{"silent, long lease", 30 * time.Second, 30 * time.Second, func(f *fakeRedis) { f.deafUp.Store(true) }},
		{"errors, short lease", time.Second, 5 * time.Second, func(f *fakeRedis) { f.SetError("LOADING …") }},
		{"errors, long lease", 30 * time.Second, 30 * time.Second, func(f *fakeRedis) { f.SetError("LOADING …") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, &rlock.Options{LeaseTime: tt.lease}).NewLock("a")
				tt.fault(f)
				_, _, err := mu.Lock(t.Context())
				require.ErrorIs(t, err, rlock.ErrUnavailable)
				require.NotErrorIs(t, err, rlock.ErrNotAcquired)
				require.Equal(t, tt.want, f.now())
			})
		})
	}
}

func TestFakeTimeTryLockIsBounded(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		300 * time.Millisecond: 100 * time.Millisecond,
		30 * time.Second:       2 * time.Second,
	} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, &rlock.Options{LeaseTime: lease}).NewLock("a")
			f.deafUp.Store(true)
			_, _, err := mu.TryLock(t.Context())
			require.ErrorIs(t, err, rlock.ErrUnavailable)
			require.Equal(t, want, f.now())
		})
	}
}

func TestFakeTimeLateAnswerIsNoGrant(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, &rlock.Options{LeaseTime: 6 * time.Second}).NewLock("a")
		f.late.Store(int64(2500 * time.Millisecond)) // an attempt may take 2 s
		held, hold, err := mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.Nil(t, hold)
		require.Equal(t, t.Context(), held)
		f.late.Store(0)
		time.Sleep(2600 * time.Millisecond) // a connection for the release may have been made slowly, too
		synctest.Wait()
		require.False(t, f.Exists("a"), "its owner is released")
		require.NotEmpty(t, f.scripts("release"))
		require.Empty(t, f.scripts("renew"))
	})
}

// A caller that comes while a goroutine of its client gives the lock up asks the server at once: it
// does not wait for the answer to that release, which may be lost.
func TestFakeTimeLockDuringARelease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a")
		held, hold, err := mu.Lock(t.Context())
		require.NoError(t, err)
		open := f.hold(isScript("release"))
		released := make(chan error, 1)
		go func() { released <- hold.Unlock(held) }()
		synctest.Wait()
		require.Empty(t, released, "the release is under way")
		before := len(f.asked())
		next := make(chan error, 1)
		go func() {
			held, hold, err := mu.Lock(t.Context())
			if err == nil {
				err = hold.Unlock(held)
			}
			next <- err
		}()
		synctest.Wait()
		asked := len(f.asked())
		open()
		require.NoError(t, <-released)
		require.NoError(t, <-next)
		require.Greater(t, asked, before)
	})
}
