package rlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// A request that sets the count of the old holder must not reach the server when a
// new one has come: while one is under way, the lock is released and not passed on.
func TestFakeTimeNoHandoffWhileCounting(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onCount = func(_ context.Context, n int) error {
			if n == 2 { // that of the nested Unlock
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}
		held, outer, err := l.Lock(t.Context())
		require.NoError(t, err)
		_, inner, err := l.Lock(held)
		require.NoError(t, err)
		unlocked := make(chan error, 1)
		go func() { unlocked <- inner.Unlock(held) }() // ends below
		synctest.Wait()
		require.Len(t, f.calls("count"), 2)

		s, _ := l.queues.enter(l, time.Now())
		require.NoError(t, outer.Unlock(held))
		require.Nil(t, s.given)
		require.Len(t, f.calls("release"), 1)
		require.NoError(t, <-unlocked)
		s.leave()
	})
}
