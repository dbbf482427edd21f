package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-rlock/rlock/internal/redistest"
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

// nestedModel is what should be true of one lock under random calls of one
// client.
type nestedModel struct {
	mu    *rlock.Lock
	grant int // number of the current grant; its holds are those that are live
	all   []*modelHold
}

type modelHold struct {
	ctx    context.Context
	hold   *rlock.Hold
	grant  int
	parent *modelHold
	live   bool
	ended  bool // the context; it never comes back
}

// under reports whether h, or a hold taken under it, is live.
func (m *nestedModel) under(h *modelHold) bool {
	if h.live {
		return true
	}
	for _, other := range m.all {
		if other.parent == h && m.under(other) {
			return true
		}
	}
	return false
}

func (m *nestedModel) live() (n int) {
	for _, h := range m.all {
		if h.live {
			n++
		}
	}
	return n
}

// add notes a hold that was taken under parent, nil for a new grant.
func (m *nestedModel) add(ctx context.Context, hold *rlock.Hold, parent *modelHold) {
	if parent == nil {
		m.grant++
	}
	m.all = append(m.all, &modelHold{ctx: ctx, hold: hold, grant: m.grant, parent: parent, live: true})
}

func TestNestedModel(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		m := &nestedModel{mu: c.NewLock(fmt.Sprint("model ", n))}
		defer func() {
			for _, h := range m.all {
				_ = h.hold.Unlock(h.ctx)
			}
		}()
		pick := func(t *rapid.T) *modelHold {
			if len(m.all) == 0 {
				t.Skip("nothing was locked yet")
			}
			return m.all[rapid.IntRange(0, len(m.all)-1).Draw(t, "hold")]
		}
		// try locks under ctx, which belongs to h; nil for a context without owner.
		try := func(t *rapid.T, ctx context.Context, h *modelHold) {
			held, hold, err := m.mu.TryLock(ctx)
			switch free := m.live() == 0; {
			case ctx.Err() != nil:
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, rlock.ErrUnlocked)
			case free:
				require.NoError(t, err)
				m.add(held, hold, nil)
			case h != nil && h.grant == m.grant:
				require.NoError(t, err)
				m.add(held, hold, h)
			default:
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"lock":          func(t *rapid.T) { try(t, context.Background(), nil) },
			"nest":          func(t *rapid.T) { h := pick(t); try(t, h.ctx, h) },
			"without owner": func(t *rapid.T) { try(t, rlock.Detach(pick(t).ctx), nil) },
			"without end":   func(t *rapid.T) { h := pick(t); try(t, context.WithoutCancel(h.ctx), h) },
			"unlock": func(t *rapid.T) {
				h := pick(t)
				err := h.hold.Unlock(context.Background())
				if h.live {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, rlock.ErrNotHeld)
				}
				h.live = false
			},
			"": func(t *rapid.T) {
				live := m.live()
				require.Equal(t, live, holds(t, rdb, m.mu.Name()))
				for i, h := range m.all {
					h.ended = h.ended || !m.under(h)
					if !h.ended {
						require.NoError(t, h.ctx.Err(), "context %d: it, or a hold under it, is live", i)
						require.Equal(t, live, m.mu.HoldCount(h.ctx))
					} else if !errors.Is(context.Cause(h.ctx), rlock.ErrUnlocked) {
						require.FailNow(t, "context goes on", "%d: no hold under it is live: %v", i, context.Cause(h.ctx))
					}
				}
			},
		})
	})
}

// The ownership that a call stands on ends while Redis is silent: that is what the
// error says, not that Redis is at fault.
func TestFakeTimeOwnershipEndsMeanwhile(t *testing.T) {
	for _, after := range []time.Duration{time.Millisecond, 5 * time.Second} { // before and after an attempt got no answer
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			c := f.client(t, nil)
			ctx, hold := lock(t, t.Context(), c.NewLock("a"))
			f.deafDown.Store(true)
			time.AfterFunc(after, func() { _ = hold.Unlock(t.Context()) })
			_, _, err := c.NewLock("b").Lock(ctx)
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			require.ErrorIs(t, err, rlock.ErrUnlocked)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, rlock.ErrUnavailable)
		})
	}
}

// So it is for a nested call of the same lock. It owns the lock as well until it fails, so
// that the outer Unlock does not end the context, but its own end does.
func TestFakeTimeOwnershipEndsUnderANestedCall(t *testing.T) {
	const lease = 15 * time.Second
	for name, tt := range map[string]struct {
		call func(*rlock.Lock, context.Context) (context.Context, *rlock.Hold, error)
		want error
		in   time.Duration
	}{
		"TryLock": {(*rlock.Lock).TryLock, rlock.ErrUnlocked, 2 * time.Second},
		"TryLockFor": {func(mu *rlock.Lock, ctx context.Context) (context.Context, *rlock.Hold, error) {
			return mu.TryLockFor(ctx, 4*time.Second)
		}, rlock.ErrUnlocked, 4 * time.Second},
		"Lock": {(*rlock.Lock).Lock, rlock.ErrLeaseLost, lease},
	} {
		for _, unlocked := range []bool{true, false} {
			for _, replies := range []bool{true, false} {
				t.Run(fmt.Sprint(name, " unlocked ", unlocked, " executed ", replies), func(t *testing.T) {
					redistest.Bubble(t, func(t *testing.T) {
						f := newFakeRedis(t)
						mu := f.client(t, &rlock.Options{LeaseTime: lease}).NewLock("a")
						ctx, hold := lock(t, t.Context(), mu)
						f.deafDown.Store(replies)
						f.deafUp.Store(!replies)
						var all sync.WaitGroup
						if unlocked {
							all.Go(func() {
								time.Sleep(time.Millisecond)
								_ = hold.Unlock(t.Context())
							})
						}
						began := time.Now()
						got, _, err := tt.call(mu, ctx)
						require.LessOrEqual(t, time.Since(began), tt.in)
						require.Equal(t, ctx, got)
						if unlocked || tt.want == rlock.ErrLeaseLost {
							require.ErrorIs(t, err, tt.want)
							require.NotErrorIs(t, err, rlock.ErrUnavailable)
							require.ErrorIs(t, context.Cause(ctx), tt.want)
						} else {
							require.ErrorIs(t, err, rlock.ErrUnavailable)
							require.NoError(t, ctx.Err())
						}
						all.Wait()
						f.heal()
						_ = hold.Unlock(t.Context())
						redistest.Eventually(t, "the lock is free", func() bool { return !f.Exists("a") })
					})
				})
			}
		}
	}
}

func TestFakeTimeLeaseIsLostMeanwhile(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, &rlock.Options{LeaseTime: 3 * time.Second})
		ctx, hold := lock(t, t.Context(), c.NewLock("a"))
		f.deafDown.Store(true)
		_, _, err := c.NewLock("b").Lock(ctx)
		require.Same(t, context.Cause(ctx), err)
		require.ErrorIs(t, err, rlock.ErrLeaseLost)
		f.heal()
		_ = hold.Unlock(t.Context())
	})
}

// A nested TryLock is one attempt, also behind others that get no answer.
func TestFakeTimeNestedTryLockIsBounded(t *testing.T) {
	for _, before := range []string{"Lock", "TryLock"} {
		t.Run(before, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, &rlock.Options{LeaseTime: 15 * time.Second}).NewLock("a")
				held, hold := lock(t, t.Context(), mu)
				f.deafDown.Store(true)
				var all sync.WaitGroup
				if before == "Lock" {
					all.Go(func() { _, _, _ = mu.Lock(held) })
				}
				synctest.Wait()
				began := time.Now()
				for range 5 {
					all.Go(func() {
						_, _, err := mu.TryLock(held)
						assert.ErrorIs(t, err, rlock.ErrUnavailable)
						assert.ErrorContains(t, err, "answer")
						assert.Equal(t, 2*time.Second, time.Since(began))
					})
				}
				all.Wait()
				f.heal()
				_ = hold.Unlock(t.Context())
			})
		})
	}
}

// An Unlock returns in its time, also behind others that get no answer.
func TestFakeTimeUnlockIsBoundedInACrowd(t *testing.T) {
	for _, timeout := range []time.Duration{300 * time.Millisecond, time.Second, 5 * time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				c := f.client(t, &rlock.Options{UnlockTimeout: timeout, LeaseTime: 15 * time.Second})
				var all sync.WaitGroup
				for i := range 20 {
					_, hold := lock(t, t.Context(), c.NewLock(strconv.Itoa(i)))
					all.Go(func() {
						time.Sleep(time.Duration(i+1) * timeout / 20)
						began := time.Now()
						assert.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrUnavailable)
						assert.LessOrEqual(t, time.Since(began), timeout)
					})
				}
				f.deafDown.Store(true)
				all.Wait()
				f.heal()
			})
		})
	}
}

// Nested calls that are made at the same time share a request about the hold count, and so do
// their Unlocks: none waits for those before it one after the other.
func TestFakeTimeNestedCallsShareARequest(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const calls, late = 50, 80 * time.Millisecond // too short for copies
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		held, hold := lock(t, t.Context(), mu)
		_, inner := lock(t, held, mu) // teaches the server the script
		require.NoError(t, inner.Unlock(held))
		before := len(f.scripts("count"))
		f.late.Store(int64(late))
		var all sync.WaitGroup
		nested := make([]*rlock.Hold, calls)
		began := time.Now()
		for i := range nested {
			all.Go(func() {
				_, h, err := mu.Lock(held)
				assert.NoError(t, err)
				nested[i] = h
			})
		}
		all.Wait()
		assert.LessOrEqual(t, time.Since(began), 2*late)
		assert.Equal(t, strconv.Itoa(calls+1), f.HGet("a", hold.Owner()))
		for _, h := range nested {
			all.Go(func() { assert.NoError(t, h.Unlock(held)) })
		}
		all.Wait()
		assert.LessOrEqual(t, time.Since(began), 4*late)
		assert.Equal(t, "1", f.HGet("a", hold.Owner()))
		assert.LessOrEqual(t, len(f.scripts("count"))-before, 4)
		assert.NoError(t, hold.Unlock(held))
	})
}
