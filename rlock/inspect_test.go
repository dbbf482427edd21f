package rlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestInspect(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	c, watcher := newClient(t, srv, nil), newClient(t, srv, nil)
	mu, watched := c.NewLock("a", rlock.WithFencing()), watcher.NewLock("a", rlock.WithFencing())
	inspect := func() rlock.State {
		t.Helper()
		state, err := watched.Inspect(ctx)
		require.NoError(t, err)
		return state
	}

	state := inspect()
	require.Equal(t, rlock.State{Name: "a", Holds: map[string]int64{}}, state)
	require.Empty(t, state.Owner())

	held, hold := lock(t, ctx, mu)
	_, nested := lock(t, held, mu)
	state = inspect()
	require.Equal(t, hold.Owner(), state.Owner())
	require.Equal(t, map[string]int64{hold.Owner(): 2}, state.Holds)
	require.InDelta(t, 30*time.Second, state.TTL, float64(10*time.Second))
	require.Equal(t, hold.Token(), state.Token)
	require.Positive(t, state.Token)
	require.Zero(t, state.Waiters)
	require.Equal(t, []string{"evalsha"}, sent(t, srv, func() { inspect() }))

	plain, err := watcher.NewLock("a").Inspect(ctx)
	require.NoError(t, err)
	require.Zero(t, plain.Token, "without fencing")

	waiting, cancel := context.WithCancel(ctx)
	done := async(func() error { _, _, err := watched.Lock(waiting); return err })
	awaitListener(t, rdb, "a")
	require.Equal(t, int64(1), inspect().Waiters)
	cancel()
	require.ErrorIs(t, <-done, rlock.ErrNotAcquired)
	redistest.Eventually(t, "the waiter's ticket is withdrawn, so that no release passes the lock on to it", func() bool {
		return rdb.Exists(ctx, "rlock_queue:{a}").Val() == 0
	})

	require.NoError(t, nested.Unlock(held))
	require.NoError(t, hold.Unlock(held))
	state = inspect()
	require.Empty(t, state.Holds)
	require.Zero(t, state.TTL)
	require.Equal(t, hold.Token(), state.Token, "the newest token outlives its grant")
}

func TestForceUnlock(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	mu, theirs := newClient(t, srv, nil).NewLock("a"), newClient(t, srv, nil).NewLock("a")

	removed, err := mu.ForceUnlock(ctx)
	require.NoError(t, err)
	require.False(t, removed, "it was free")

	held, hold := lock(t, ctx, theirs)
	waiter := async(func() error { return mu.Do(ctx, func(context.Context) error { return nil }) })
	awaitListener(t, rdb, "a")
	removed, err = mu.ForceUnlock(ctx)
	require.NoError(t, err)
	require.True(t, removed)
	require.NoError(t, within(t, 10*time.Second, waiter), "a waiter is woken")
	requireUnlockedTooLate(t, hold.Unlock(held)) // the exact error: TestStatsOfLosses, TestFakeTimeRemovedByTheOwnClient
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrNotHeld)
}

func TestUnlockOwner(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	c := newClient(t, srv, nil)
	admin := newClient(t, srv, nil).NewLock("a")

	removed, err := admin.UnlockOwner(ctx, "somebody:1")
	require.NoError(t, err)
	require.False(t, removed, "it was free")

	held, hold := lock(t, ctx, c.NewLock("a"))
	_, nested := lock(t, held, c.NewLock("a"))
	for _, owner := range []string{"", "somebody:1", hold.Owner() + "0", hold.Owner()[:len(hold.Owner())-1]} {
		removed, err := admin.UnlockOwner(ctx, owner)
		require.NoError(t, err)
		require.False(t, removed, owner)
		require.Equal(t, 2, holds(t, rdb, "a"))
	}
	state, err := admin.Inspect(ctx)
	require.NoError(t, err)
	waiter := async(func() error { return admin.Do(ctx, func(context.Context) error { return nil }) })
	awaitListener(t, rdb, "a")
	removed, err = admin.UnlockOwner(ctx, state.Owner())
	require.NoError(t, err)
	require.True(t, removed, "whatever the hold count")
	require.NoError(t, within(t, 10*time.Second, waiter), "a waiter is woken")
	require.ErrorIs(t, nested.Unlock(ctx), rlock.ErrLeaseLost)
	require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrLeaseLost)
}

// The owner of a lock of another kind is not that of this one: its hold stays as it is.
func TestUnlockOwnerOfAnotherKind(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	c := newClient(t, srv, nil)
	held, one := lock(t, ctx, c.NewRWLock("a").Reader())
	_, two := lock(t, rlock.Detach(held), newClient(t, srv, nil).NewRWLock("a").Reader())
	before := hgetall(t, rdb, "a")
	require.Contains(t, before, one.Owner())
	for name, mu := range map[string]*rlock.Lock{"plain": c.NewLock("a"), "fair": c.NewFairLock("a"), "fenced": c.NewLock("a", rlock.WithFencing())} {
		removed, err := mu.UnlockOwner(ctx, one.Owner())
		require.ErrorIs(t, err, rlock.ErrKeyConflict, name)
		require.False(t, removed, name)
		require.Equal(t, before, hgetall(t, rdb, "a"), name)
	}
	require.NoError(t, one.Unlock(ctx))
	require.NoError(t, two.Unlock(ctx))

	held, one = lock(t, ctx, c.NewLock("a"))
	removed, err := c.NewRWLock("a").Writer().UnlockOwner(ctx, one.Owner())
	require.ErrorIs(t, err, rlock.ErrKeyConflict)
	require.False(t, removed)
	require.NoError(t, one.Unlock(held))
}

// A lock without TTL is foreign or broken. It is respected, watched at leisure,
// and can be removed.
func TestLockWithoutTTL(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	r := newRecorder()
	mu := newClient(t, srv, &rlock.Options{Trace: r.trace(t, "a")}).NewLock("a")
	_, hold := lock(t, ctx, newClient(t, srv, nil).NewLock("a"))
	require.NoError(t, rdb.Persist(ctx, "a").Err())

	state, err := mu.Inspect(ctx)
	require.NoError(t, err)
	require.Negative(t, state.TTL)
	require.Equal(t, hold.Owner(), state.Owner())

	_, _, err = mu.TryLock(ctx)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	var refused *rlock.NotAcquiredError
	require.ErrorAs(t, err, &refused)
	require.Negative(t, refused.TTL)
	require.ErrorContains(t, err, "force-unlock", "the way out")

	done := async(func() error { return mu.Do(ctx, func(context.Context) error { return nil }) })
	awaitHearing(t, rdb, "a", 1)
	for len(r.waiting) > 0 { // as long as it could not hear, it asked more often
		<-r.waiting
	}
	start := time.Now()
	for _, when := range []string{"when subscribed", "later", "and again"} {
		require.Negative(t, within(t, 20*time.Second, r.waiting), when)
	}
	require.Greater(t, time.Since(start), 800*time.Millisecond, "at most twice per second")
	removed, err := mu.ForceUnlock(ctx)
	require.NoError(t, err)
	require.True(t, removed)
	require.NoError(t, within(t, 10*time.Second, done))
	requireUnlockedTooLate(t, hold.Unlock(ctx))
}

// A holder gets its TTL back from its own renewals.
func TestRenewalRestoresTTL(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	_, hold := lock(t, t.Context(), newClient(t, srv, &rlock.Options{LeaseTime: 10 * time.Second}).NewLock("a"))
	require.NoError(t, rdb.Persist(t.Context(), "a").Err())
	redistest.Eventually(t, "the key has a TTL", func() bool { return rdb.PTTL(t.Context(), "a").Val() > 0 })
	require.NoError(t, hold.Unlock(t.Context()))
}

// Who removes a lock that its own client holds or keeps need not wait for a renewal to learn of it.
func TestFakeTimeRemovedByTheOwnClient(t *testing.T) {
	for name, remove := range map[string]func(context.Context, *rlock.Lock, string) (bool, error){
		"ForceUnlock": func(ctx context.Context, mu *rlock.Lock, _ string) (bool, error) { return mu.ForceUnlock(ctx) },
		"UnlockOwner": func(ctx context.Context, mu *rlock.Lock, owner string) (bool, error) {
			return mu.UnlockOwner(ctx, owner)
		},
	} {
		for _, what := range []string{"held", "kept", "passed on"} {
			t.Run(name+", "+what, func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					f := newFakeRedis(t)
					c := f.client(t, nil)
					mu := c.NewLock("a", rlock.WithRetention(time.Hour))
					keep(t, f, mu)
					held, hold := lock(t, t.Context(), mu)
					if what == "kept" {
						require.NoError(t, hold.Unlock(held))
					}
					var next *waiting
					if what == "passed on" {
						next = begin(t.Context(), mu)
						synctest.Wait()
						require.NoError(t, hold.Unlock(held))
						held, hold = next.acquired(t)
					}
					was, err := remove(t.Context(), c.NewLock("a"), hold.Owner())
					require.NoError(t, err)
					require.True(t, was)
					if what != "kept" {
						require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
						require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
					}
					rivals, rival := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
					_, _, err = mu.TryLock(t.Context())
					require.ErrorIs(t, err, rlock.ErrNotAcquired)
					require.NoError(t, rival.Unlock(rivals))
				})
			})
		}
	}
}
