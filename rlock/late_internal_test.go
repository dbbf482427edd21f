package rlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

func TestFakeTimeAbandonedAcquireIsReleasedTwice(t *testing.T) {
	for name, tt := range map[string]struct {
		answer time.Duration // when the acquire is answered after all; 0: never
		want   []time.Duration
	}{
		"no answer":   {0, []time.Duration{100 * time.Millisecond, 1100 * time.Millisecond, 2100 * time.Millisecond, 4100 * time.Millisecond, 8100 * time.Millisecond, 16100 * time.Millisecond, 30100 * time.Millisecond}},
		"late answer": {1 * time.Second, []time.Duration{time.Second}},
		"very late":   {2500 * time.Millisecond, []time.Duration{2 * time.Second, 2500 * time.Millisecond, 4 * time.Second, 6 * time.Second, 10 * time.Second, 18 * time.Second, 32 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c, l, f := newFake(t)
				f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) {
					if tt.answer == 0 {
						return lua.Reply{}, hang(ctx)
					}
					time.Sleep(tt.answer) // go-redis heeds no context
					return lua.Reply{Acquired: true}, nil
				}
				cause := errors.New("enough")
				ctx := deadline(t, 100*time.Millisecond, cause)
				got, hold, err := l.Lock(ctx)
				require.Equal(t, 100*time.Millisecond, time.Since(f.start))
				require.Nil(t, hold)
				require.Equal(t, ctx, got)
				require.ErrorIs(t, err, ErrUnavailable)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, cause)

				sleepLong(time.Minute)
				require.Equal(t, tt.want, f.times("release"))
				for _, r := range f.calls("release") {
					require.Equal(t, f.calls("acquire")[0].owner, r.owner)
				}
				require.Zero(t, c.active.Load(), "the janitor has ended, too")
			})
		})
	}
}

// An attempt that was repeated is answered while Unlock waits for Redis. What it has
// acquired is what Unlock releases: a second release would have told it that the lock
// was lost.
func TestFakeTimeLateAnswerDuringUnlock(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
			if n == 1 {
				time.Sleep(l.bound * 3 / 2)
			}
			return lua.Reply{Acquired: true}, nil
		}
		f.onRelease = func(_ context.Context, n int) (lua.Released, error) {
			time.Sleep(l.bound * 3 / 4) // the late answer comes meanwhile
			if n > 1 {
				return lua.Released{}, lua.ErrNotOwner
			}
			return lua.Released{}, nil
		}
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
		over := time.Since(f.start)
		sleepLong(time.Hour)
		at := f.times("release")
		require.Greater(t, len(at), 1, "an attempt may have arrived after it")
		for _, again := range at[1:] {
			require.GreaterOrEqual(t, again, over)
		}
		require.Zero(t, c.active.Load())
	})
}
