package rlock

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A reader whose time ends while it follows the request of another gets a hold or an error of
// its own, whatever has become of that request: a grant in doubt, which nobody joins, or one
// that was lost at once.
func TestFakeTimeFollowerWhoseTimeIsOver(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the follower runs when both have happened
	for _, doubt := range []bool{true, false} {
		redistest.Bubble(t, func(t *testing.T) {
			c, _, f := newFake(t)
			l := c.NewRWLock("a").Reader()
			l.use(f)
			f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
				if doubt && n == 1 {
					return lua.Reply{}, errCut
				}
				return lua.Reply{Acquired: true}, nil
			}
			call, asks := l.queues.joinCall(l)
			require.True(t, asks)
			ctx, cancel := context.WithCancel(t.Context())
			got, failed := make(chan *Hold, 1), make(chan error, 1)
			go func() {
				_, hold, err := l.joinOrAsk(ctx, ctx, l.retries)
				got <- hold
				failed <- err
			}()
			synctest.Wait() // it follows
			g := l.newAttempt()
			require.NoError(t, g.acquire(t.Context(), l.retries, kind.Options{}).Err)
			require.Equal(t, doubt, g.acquireUnknown)
			_, asker, err := g.start(t.Context(), l)
			require.NoError(t, err)
			g.lose(errGone)
			l.queues.finishCall(call, asker, nil)
			cancel()
			require.Nil(t, <-got)
			err = <-failed
			require.ErrorIs(t, err, context.Canceled, "in doubt: %v", doubt)
			require.ErrorIs(t, err, ErrUnavailable)
			require.ErrorIs(t, asker.Unlock(t.Context()), ErrLeaseLost)
		})
	}
}
