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

// behind is a waiter behind the client's own holder, whom no asker asks for.
func behind(t *testing.T, l *Lock) *waiter {
	t.Helper()
	w := newWaiter(t, l)
	_, a, err := l.queues.enter(w)
	require.NoError(t, err)
	require.Nil(t, a)
	return w
}

// A request that sets the count of the old holder must not reach the server when a new one has come: while one is
// under way, the lock is released and not passed on.
func TestFakeTimeNoHandoffWhileCounting(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		held, outer, err := l.Lock(t.Context())
		require.NoError(t, err)
		_, inner, err := l.Lock(held)
		require.NoError(t, err)
		counted := make(chan struct{})
		f.onCount = func(context.Context, int) error { <-counted; return nil } // that of the nested Unlock
		unlocked := make(chan error, 1)
		go func() { unlocked <- inner.Unlock(held) }()
		synctest.Wait()
		require.Len(t, f.calls("count"), 2)

		w := behind(t, l)
		require.NoError(t, outer.Unlock(held))
		require.Len(t, f.calls("release"), 1)
		synctest.Wait()
		require.Len(t, f.calls("acquire"), 2, "the waiter's, which the server answers")
		<-w.served
		require.NotEqual(t, outer.Owner(), w.grant.owner)
		close(counted)
		require.NoError(t, <-unlocked)
		w.grant.forgo()
	})
}

// A grant that was passed on is lost in the moment in which its heir takes it. Both see to it that what is left of
// it is released, and the race detector to it that neither disturbs the other.
func TestFakeTimeHeirTakesWhatIsLost(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		for range 100 {
			_, hold, err := l.Lock(t.Context())
			require.NoError(t, err)
			w := behind(t, l)
			require.NoError(t, hold.Unlock(t.Context()))
			<-w.served
			g := w.grant
			require.NotNil(t, g, "it was passed on")
			go g.lose(watchdog.ErrLapsed)
			for g.lossOrNil() == nil {
				runtime.Gosched()
			}
			_, _, err = g.take(t.Context(), l, true)
			require.ErrorIs(t, err, ErrLeaseLost)
			g.forgo()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		require.NotEmpty(t, f.calls("release"))
	})
}

// A grant was handed to the next goroutine of the client, which has not taken it yet. If the client sets the hold
// count on the server in that moment, there is no hold to count: nothing is sent, and the lease is renewed as before.
func TestFakeTimeCountBeforeTheHeir(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		_, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		w := behind(t, l)
		require.NoError(t, hold.Unlock(t.Context()))
		<-w.served
		successor := w.grant
		require.NotNil(t, successor, "it was passed on")
		require.Empty(t, f.calls("release"))

		<-successor.tell(t.Context(), false).done
		require.Empty(t, f.calls("count"))
		held, next, err := successor.take(t.Context(), successor.lock, true)
		require.NoError(t, err)
		time.Sleep(5 * l.terms.lease)
		require.NoError(t, held.Err(), "it is renewed")
		require.NoError(t, next.Unlock(t.Context()))
	})
}
