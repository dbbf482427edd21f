package rlock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
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
	again, hold := lock(t, t.Context(), rlock.NewMultiLock(a, b))
	require.NoError(t, hold.Unlock(again))
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

// A client closes while a call has taken a member of it and waits for another: that gives
// up, and does not keep Close waiting.
func TestFakeTimeMultiWhoseMemberCloses(t *testing.T) {
	for _, mode := range []string{"somebody holds it", "silent"} {
		t.Run(mode, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f, g := newFakeRedis(t), newFakeRedis(t)
				c, d := f.client(t, nil), g.client(t, nil)
				f.heldBy("b", redisson, time.Hour)
				f.deafUp.Store(mode == "silent")
				w := begin(t.Context(), rlock.NewMultiLock(c.NewLock("c"), c.NewLock("b"), d.NewLock("a")))
				time.Sleep(time.Second)
				synctest.Wait()
				require.True(t, g.Exists("a"))
				began := time.Now()
				require.NoError(t, d.Close(t.Context()))
				<-w.done
				require.Zero(t, time.Since(began))
				require.ErrorIs(t, w.err, rlock.ErrClosed)
				require.NotErrorIs(t, w.err, rlock.ErrNotAcquired)
				require.NotErrorIs(t, w.err, rlock.ErrUnavailable)
				require.False(t, g.Exists("a"))
			})
		})
	}
}

// A member is lost while several others are asked for in one script, and get no answer.
func TestFakeTimeMultiStartsOverWhileSilent(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, g := newFakeRedis(t), newFakeRedis(t)
		mu := rlock.NewMultiLock(f.client(t, nil).NewLock("a"), rlock.NewMultiLock(locksOf(g.client(t, nil), "b", "c")...))
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		g.deafUp.Store(true)
		w := begin(t.Context(), mu)
		time.Sleep(time.Second)
		require.True(t, f.Del("a"))
		time.Sleep(10 * time.Second) // to the next renewal
		require.True(t, f.Exists("a"), "it is taken again")
		g.deafUp.Store(false)
		held, hold = w.acquired(t)
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(held))
	})
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
