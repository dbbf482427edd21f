package rlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// waiting is a Lock that a test has begun.
type waiting struct {
	done chan struct{}
	held context.Context
	hold *rlock.Hold
	err  error
}

func begin(ctx context.Context, mu *rlock.Lock) *waiting {
	w := &waiting{done: make(chan struct{})}
	go func() { // ends with ctx or the lock
		w.held, w.hold, w.err = mu.Lock(ctx)
		close(w.done)
	}()
	return w
}

func (w *waiting) acquired(tb testing.TB) (context.Context, *rlock.Hold) {
	tb.Helper()
	select {
	case <-w.done:
	case <-time.After(20 * time.Second):
		require.FailNow(tb, "not acquired")
	}
	require.NoError(tb, w.err)
	return w.held, w.hold
}

func TestFairOrderOverClients(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	clients := []*rlock.Client{newClient(t, srv, nil), newClient(t, srv, nil), newClient(t, srv, nil)}
	held, hold := lock(t, t.Context(), clients[0].NewFairLock("a"))

	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	const waiters = 12
	for i := range waiters {
		wg.Go(func() {
			held, hold, err := clients[i%3].NewFairLock("a").Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := hold.Unlock(held); err != nil {
				t.Error(err)
			}
		})
		awaitQueue(t, rdb, "a", i+1)
	}
	s, err := clients[1].NewFairLock("a").Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int64{hold.Owner(): 1}, s.Holds)
	require.EqualValues(t, waiters, s.Waiters)
	require.NoError(t, hold.Unlock(held))
	wg.Wait()
	for i := range waiters {
		require.Equal(t, i, order[i], "%v", order)
	}
	require.Empty(t, lockKeys(t, rdb))
}

func TestFairTryLockDoesNotOvertake(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	_, hold := lock(t, t.Context(), newClient(t, srv, nil).NewFairLock("a"))
	w := begin(t.Context(), newClient(t, srv, nil).NewFairLock("a"))
	awaitQueue(t, rdb, "a", 1)
	require.NoError(t, rdb.Del(t.Context(), "a").Err()) // as if the holder had died

	_, _, err := newClient(t, srv, nil).NewFairLock("a").TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	held, next := w.acquired(t)
	require.Empty(t, queueOf(t, rdb, "a"), "a TryLock leaves no ticket")
	require.NoError(t, next.Unlock(held))
	requireUnlockedTooLate(t, hold.Unlock(t.Context()))

	held, hold, err = newClient(t, srv, nil).NewFairLock("a").TryLock(t.Context())
	require.NoError(t, err)
	require.NoError(t, hold.Unlock(held))
}

func TestFairOptions(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), c.NewFairLock("a"))
	fixed := begin(t.Context(), c.NewFairLock("a", rlock.WithoutRenewal(), rlock.WithLeaseTime(20*time.Second)))
	awaitQueue(t, rdb, "a", 1)
	short := begin(t.Context(), c.NewFairLock("a", rlock.WithLeaseTime(3*time.Second)))
	awaitQueue(t, rdb, "a", 2)
	require.NoError(t, hold.Unlock(held))

	held, hold = fixed.acquired(t)
	require.Greater(t, rdb.PTTL(t.Context(), "a").Val(), 15*time.Second)
	require.Greater(t, time.Until(hold.Until()), 15*time.Second, "a fixed lease is a whole one")
	nested, inner := lock(t, held, c.NewFairLock("a"))
	require.Equal(t, 2, holds(t, rdb, "a"))
	require.NoError(t, inner.Unlock(nested))
	require.NoError(t, hold.Unlock(held))

	held, hold = short.acquired(t)
	require.LessOrEqual(t, rdb.PTTL(t.Context(), "a").Val(), 3*time.Second)
	for until := hold.Until(); !hold.Until().After(until.Add(time.Second)); time.Sleep(10 * time.Millisecond) {
		require.NoError(t, held.Err(), "it is renewed")
	}
	require.NoError(t, hold.Unlock(held))
}

// In fake time: where the first answer to an Unlock comes too late, nobody can tell whether
// there was something to release, and that is no error.
func TestFairForceUnlock(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewFairLock("a")
		_, hold := lock(t, t.Context(), mu)
		w := begin(t.Context(), mu)
		awaitQueue(t, f.rdb, "a", 1)
		was, err := mu.ForceUnlock(t.Context())
		require.NoError(t, err)
		require.True(t, was)
		held, next := w.acquired(t)
		require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrLeaseLost)
		require.NoError(t, next.Unlock(held))

		held, hold = lock(t, t.Context(), mu)
		done, err := mu.UnlockOwner(t.Context(), "somebody:else")
		require.NoError(t, err)
		require.False(t, done)
		require.NoError(t, hold.Unlock(held))
	})
}

// The next in the queue may be of the same client as the owner that is removed: nobody but
// the server can tell it.
func TestFakeTimeUnlockOwnerTellsTheSameClient(t *testing.T) {
	for name, option := range map[string][]rlock.LockOption{"fair": nil, "fenced": {rlock.WithFencing()}} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				here, there := f.client(t, nil).NewFairLock("a", option...), f.client(t, nil).NewFairLock("a", option...)
				_, hold := lock(t, t.Context(), here)
				next := begin(t.Context(), here)
				awaitQueue(t, f.rdb, "a", 1)
				time.Sleep(time.Second) // it hears
				removed, err := there.UnlockOwner(t.Context(), hold.Owner())
				require.NoError(t, err)
				require.True(t, removed)
				began := time.Now()
				held, mine := next.acquired(t)
				require.Less(t, time.Since(began), time.Second)
				require.NoError(t, mine.Unlock(held))
				require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrLeaseLost)
			})
		})
	}
}

// Fair and plain locks of one name are one lock.
func TestFairExcludesPlain(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), c.NewFairLock("a"))
	_, _, err := newClient(t, srv, nil).NewLock("a").TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	plain := begin(t.Context(), newClient(t, srv, nil).NewLock("a"))
	awaitListener(t, rdb, "a")
	nested, inner, err := c.NewLock("a").TryLock(held)
	require.NoError(t, err)
	require.NoError(t, inner.Unlock(nested))
	began := time.Now()
	require.NoError(t, hold.Unlock(held))
	held, hold = plain.acquired(t)
	require.Less(t, time.Since(began), 10*time.Second, "it was woken")

	w := begin(t.Context(), c.NewFairLock("a"))
	awaitQueue(t, rdb, "a", 1)
	require.NoError(t, hold.Unlock(held))
	held, hold = w.acquired(t)
	require.NoError(t, hold.Unlock(held))
}

func TestFairRefusesRedissonsQueue(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	require.NoError(t, rdb.RPush(t.Context(), "redisson_lock_queue:{a}", "java:1").Err())
	_, _, err := mu.Lock(t.Context())
	require.ErrorIs(t, err, rlock.ErrKeyConflict)
	require.ErrorContains(t, err, "Redisson's fair lock")
	_, _, err = mu.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrKeyConflict)
	require.Len(t, lockKeys(t, rdb), 1)
}

func TestFairBadInput(t *testing.T) {
	t.Parallel()
	c := newClient(t, newServer(t), nil)
	for _, mu := range []*rlock.Lock{
		c.NewFairLock(""), c.NewFairLock("{a"), c.NewFairLock("a", rlock.WithLeaseTime(time.Millisecond)),
		c.NewFairLock("a", rlock.WithHandoff(10, time.Second)),
	} {
		_, _, err := mu.Lock(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		_, _, err = mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		_, err = mu.Inspect(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		require.ErrorIs(t, mu.Do(t.Context(), nil), rlock.ErrInvalidOption)
	}
}
