package rlock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// However long a server is silent: it may have an old request to acquire, which it executes when it
// goes on.
func TestFakeTimeReleaseGoesOnUntilThereIsAnAnswer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		var answers atomic.Bool
		f.onRelease = func(ctx context.Context, _ int) (lua.Released, error) {
			if answers.Load() {
				return lua.Released{}, nil
			}
			return lua.Released{}, hang(ctx)
		}
		require.ErrorIs(t, hold.Unlock(held), ErrUnavailable)
		require.Equal(t, DefaultUnlockTimeout, time.Since(f.start))
		sleepLong(time.Hour)
		at := f.times("release")
		require.Greater(t, at[len(at)-1], time.Hour-5*time.Second)
		answers.Store(true)
		sleepLong(5 * time.Second)
		require.Zero(t, c.active.Load(), "then it ends")
	})
}

// noRight is how a server refuses a user without rights.
type noRight struct{}

func (noRight) Error() string {
	return "NOPERM this user has no permissions to access one of the keys used as arguments"
}
func (noRight) RedisError() {}

var errCut = errors.New("the connection was cut")

// A release that the server refuses is repeated until it is allowed, or the lease is
// over, and keeps nobody waiting. What may never have been granted is not worth that.
func TestFakeTimeRefusedReleaseIsRepeated(t *testing.T) {
	const slack = 500 * time.Millisecond // between two attempts
	for name, tt := range map[string]struct {
		acquire error
		allowed time.Duration // when the right comes back
		close   time.Duration // 0: when all is over
		last    time.Duration // attempt to release, before slack has passed
	}{
		"the right comes back":     {nil, 5 * time.Second, 0, 5 * time.Second},
		"it does not":              {nil, time.Hour, 0, 30 * time.Second},
		"the client closes":        {nil, time.Hour, 5 * time.Second, 30 * time.Second},
		"it does before it ends":   {nil, 10 * time.Second, 5 * time.Second, 10 * time.Second},
		"the acquire was refused":  {noRight{}, time.Hour, 0, 30 * time.Second},
		"its answer was lost":      {errCut, time.Hour, 0, 31 * time.Second},
		"it was, and it is closed": {noRight{}, time.Hour, time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c, l, f := newFake(t)
				f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
					if tt.acquire == errCut && n > 1 {
						return lua.Reply{}, noRight{}
					}
					return lua.Reply{Acquired: tt.acquire == nil}, tt.acquire
				}
				f.onRelease = func(context.Context, int) (lua.Released, error) {
					if time.Since(f.start) < tt.allowed {
						return lua.Released{}, noRight{}
					}
					return lua.Released{}, nil
				}
				held, hold, err := l.Lock(t.Context())
				if tt.acquire == nil {
					require.NoError(t, err)
					require.ErrorIs(t, hold.Unlock(held), ErrUnavailable)
				} else {
					require.ErrorIs(t, err, ErrUnavailable)
				}
				require.InDelta(t, 0, time.Since(f.start), float64(10*time.Millisecond), "a caller is told at once")
				if tt.close > 0 {
					sleepLong(tt.close)
					require.NoError(t, c.Close(t.Context()))
				} else {
					sleepLong(time.Hour)
				}
				at := f.times("release")
				require.InDelta(t, tt.last, at[len(at)-1], float64(slack))
				require.Less(t, len(at), 200)
				require.Zero(t, c.active.Load(), "the janitor has ended")
			})
		})
	}
}
