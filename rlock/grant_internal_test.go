package rlock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A later attempt may overtake a hanging one, and the window counts from the
// attempt that was answered.
func TestFakeTimeWindowCountsFromTheAnsweredAttempt(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onAcquire = func(ctx context.Context, n int) (lua.Reply, error) {
			if n == 1 {
				return lua.Reply{}, hang(ctx)
			}
			time.Sleep(700 * time.Millisecond)
			return lua.Reply{Acquired: true}, nil
		}
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		sent := f.start.Add(f.times("acquire")[1])
		require.Equal(t, sent.Add(700*time.Millisecond), time.Now())
		require.Equal(t, sent.Add(30*time.Second-302*time.Millisecond), hold.Until())
		calls := f.calls("acquire")
		require.Equal(t, calls[0].owner, calls[1].owner, "one grant, one owner")
		require.NoError(t, hold.Unlock(held))

		sleepLong(time.Minute)
		at := f.times("release")
		require.Len(t, at, 8, "the first attempt may still arrive")
		require.Equal(t, time.Second, at[1]-at[0])
		require.Equal(t, 31*time.Second, at[7]-at[0])
	})
}
