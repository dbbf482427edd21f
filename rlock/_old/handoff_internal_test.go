package rlock

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/watchdog"
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
		require.Nil(t, s.grant)
		require.Len(t, f.calls("release"), 1)
		require.NoError(t, <-unlocked)
		s.leave()
	})
}

// A grant that was passed on is lost in the moment in which its successor takes it. Both see to it
// that what is left of it is released, and the race detector to it that neither disturbs the
// other.
func TestFakeTimeHeirTakesWhatIsLost(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		for range 100 {
			_, hold, err := l.Lock(t.Context())
			require.NoError(t, err)
			w, _ := l.queues.enter(l, time.Now())
			require.NoError(t, hold.Unlock(t.Context()))
			g := w.step().grant
			require.NotNil(t, g, "it was passed on")
			go g.lose(watchdog.ErrLapsed)
			for g.lossOrNil() == nil {
				runtime.Gosched()
			}
			_, _, err = g.start(t.Context(), l)
			require.ErrorIs(t, err, ErrLeaseLost)
			g.abandon(true)
			w.renounce(g)
			w.leave()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		require.NotEmpty(t, f.calls("release"))
	})
}

// A grant was handed to the next goroutine of the client, which has not taken it yet. If
// the client sets the hold count on the server in that moment, there is no hold to count:
// nothing is sent, and the lease is renewed as before.
func TestFakeTimeCorrectionBeforeTheHeir(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		_, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		s, _ := l.queues.enter(l, time.Now())
		require.NoError(t, hold.Unlock(t.Context()))
		successor := s.step().grant
		require.NotNil(t, successor, "it was passed on")
		require.Empty(t, f.calls("release"))

		require.NoError(t, successor.setCount(t.Context(), successor.retry(time.Second)))
		require.Empty(t, f.calls("count"))
		held, next, err := successor.adopt(t.Context(), successor.lock)
		require.NoError(t, err)
		s.leave()
		time.Sleep(5 * l.terms.lease)
		require.NoError(t, held.Err(), "it is renewed")
		require.NoError(t, next.Unlock(t.Context()))
	})
}
