package rlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// kept locks and unlocks until the client keeps the lock: it has to be able to hear of a
// recall first.
func kept(t *testing.T, srv *redistest.Server, mu *rlock.Lock) {
	t.Helper()
	redistest.Eventually(t, "the client keeps the lock", func() bool {
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		return srv.Client(t).Exists(t.Context(), mu.Name()).Val() == 1
	})
}

// awaitFree tries until it gets the lock, and unlocks it.
func awaitFree(t *testing.T, mu *rlock.Lock) {
	t.Helper()
	redistest.Eventually(t, "the lock is given back", func() bool {
		held, hold, err := mu.TryLock(t.Context())
		if err == nil {
			require.NoError(t, hold.Unlock(held))
		}
		return err == nil
	})
}

func TestRetainedLockNeedsNoRoundTrip(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	for name, opts := range map[string][]rlock.LockOption{
		"plain":  {rlock.WithRetention(time.Hour)},
		"fenced": {rlock.WithRetention(time.Hour), rlock.WithFencing()},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, srv, nil)
			for _, mu := range []*rlock.Lock{c.NewLock(name, opts...), c.NewLock(name+" too", opts...)} {
				kept(t, srv, mu)
				var tokens []int64
				commands := sent(t, srv, func() {
					for i := range 100 {
						held, hold := lock(t, t.Context(), mu)
						tokens = append(tokens, hold.Token())
						require.NoError(t, hold.Unlock(held))
						if i%2 == 0 {
							held, hold, err := mu.TryLock(t.Context())
							require.NoError(t, err)
							tokens = append(tokens, hold.Token())
							require.NoError(t, hold.Unlock(held))
						}
					}
				})
				require.Empty(t, commands)
				for i := range tokens[1:] {
					if tokens[0] > 0 {
						require.Greater(t, tokens[i+1], tokens[i])
					}
				}
				state, err := mu.Inspect(t.Context())
				require.NoError(t, err)
				require.Equal(t, map[string]int64{state.Owner(): 0}, state.Holds)
			}
			require.NoError(t, closeSoon(c))
			require.Zero(t, srv.Client(t).Exists(t.Context(), name, name+" too").Val(), "Close releases what is kept")
		})
	}
}

// TryLock of a kept lock with tokens sends nothing either: the client has reserved tokens
// when it acquired the lock.
func TestRetainedFencedTryLock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour), rlock.WithFencing())
	try := func() {
		held, hold, err := mu.TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(held))
	}
	redistest.Eventually(t, "the client keeps the lock", func() bool {
		try()
		return srv.Client(t).Exists(t.Context(), "a").Val() == 1
	})
	require.Empty(t, sent(t, srv, try))
}

// Clients of one lock that all keep it recall it from each other.
func TestRetainedLockIsRecalled(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	a := newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour))
	b := newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour))
	for range 20 {
		for _, mu := range []*rlock.Lock{a, b} {
			held, hold := lock(t, t.Context(), mu)
			require.NoError(t, hold.Unlock(held))
			kept(t, srv, mu)
		}
	}
	plain := newClient(t, srv, nil).NewLock("a")
	kept(t, srv, a)
	awaitFree(t, plain) // the first attempt recalls it
	kept(t, srv, a)
	multi := rlock.NewMultiLock(plain, newClient(t, srv, nil).NewLock("b"))
	held, hold := lock(t, t.Context(), multi)
	require.NoError(t, hold.Unlock(held))
}

// A recall that comes while somebody holds the lock counts when it is unlocked.
func TestRecallWaitsForTheHold(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	a := newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour))
	b := newClient(t, srv, nil).NewLock("a")
	kept(t, srv, a)
	held, hold := lock(t, t.Context(), a)
	w := begin(t.Context(), b)
	awaitQueue(t, srv.Client(t), "a", 1)
	require.NoError(t, held.Err())
	require.NoError(t, hold.Unlock(held))
	heldB, holdB := w.acquired(t)
	require.NoError(t, holdB.Unlock(heldB))
}

// What nests in a hold of a lock that was kept is counted on the server, and the count
// does not hide later that the lock is kept.
func TestRetainedLockNests(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour))
	kept(t, srv, mu)
	held, hold := lock(t, t.Context(), mu)
	inner, innerHold := lock(t, held, mu)
	require.Equal(t, 2, holds(t, srv.Client(t), "a"))
	require.NoError(t, innerHold.Unlock(inner))
	require.NoError(t, hold.Unlock(held))
	other := newClient(t, srv, nil).NewLock("a")
	held, hold = lock(t, t.Context(), other)
	require.NoError(t, hold.Unlock(held))
}

// Goroutines of one client pass a kept lock on among themselves.
func TestRetainedLockIsHandedOff(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	locks := []*rlock.Lock{
		newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Millisecond), rlock.WithFencing()),
		newClient(t, srv, nil).NewLock("a", rlock.WithRetention(time.Hour), rlock.WithFencing()),
		newClient(t, srv, nil).NewLock("a", rlock.WithFencing()),
	}
	var all sync.WaitGroup
	var inside int
	var token int64
	for i := range 24 {
		all.Go(func() {
			for range 200 {
				err := locks[i%3].Do(context.Background(), func(ctx context.Context) error {
					inside++
					assert.Equal(t, 1, inside)
					newer := locks[i%3].Token(ctx)
					assert.Greater(t, newer, token)
					token = newer
					inside--
					return nil
				})
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
}

func TestRetainedLockOfAnotherKindOfCall(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, nil)
	mu, other := c.NewLock("a", rlock.WithRetention(time.Hour)), c.NewLock("a")
	kept(t, srv, mu)
	held, hold := lock(t, t.Context(), other)
	require.NoError(t, hold.Unlock(held))
	kept(t, srv, mu)
	awaitFree(t, other)
}

func TestWithRetentionIsRefused(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, nil)
	for name, mu := range map[string]*rlock.Lock{
		"negative":              c.NewLock("a", rlock.WithRetention(-1)),
		"WithoutRenewal":        c.NewLock("a", rlock.WithRetention(1), rlock.WithoutRenewal()),
		"WithReplicas":          c.NewLock("a", rlock.WithRetention(1), rlock.WithReplicas(1, time.Second)),
		"WithPolling":           c.NewLock("a", rlock.WithRetention(1), rlock.WithPolling(rlock.Polling{})),
		"the next in the queue": c.NewFairLock("a", rlock.WithRetention(1)),
		"only plain":            c.NewRWLock("a", rlock.WithRetention(1)).Writer(),
	} {
		_, _, err := mu.Lock(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption, name)
		require.ErrorContains(t, err, name)
	}
}
