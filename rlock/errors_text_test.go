package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// The ordinary conflict of two calls in one process accuses nobody.
func TestBusyByTheOwnClient(t *testing.T) {
	t.Parallel()
	mu := newClient(t, newServer(t), nil).NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	err := mu.TryDo(t.Context(), nothing)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	require.ErrorContains(t, err, "another call of this client")
	require.NotContains(t, err.Error(), "use the context")
	require.NoError(t, hold.Unlock(held))
}

// A context that owns the lock by another client is no owner here: the error says so.
func TestBusyByAnotherClientOfTheContext(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mine, other := newClient(t, srv, nil).NewLock("a"), newClient(t, srv, nil).NewLock("a")
	held, hold := lock(t, t.Context(), mine)
	const text = "the context of this call owns by another client"
	require.ErrorContains(t, other.TryDo(held, nothing), text)
	err := other.DoFor(held, 50*time.Millisecond, nothing)
	require.ErrorContains(t, err, text)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, other.TryDo(t.Context(), nothing).Error(), text)
	require.NoError(t, hold.Unlock(held))
}

// The context of an unlocked hold names its lock, also where another lock is wanted.
func TestUnlockedNamesTheLock(t *testing.T) {
	t.Parallel()
	c := newClient(t, newServer(t), nil)
	held, hold := lock(t, t.Context(), c.NewLock("x"))
	require.NoError(t, hold.Unlock(held))
	err := c.NewLock("y").Do(held, nothing)
	require.ErrorIs(t, err, rlock.ErrUnlocked)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, err, `rlock: lock "y": not acquired: context canceled: rlock: lock "x" was unlocked: go on with the context that was passed to Lock`)
}

// A wait of zero is one attempt, as it is for a guard.
func TestNoWaitIsOneAttempt(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	for _, wait := range []time.Duration{0, -time.Second} {
		require.NoError(t, mu.DoFor(t.Context(), wait, nothing))
	}
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	require.ErrorIs(t, mu.DoFor(t.Context(), 0, nothing), rlock.ErrNotAcquired)
	require.NoError(t, hold.Unlock(held))
}

// A reader that is kept out by a writer who waits is not told of a lease that nobody has.
func TestBusyBecauseAWriterWaits(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rw := newClient(t, srv, nil).NewRWLock("a")
	held, hold := lock(t, t.Context(), rw.Reader())
	wait, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- newClient(t, srv, nil).NewRWLock("a").Writer().Do(wait, nothing) }()
	require.Eventually(t, func() bool { return srv.Client(t).Exists(t.Context(), "rlock_rwqueue:{a}").Val() == 1 }, 10*time.Second, time.Millisecond)
	reader := newClient(t, srv, nil).NewRWLock("a").Reader()
	for _, err := range []error{reader.TryDo(t.Context(), nothing), reader.DoFor(t.Context(), time.Second, nothing)} {
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.ErrorContains(t, err, "not acquired: a writer waits for it")
		require.NotContains(t, err.Error(), "lease")
	}
	cancel()
	require.ErrorIs(t, <-done, rlock.ErrNotAcquired)
	require.NoError(t, hold.Unlock(held))
}

// Two clients of one server would wait for each other, whatever connections they have.
func TestMultiLockOfTwoConnectionsToOneServer(t *testing.T) {
	t.Parallel()
	srv, other := newServer(t), newServer(t)
	a, b := newClient(t, srv, nil), newClient(t, srv, nil)
	require.ErrorIs(t, rlock.NewMultiLock(a.NewLock("a"), b.NewLock("a")).DoFor(t.Context(), 100*time.Millisecond, nothing), rlock.ErrInvalidOption)
	require.NoError(t, rlock.NewMultiLock(a.NewLock("a"), b.NewLock("b")).Do(t.Context(), nothing))
	require.NoError(t, rlock.NewMultiLock(a.NewLock("a"), newClient(t, other, nil).NewLock("a")).Do(t.Context(), nothing))
}

// crossSlots counts commands that were refused because of the slots of their keys.
type crossSlots struct{ refused int }

func (*crossSlots) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *crossSlots) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		c.count(err)
		return err
	}
}

func (c *crossSlots) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			c.count(cmd.Err())
		}
		return err
	}
}

func (c *crossSlots) count(err error) {
	if err != nil && redis.HasErrorPrefix(err, "CROSSSLOT") {
		c.refused++
	}
}

// A server, or a proxy before a cluster, may look at slots though its client is one of a single
// server. Members are then taken one by one, and that is found out once.
func TestMultiLockWhereSlotsAreLookedAt(t *testing.T) {
	t.Parallel()
	rdb := redistest.StartCluster(t, 1, 0).Nodes[0].Client(t)
	hook := new(crossSlots)
	rdb.AddHook(hook)
	c := clientOn(t, rdb, nil)
	for range 3 {
		require.NoError(t, rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"), c.NewLock("c")).Do(t.Context(), nothing))
		require.NoError(t, rlock.NewMultiLock(c.NewLock("d"), c.NewLock("e")).TryDo(t.Context(), nothing))
	}
	require.Positive(t, hook.refused)
	require.LessOrEqual(t, hook.refused, 2, "once by the hash of the script, once by its source")
}

// A database that merges hashes field by field puts two holders side by side: both lose.
func TestMergedHolders(t *testing.T) {
	t.Parallel()
	opts := &rlock.Options{LeaseTime: 2 * time.Second}
	servers := []*redistest.Server{newServer(t), newServer(t)}
	var all []context.Context
	var holds []*rlock.Hold
	for _, srv := range servers {
		held, hold := lock(t, t.Context(), newClient(t, srv, opts).NewLock("a"))
		all, holds = append(all, held), append(holds, hold)
	}
	for i, srv := range servers {
		require.NoError(t, srv.Client(t).HSet(t.Context(), "a", holds[1-i].Owner(), 1).Err())
	}
	for i, held := range all {
		require.ErrorIs(t, over(t, held, 10*time.Second), rlock.ErrLeaseLost)
		require.ErrorIs(t, holds[i].Unlock(t.Context()), rlock.ErrLeaseLost)
	}
}

func nothing(context.Context) error { return nil }
