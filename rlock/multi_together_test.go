package rlock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestMultiLock(t *testing.T) {
	srv := newServer(t)
	rdb, c := srv.Client(t), newClient(t, srv, nil)
	mu := rlock.NewMultiLock(append(locksOf(c, "c", "a"), c.NewLock("b", rlock.WithFencing()))...)
	require.Equal(t, "a,b,c", mu.Name())
	for range 2 { // the second time the server knows the scripts
		var held context.Context
		var hold *rlock.MultiHold
		commands := sent(t, srv, func() { held, hold = lock(t, t.Context(), mu) })
		require.LessOrEqual(t, len(commands), 2)
		require.Len(t, rdb.Keys(t.Context(), "?").Val(), 3)
		require.Equal(t, 1, mu.HoldCount(held))
		for i, part := range hold.Holds() {
			require.Equal(t, mu.Members()[i].Owner(held), part.Owner())
			require.Equal(t, mu.Members()[i].Token(held), part.Token())
		}
		require.Positive(t, time.Until(hold.Until()))

		_, inner := lock(t, held, c.NewLock("b"))
		require.Equal(t, 2, holds(t, rdb, "b"))
		require.Positive(t, inner.Token())
		require.NoError(t, inner.Unlock(held))
		nested, again := lock(t, held, rlock.NewMultiLock(append(mu.Members(), c.NewLock("d"))...))
		require.Equal(t, 2, holds(t, rdb, "a"))
		require.Equal(t, 1, holds(t, rdb, "d"))
		require.Equal(t, 2, mu.HoldCount(nested))
		require.NoError(t, again.Unlock(nested))
		require.NoError(t, held.Err())

		require.NoError(t, hold.Unlock(held))
		require.ErrorIs(t, context.Cause(held), rlock.ErrUnlocked)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrNotHeld)
		keysLeft(t, rdb, "redisson_lock_token:{b}")
	}
	require.Equal(t, []string{"evalsha"}, sent(t, srv, func() {
		held, hold := lock(t, t.Context(), mu)
		t.Cleanup(func() { require.NoError(t, hold.Unlock(held)) })
	}), "three locks in one script")
}

// Locks that poll are asked for one by one: there may be a proxy that looks at the first key
// only.
func TestMultiOfPollingLocks(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c, polling := newClient(t, srv, nil), rlock.WithPolling(rlock.Polling{})
	mu := rlock.NewMultiLock(c.NewLock("a", polling), c.NewLock("b", polling))
	m := srv.Monitor(t)
	held, hold := lock(t, t.Context(), mu)
	require.NoError(t, hold.Unlock(held))
	for _, cmd := range m.Commands() {
		if verb := strings.ToLower(cmd.Args[0]); verb == "eval" || verb == "evalsha" {
			require.Equal(t, "1", cmd.Args[2], "%v", cmd.Args)
		}
	}
}

// A multi lock does not take a fair lock that is free while others are in its queue: it
// waits for its turn.
func TestMultiLockOfFairLocksWaitsItsTurn(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	var members []*rlock.Lock
	for _, name := range []string{"a", "b"} {
		members = append(members, c.NewFairLock(name))
	}
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewFairLock("b"))
	w := begin(t.Context(), newClient(t, srv, nil).NewFairLock("b"))
	awaitHearing(t, rdb, "b", 1)
	require.NoError(t, rdb.Del(t.Context(), "b").Err()) // of which nobody is told
	_, _, err := rlock.NewMultiLock(members...).TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "another is before it")
	requireUnlockedTooLate(t, hold.Unlock(held))
	next, nextHold := w.acquired(t)
	require.NoError(t, nextHold.Unlock(next))
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
				refused := make(chan error, 1)
				go func() {
					refused <- rlock.NewMultiLock(c.NewLock("c"), c.NewLock("b"), d.NewLock("a")).Do(t.Context(), nothing)
				}()
				time.Sleep(time.Second)
				synctest.Wait()
				require.True(t, g.Exists("a"))
				began := time.Now()
				require.NoError(t, d.Close(t.Context()))
				err := <-refused
				require.Zero(t, time.Since(began))
				require.ErrorIs(t, err, rlock.ErrClosed)
				require.NotErrorIs(t, err, rlock.ErrNotAcquired)
				require.NotErrorIs(t, err, rlock.ErrUnavailable)
				require.False(t, g.Exists("a"))
			})
		})
	}
}

// A member is lost while several others are asked for in one script, and get no answer.
func TestFakeTimeMultiStartsOverWhileSilent(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, g := newFakeRedis(t), newFakeRedis(t)
		mu := rlock.NewMultiLock(append(locksOf(g.client(t, nil), "b", "c"), f.client(t, nil).NewLock("a"))...)
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		g.deafUp.Store(true)
		done := make(chan struct{})
		go func() {
			defer close(done)
			held, hold = lock(t, t.Context(), mu)
		}()
		time.Sleep(time.Second)
		require.True(t, f.Del("a"))
		time.Sleep(10 * time.Second) // to the next renewal
		require.True(t, f.Exists("a"), "it is taken again")
		g.deafUp.Store(false)
		<-done
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(held))
	})
}

// One server is silent from the start, and the other when its lock is to be given back: the time of the call
// ends then, and the error says both.
func TestFakeTimeMultiRunsOutOfTimeBesideSilence(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, g := newFakeRedis(t), newFakeRedis(t)
		mu := rlock.NewMultiLock(f.client(t, nil).NewLock("a"), g.client(t, nil).NewLock("b"))
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		g.deafUp.Store(true)
		time.AfterFunc(time.Second, func() { f.deafUp.Store(true) })
		began := time.Now()
		_, _, err := mu.TryLockFor(t.Context(), 2500*time.Millisecond)
		require.Equal(t, 2500*time.Millisecond, time.Since(began))
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, rlock.ErrNotAcquired)
		f.deafUp.Store(false)
		g.deafUp.Store(false)
		time.Sleep(time.Minute)
		require.False(t, f.Exists("a"))
		require.False(t, g.Exists("b"))
	})
}
