package rlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// take is one of the ways to acquire. It returns the held context and what
// gives the hold back.
type take func(t *testing.T, ctx context.Context, mu *rlock.Lock) (context.Context, func())

var takes = map[string]take{
	"Lock": func(t *testing.T, ctx context.Context, mu *rlock.Lock) (context.Context, func()) {
		return give(mu.Lock(ctx))(t)
	},
	"TryLock": func(t *testing.T, ctx context.Context, mu *rlock.Lock) (context.Context, func()) {
		return give(mu.TryLock(ctx))(t)
	},
	"TryLockFor": func(t *testing.T, ctx context.Context, mu *rlock.Lock) (context.Context, func()) {
		return give(mu.TryLockFor(ctx, time.Minute))(t)
	},
	"Do": func(t *testing.T, ctx context.Context, mu *rlock.Lock) (context.Context, func()) {
		entered, leave, left := make(chan context.Context), make(chan struct{}), make(chan error)
		go func() {
			left <- mu.Do(ctx, func(ctx context.Context) error {
				entered <- ctx
				<-leave
				return nil
			})
		}()
		select {
		case ctx := <-entered:
			return ctx, func() { close(leave); require.NoError(t, <-left) }
		case err := <-left:
			require.FailNow(t, "Do did not run the function", "%v", err)
			return nil, nil
		}
	},
}

func give(ctx context.Context, hold *rlock.Hold, err error) func(*testing.T) (context.Context, func()) {
	return func(t *testing.T) (context.Context, func()) {
		require.NoError(t, err)
		return ctx, func() { require.NoError(t, hold.Unlock(ctx)) }
	}
}

// Depth 1 to 10, a new function and a new goroutine at each level: the server
// counts what is held, after every call on the way in and on the way out.
func TestNestedDepth(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	for name, take := range takes {
		t.Run(name, func(t *testing.T) {
			mu := c.NewLock("depth " + name)
			owner := ""
			var descend func(ctx context.Context, depth int)
			descend = func(ctx context.Context, depth int) {
				if depth > 10 {
					return
				}
				held, unlock := take(t, ctx, mu)
				require.Equal(t, depth, holds(t, rdb, mu.Name()))
				require.Equal(t, depth, mu.HoldCount(held))
				state, err := mu.Inspect(held)
				require.NoError(t, err)
				if depth == 1 {
					owner = state.Owner()
				}
				require.Equal(t, owner, state.Owner(), "a nested hold has the owner of its grant")
				var wg sync.WaitGroup
				wg.Go(func() { descend(held, depth+1) })
				wg.Wait()
				unlock()
				require.Equal(t, depth-1, holds(t, rdb, mu.Name()))
			}
			descend(t.Context(), 1)
		})
	}
}

func TestNestedUnlockInEveryOrder(t *testing.T) {
	const depth = 4
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewLock("a")
	for _, order := range permutations(depth) {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			ctx := t.Context()
			var all [depth]*rlock.Hold
			for i := range all {
				ctx, all[i] = lock(t, ctx, mu)
			}
			for n, i := range order {
				require.NoError(t, all[i].Unlock(ctx))
				require.Equal(t, depth-1-n, holds(t, rdb, mu.Name()))
			}
			require.ErrorIs(t, context.Cause(ctx), rlock.ErrUnlocked)
		})
	}
}

// permutations returns all orders of 0 … n-1.
func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, p := range permutations(n - 1) {
		for i := range n {
			order := append(append(append([]int{}, p[:i]...), n-1), p[i:]...)
			all = append(all, order)
		}
	}
	return all
}

func TestNestedUnderAnotherLock(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	a, b := c.NewLock("a"), c.NewLock("b")

	inA, holdA := lock(t, t.Context(), a)
	inB, holdB := lock(t, inA, b)
	inAgain, holdAgain := lock(t, inB, a)
	require.Equal(t, 2, holds(t, rdb, "a"))
	require.Equal(t, 1, holds(t, rdb, "b"))
	require.Equal(t, 2, a.HoldCount(inAgain))
	require.Equal(t, 1, b.HoldCount(inAgain))
	require.Zero(t, b.HoldCount(inA), "b was locked under inA, not in it")
	require.Equal(t, holdA.Owner(), holdAgain.Owner())
	require.NotEqual(t, holdA.Owner(), holdB.Owner())

	require.NoError(t, holdA.Unlock(inA))
	require.NoError(t, inAgain.Err(), "the inner hold of a keeps the outer one's context")
	require.NoError(t, holdB.Unlock(inB))
	require.Equal(t, 1, holds(t, rdb, "a"))
	require.Zero(t, holds(t, rdb, "b"))
	require.NoError(t, holdAgain.Unlock(inAgain))
	require.Zero(t, holds(t, rdb, "a"))
	require.ErrorIs(t, context.Cause(inA), rlock.ErrUnlocked)
}

// Lock b was locked under a context that owns a, and is held for longer than a. The end
// of the hold of a does not end that of b.
func TestHoldSurvivesOtherLockAround(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	a, b := c.NewLock("a"), c.NewLock("b")
	inA, holdA := lock(t, t.Context(), a)
	inB, holdB := lock(t, inA, b)
	require.NoError(t, holdA.Unlock(inA))
	require.ErrorIs(t, context.Cause(inB), rlock.ErrUnlocked, "inB descends from inA")
	require.Equal(t, 1, holds(t, srv.Client(t), "b"))
	require.NoError(t, holdB.Unlock(inB))
}

func TestSameLock(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	c, other := newClient(t, srv, nil), newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), c.NewLock("a"))

	_, again := lock(t, held, c.NewLock("a"))
	require.Equal(t, 2, holds(t, rdb, "a"), "two values of one name and client are one lock")

	_, _, err := other.NewLock("a").TryLock(held)
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "another client is another owner, whatever the context")
	require.Zero(t, other.NewLock("a").HoldCount(held))

	prefixed := newClient(t, srv, &rlock.Options{Prefix: "a:"}).NewLock("b")
	held2, hold2 := lock(t, held, prefixed)
	require.Zero(t, c.NewLock("a:b").HoldCount(held2))
	require.Equal(t, 1, holds(t, rdb, "a:b"), "the key is prefix and name, nothing around it")

	require.NoError(t, hold2.Unlock(held2))
	require.NoError(t, again.Unlock(held))
	require.NoError(t, hold.Unlock(held))
	require.Zero(t, holds(t, rdb, "a"))
}

// A context that outlives its grant owns nothing.
func TestContextOutlivesGrant(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	mu := c.NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	require.NoError(t, hold.Unlock(held))

	_, _, err := mu.Lock(held)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, rlock.ErrUnlocked)

	stale := context.WithoutCancel(held)
	require.Zero(t, mu.HoldCount(stale))
	held2, hold2 := lock(t, stale, mu)
	require.NotEqual(t, hold.Owner(), hold2.Owner())
	require.Equal(t, 1, holds(t, rdb, "a"))
	require.Equal(t, 1, mu.HoldCount(held2))

	_, _, err = mu.TryLock(stale)
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "the old context does not own the new grant")
	require.ErrorIs(t, hold.Unlock(stale), rlock.ErrNotHeld)
	require.NoError(t, hold2.Unlock(held2))
}

// A nested hold under an inner context that has ended, of a grant that has not.
func TestNestedUnderEndedContext(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewLock("a")

	for _, tt := range []struct {
		name    string
		sibling bool
	}{
		{"the outer context ends with its last hold", false},
		{"the outer context lives as long as a sibling", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			outer, outerHold := lock(t, t.Context(), mu)
			inner, innerHold := lock(t, outer, mu)
			var sibling context.Context
			var siblingHold *rlock.Hold
			if tt.sibling {
				sibling, siblingHold = lock(t, outer, mu)
			}
			require.NoError(t, innerHold.Unlock(inner))
			late, lateHold := lock(t, context.WithoutCancel(inner), mu)
			require.Equal(t, outerHold.Owner(), lateHold.Owner())
			require.NoError(t, lateHold.Unlock(late))
			require.ErrorIs(t, context.Cause(late), rlock.ErrUnlocked)

			require.NoError(t, outerHold.Unlock(outer))
			if tt.sibling {
				require.NoError(t, outer.Err(), "a hold under it is live")
				require.NoError(t, sibling.Err(), "its hold is live")
				require.NoError(t, siblingHold.Unlock(sibling))
			}
			require.ErrorIs(t, context.Cause(outer), rlock.ErrUnlocked)
			require.Zero(t, holds(t, rdb, "a"))
		})
	}
}

func TestNestedConcurrently(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			ctx, err := held, error(nil)
			var mine []*rlock.Hold
			for range 20 {
				var h *rlock.Hold
				if ctx, h, err = mu.Lock(ctx); err != nil {
					t.Error(err)
					return
				}
				if mine = append(mine, h); len(mine) == 4 {
					rand.Shuffle(4, func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
					for _, h := range mine {
						if err := h.Unlock(ctx); err != nil {
							t.Error(err)
						}
					}
					ctx, mine = held, nil
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, held.Err())
	require.Equal(t, 1, mu.HoldCount(held))
	require.Equal(t, 1, holds(t, rdb, "a"))
	require.NoError(t, hold.Unlock(held))
	require.Zero(t, holds(t, rdb, "a"))
}

// Goroutines that share a grant end it together, in whatever order they come.
func TestNestedConcurrentLastUnlock(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewLock("a")
	for range 50 {
		ctx, all := t.Context(), make([]*rlock.Hold, 4)
		for i := range all {
			ctx, all[i] = lock(t, ctx, mu)
		}
		var wg sync.WaitGroup
		for _, h := range all {
			wg.Go(func() {
				if err := h.Unlock(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Zero(t, holds(t, rdb, "a"))
		require.ErrorIs(t, context.Cause(ctx), rlock.ErrUnlocked)
	}
}
