package rlock

import (
	"context"
	"errors"
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
				_, hold, err := l.joinOrAsk(ctx, ctx, l.retries())
				got <- hold
				failed <- err
			}()
			synctest.Wait() // it follows
			g := l.newAttempt()
			require.NoError(t, g.acquire(t.Context(), l.retries(), kind.Options{}).Err)
			require.Equal(t, doubt, g.left(inDoubt))
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

// The readers of a lost grant have unlocked before their followers are there: the last follower
// releases what the server may still have of it.
func TestFakeTimeFollowersOfALostGrant(t *testing.T) {
	for name, last := range map[string]func(ctx context.Context, g *grant) bool{
		"comes": func(ctx context.Context, g *grant) bool {
			_, hold := g.derive(ctx, new(Hold), g.lock, nil)
			defer hold.cancel(nil)
			return g.admit(hold)
		},
		"leaves": func(_ context.Context, g *grant) bool { return g.admit(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c, _, f := newFake(t)
				l := c.NewRWLock("a").Reader()
				l.use(f)
				g := l.newAttempt()
				require.NoError(t, g.acquire(t.Context(), l.retries(), kind.Options{}).Err)
				_, first, err := g.start(t.Context(), l)
				require.NoError(t, err)
				g.expect(2)
				g.lose(errors.New("renewal failed"))
				require.ErrorIs(t, first.Unlock(t.Context()), ErrLeaseLost)
				require.False(t, g.admit(nil))
				synctest.Wait()
				require.Empty(t, f.calls("release"))
				require.False(t, last(t.Context(), g))
				synctest.Wait()
				require.Len(t, f.calls("release"), 1)
			})
		})
	}
}
