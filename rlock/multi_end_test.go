package rlock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// Under a context whose grant of a member is lost, and which does not end, nothing helps
// but another context: that member cannot be taken.
func TestMultiUnderALostMember(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, &rlock.Options{LeaseTime: time.Second})
	a, b := c.NewLock("a"), c.NewLock("b")
	held, hold := lock(t, t.Context(), b)
	require.NoError(t, srv.Client(t).Del(t.Context(), "b").Err())
	<-held.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(held), time.Minute)
	defer cancel()
	_, _, err := rlock.NewMultiLock(a, b).Lock(ctx)
	require.ErrorIs(t, err, rlock.ErrLeaseLost)
	require.NoError(t, ctx.Err(), "it has not tried until the end")
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
	again, both := lock(t, t.Context(), rlock.NewMultiLock(a, b))
	require.NoError(t, both.Unlock(again))
}

// Of two Unlocks at once one tells what has become of the lock, and the other that it was
// unlocked before.
func TestMultiUnlockTwiceAtOnce(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, &rlock.Options{LeaseTime: 3 * time.Second})
	const locks = 30
	var all sync.WaitGroup
	for i := range locks {
		all.Go(func() {
			a, b := c.NewLock("a"+strconv.Itoa(i)), c.NewLock("b"+strconv.Itoa(i))
			held, hold, err := rlock.NewMultiLock(a, b).Lock(t.Context())
			if !assert.NoError(t, err) {
				return
			}
			lost := i%2 == 0
			if lost {
				assert.NoError(t, rdb.Del(t.Context(), a.Name()).Err())
				<-held.Done()
			}
			var errs [2]error
			var both sync.WaitGroup
			for i := range errs {
				both.Go(func() { errs[i] = hold.Unlock(held) })
			}
			both.Wait()
			if errors.Is(errs[0], rlock.ErrNotHeld) {
				errs[0], errs[1] = errs[1], errs[0]
			}
			assert.ErrorIs(t, errs[1], rlock.ErrNotHeld)
			assert.NotErrorIs(t, errs[0], rlock.ErrNotHeld)
			assert.Equal(t, lost, errors.Is(errs[0], rlock.ErrLeaseLost))
			assert.Equal(t, !lost, errs[0] == nil)
		})
	}
	all.Wait()
	kinds := c.Stats().Kinds
	n := slices.IndexFunc(kinds, func(k rlock.KindStats) bool { return k.Kind == rlock.KindMulti })
	require.GreaterOrEqual(t, n, 0)
	require.EqualValues(t, locks/2, kinds[n].Released)
	require.EqualValues(t, locks/2, kinds[n].Lost)
}

// Two members are lost while the work goes on, which returns the cause of its context. That is one
// of the two losses, and is not told twice.
func TestFakeTimeMultiWhoseMembersAreLost(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		all := rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"))
		err := all.Do(t.Context(), func(ctx context.Context) error {
			f.FlushAll()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		var lost []string
		for _, part := range err.(interface{ Unwrap() []error }).Unwrap() {
			loss, ok := errors.AsType[*rlock.LostError](part)
			require.True(t, ok, "%v", part)
			lost = append(lost, loss.Name)
		}
		require.ElementsMatch(t, []string{"a", "b"}, lost)
	})
}

// A multi lock of which ctx owns all members is nested, like any other lock; with a further member
// it is an acquisition.
func TestFakeTimeNestedMultiLockIsCounted(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		var released, held int
		c := f.client(t, &rlock.Options{Trace: rlock.Trace{
			Released: func(context.Context, rlock.Release) { released++ },
			Acquired: func(_ context.Context, a rlock.Acquisition) {
				if a.Outcome == rlock.OutcomeAcquired {
					held++
				}
			},
		}})
		two := rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"))
		three := rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"), c.NewLock("c"))
		require.NoError(t, two.Do(t.Context(), func(ctx context.Context) error {
			return two.Do(ctx, func(ctx context.Context) error {
				return three.Do(ctx, func(context.Context) error { return nil })
			})
		}))
		kinds := c.Stats().Kinds
		k := kinds[slices.IndexFunc(kinds, func(k rlock.KindStats) bool { return k.Kind == rlock.KindMulti })]
		require.EqualValues(t, 2, k.Acquired())
		require.EqualValues(t, 1, k.Calls[rlock.OutcomeNested])
		require.EqualValues(t, 2, k.Released)
		require.Zero(t, k.Held)
		require.Equal(t, 2, released)
		require.Equal(t, 2, held)
	})
}

// A call that can no longer have all members, as the client of one has closed, does not wait for the
// others, and one that begins after that takes none.
func TestMultiWhoseLaterClientCloses(t *testing.T) {
	t.Parallel()
	srv, srv2 := newServer(t), newServer(t)
	opts, refused := refusals()
	c1, c2 := newClient(t, srv, opts), newClient(t, srv2, nil)
	mu := rlock.NewMultiLock(c1.NewLock("a"), c2.NewLock("b"))
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	waiting := make(chan error, 1)
	go func() { waiting <- mu.Do(t.Context(), nothing) }()
	<-refused
	require.NoError(t, closeSoon(c2))
	err := <-waiting
	require.ErrorIs(t, err, rlock.ErrClosed)
	require.ErrorContains(t, err, `"b"`)
	require.NoError(t, hold.Unlock(held))
	_, _, err = mu.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrClosed)
	state, err := c1.NewLock("a").Inspect(t.Context())
	require.NoError(t, err)
	require.Empty(t, state.Holds)
}
