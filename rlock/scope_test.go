package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// What a context owns can be asked of it, without a request.
func TestTokenAndOwnerOfAContext(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	mu := c.NewLock("a", rlock.WithFencing())
	require.Zero(t, mu.Token(t.Context()))
	require.Empty(t, mu.Owner(t.Context()))
	held, hold := lock(t, t.Context(), mu)
	names := sent(t, srv, func() {
		require.Equal(t, hold.Token(), mu.Token(held))
		require.Positive(t, mu.Token(held))
		require.Equal(t, hold.Owner(), mu.Owner(held))
		require.Equal(t, hold.Token(), c.NewLock("a").Token(held), "the same lock")
		require.Zero(t, c.NewLock("b").Token(held))
		require.Zero(t, mu.Token(rlock.Detach(held)))
	})
	require.Empty(t, names)
	require.NoError(t, hold.Unlock(held))
	require.Zero(t, mu.Token(held))
	require.Empty(t, mu.Owner(held))
	require.Zero(t, c.NewLock("").Token(held), "an invalid lock")
}

func TestDetach(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewLock("a")
	type key struct{}
	held, hold := lock(t, context.WithValue(t.Context(), key{}, "v"), mu)
	detached := rlock.Detach(held)
	require.Equal(t, 1, mu.HoldCount(held))
	require.Zero(t, mu.HoldCount(detached))
	require.Equal(t, "v", detached.Value(key{}))

	_, _, err := mu.TryLock(detached)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	_, _, err = mu.TryLockFor(detached, 20*time.Millisecond)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	// As the detached context ends with the hold, the waiter's must not.
	waiting := context.WithoutCancel(detached)
	acquired := make(chan *rlock.Hold)
	go func() {
		_, hold, err := mu.Lock(waiting)
		if err != nil {
			hold = nil
		}
		acquired <- hold
	}()
	time.Sleep(50 * time.Millisecond)
	select {
	case <-acquired:
		t.Fatal("entered beside the holder")
	default:
	}
	require.NoError(t, hold.Unlock(held))
	require.ErrorIs(t, context.Cause(detached), rlock.ErrUnlocked)
	second := <-acquired
	require.NotNil(t, second)
	require.NoError(t, second.Unlock(waiting))
	require.Zero(t, holds(t, rdb, "a"))
}

// Detach below a detached context, and a lock that is taken there.
func TestDetachThenLockAnother(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	a, b := c.NewLock("a"), c.NewLock("b")
	held, hold := lock(t, t.Context(), a)
	inB, holdB := lock(t, rlock.Detach(held), b)
	require.Zero(t, a.HoldCount(inB), "b's context brings a's ownership back")
	_, nested := lock(t, inB, b)
	require.Equal(t, 2, b.HoldCount(inB))
	for _, h := range []*rlock.Hold{nested, holdB, hold} {
		require.NoError(t, h.Unlock(held))
	}
}

// A lost lock is not owned, whether its holds are unlocked or not.
func TestHoldCountAfterLoss(t *testing.T) {
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	require.NoError(t, srv.Client(t).Del(t.Context(), "a").Err())
	_, _, err := mu.Lock(held)
	require.ErrorIs(t, err, rlock.ErrLeaseLost)
	require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
	require.Zero(t, mu.HoldCount(held))
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
}
