package rlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// waitingReader is a reader that came while another one asked, which has acquired grant.
func waitingReader(t *testing.T, l *Lock) (w *waiter, g *grant, first *Hold) {
	t.Helper()
	leader := newWaiter(t, l)
	_, a, err := l.queues.enter(leader)
	require.NoError(t, err)
	w = behind(t, l)
	g, err = a.askByCall(leader)
	require.NoError(t, err)
	_, first, err = g.take(t.Context(), l, true)
	require.NoError(t, err)
	return w, g, first
}

// served has w take its grant, or leave without.
func served(t *testing.T, w *waiter, leaves bool) *Hold {
	t.Helper()
	if leaves {
		w.leave()
		require.Nil(t, w.grant)
		return nil
	}
	<-w.served
	require.NoError(t, w.err)
	_, hold, err := w.grant.take(t.Context(), w.lock, true)
	if err != nil {
		w.grant.forgo()
		return nil
	}
	return hold
}

func newReader(t *testing.T) (*Lock, *fake) {
	c, _, f := newFake(t)
	l := c.NewRWLock("a").Reader()
	l.use(f)
	return l, f
}

// A reader that was given the grant of another, and gives up before it has taken it, keeps it no longer
// than that: who is the last to leave releases it.
func TestFakeTimeGivenReaderLeaves(t *testing.T) {
	for _, last := range []string{"reader", "holder"} {
		t.Run(last, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				l, f := newReader(t)
				w, _, first := waitingReader(t, l)
				<-w.served
				leave := func() { require.Nil(t, served(t, w, true)) }
				unlock := func() { require.NoError(t, first.Unlock(t.Context())) }
				steps := []func(){leave, unlock}
				if last == "reader" {
					steps = []func(){unlock, leave}
				}
				steps[0]()
				synctest.Wait()
				require.Empty(t, f.calls("release"))
				steps[1]()
				synctest.Wait()
				require.Len(t, f.calls("release"), 1)
			})
		})
	}
}

// A grant that may have been given without an answer is not shared: the next reader asks.
func TestFakeTimeReadersShareNoDoubt(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, f := newReader(t)
		f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
			if n == 1 {
				return lua.Reply{}, errCut
			}
			return lua.Reply{Acquired: true}, nil
		}
		w, g, first := waitingReader(t, l)
		require.True(t, g.left(inDoubt))
		hold := served(t, w, false)
		require.NotEqual(t, first.Owner(), hold.Owner())
		require.NoError(t, first.Unlock(t.Context()))
		require.NoError(t, hold.Unlock(t.Context()))
	})
}

// The holder of a lost grant has unlocked before the readers that were given the grant are there: the last
// of them releases what the server may still have. Who comes asks for another grant.
func TestFakeTimeReadersOfALostGrant(t *testing.T) {
	for _, comes := range []bool{true, false} {
		redistest.Bubble(t, func(t *testing.T) {
			l, f := newReader(t)
			w, g, first := waitingReader(t, l)
			g.lose(errors.New("renewal failed"))
			require.ErrorIs(t, first.Unlock(t.Context()), ErrLeaseLost)
			synctest.Wait()
			require.Empty(t, f.calls("release"))
			require.Nil(t, served(t, w, !comes), "it has to ask for another")
			synctest.Wait()
			require.Len(t, f.calls("release"), 1)
		})
	}
}

// The answer to a release that was lost may have named a reader of the same client. The reader asks at once,
// and not when its own time comes.
func TestFakeTimeReaderWhoseGrantWasInALostAnswer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		rw := c.NewRWLock("a")
		rw.reader.use(f)
		rw.writer.use(f)
		free := false // only read and written while all others are blocked
		f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
			if n == 1 || free {
				return lua.Reply{Acquired: true}, nil
			}
			return lua.Reply{TTL: time.Hour, Holder: "x:1"}, nil
		}
		f.onRelease = func(_ context.Context, n int) (lua.Released, error) {
			switch n {
			case 1:
				return lua.Released{}, errCut
			case 2: // the first attempt has released it
				return lua.Released{}, lua.ErrNotOwner
			}
			return lua.Released{}, nil
		}
		held, hold, err := rw.Writer().Lock(t.Context())
		require.NoError(t, err)
		entered := make(chan *Hold)
		go func() {
			_, hold, err := rw.Reader().Lock(t.Context())
			require.NoError(t, err)
			entered <- hold
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		free = true
		began := time.Now()
		require.NoError(t, hold.Unlock(held))
		reads := <-entered
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.NoError(t, reads.Unlock(t.Context()))
	})
}
