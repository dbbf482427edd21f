package rlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestReadWriteForceUnlock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	ctx := t.Context()
	one, other := newClient(t, srv, nil).NewRWLock("a", rlock.WithLeaseTime(3*time.Second)), newClient(t, srv, nil).NewRWLock("a")
	for _, side := range []*rlock.Lock{one.Reader(), one.Writer()} {
		held, hold := lock(t, ctx, side)
		_, nested := lock(t, held, one.Reader())
		removed, err := other.Reader().ForceUnlock(ctx)
		require.NoError(t, err)
		require.True(t, removed)
		<-held.Done()
		require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
		require.Zero(t, one.Writer().HoldCount(held))
		require.ErrorIs(t, nested.Unlock(ctx), rlock.ErrLeaseLost)
		require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrLeaseLost)
	}
	removed, err := other.Writer().ForceUnlock(ctx)
	require.NoError(t, err)
	require.False(t, removed)

	_, hold := lock(t, ctx, one.Reader())
	removed, err = other.Writer().UnlockOwner(ctx, hold.Owner())
	require.NoError(t, err)
	require.True(t, removed)
	requireUnlockedTooLate(t, hold.Unlock(ctx))
}

func TestReadWriteRefusals(t *testing.T) {
	srv := newServer(t)
	ctx := t.Context()
	c := newClient(t, srv, nil)
	for name, mu := range map[string]*rlock.RWLock{
		"name":     c.NewRWLock("{a"),
		"empty":    c.NewRWLock(""),
		"lease":    c.NewRWLock("a", rlock.WithLeaseTime(time.Millisecond)),
		"hand-off": c.NewRWLock("a", rlock.WithHandoff(10, time.Second)),
	} {
		for _, side := range []*rlock.Lock{mu.Reader(), mu.Writer()} {
			_, _, err := side.Lock(ctx)
			require.ErrorIs(t, err, rlock.ErrInvalidOption, name)
			_, err = side.Inspect(ctx)
			require.ErrorIs(t, err, rlock.ErrInvalidOption, name)
		}
	}
	other := newClient(t, srv, nil)
	held, hold := lock(t, ctx, other.NewLock("a"))
	for _, side := range []*rlock.Lock{c.NewRWLock("a").Reader(), c.NewRWLock("a").Writer()} {
		_, _, err := side.TryLock(ctx)
		require.ErrorIs(t, err, rlock.ErrKeyConflict)
		require.ErrorContains(t, err, `"a" holds a plain lock, which may be a fair one: take it with NewLock or NewFairLock`)
		_, err = side.Inspect(ctx)
		require.ErrorContains(t, err, `"a" holds a plain lock`)
	}
	require.NoError(t, hold.Unlock(held))
	for _, side := range []*rlock.Lock{other.NewRWLock("a").Reader(), other.NewRWLock("a").Writer()} {
		held, hold = lock(t, ctx, side)
		for _, plain := range []*rlock.Lock{c.NewLock("a"), c.NewFairLock("a")} {
			_, _, err := plain.TryLock(ctx)
			require.ErrorIs(t, err, rlock.ErrKeyConflict)
			require.ErrorContains(t, err, `"a" holds a read/write lock: take it with NewRWLock`)
			_, err = plain.Inspect(ctx)
			require.ErrorContains(t, err, `"a" holds a read/write lock`)
		}
		require.NoError(t, hold.Unlock(held))
	}
}

// In a cluster, and with names that bring a hash tag, all keys are in one slot.
func TestReadWriteInACluster(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1")
	ctx := t.Context()
	admin := srv.Client(t)
	require.NoError(t, admin.ClusterAddSlotsRange(ctx, 0, 16383).Err())
	redistest.Eventually(t, "the cluster serves", func() bool { return strings.Contains(admin.ClusterInfo(ctx).Val(), "cluster_state:ok") })
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr()}})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	opts, refused := refusals()
	c := clientOn(t, rdb, opts)
	for _, name := range []string{"a", "x{a}y", "{a}"} {
		mu := c.NewRWLock(name, rlock.WithFencing())
		held, hold := lock(t, ctx, mu.Reader())
		_, nested := lock(t, held, mu.Reader())
		waiting, leave := context.WithCancel(ctx)
		writer := async(func() error { _, _, err := mu.Writer().Lock(waiting); return err })
		<-refused
		leave()
		require.ErrorIs(t, <-writer, rlock.ErrNotAcquired)
		require.NoError(t, nested.Unlock(ctx))
		require.NoError(t, hold.Unlock(ctx))
		held, hold = lock(t, ctx, mu.Writer())
		_, nested = lock(t, held, mu.Reader())
		require.NoError(t, hold.Unlock(ctx))
		require.Equal(t, "read", rdb.HGet(ctx, name, "mode").Val())
		require.NoError(t, nested.Unlock(ctx))
	}
}

// No name of a plain lock is taken for a read/write lock of the client.
func TestNamesOfOtherKinds(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), c.NewRWLock("a").Writer())
	for _, name := range []string{"a\x00rw", "rw:a", "{}rw:a"} {
		_, theirs, err := newClient(t, srv, nil).NewLock(name).TryLock(t.Context())
		if errors.Is(err, rlock.ErrInvalidOption) {
			continue
		}
		require.NoError(t, err, name)
		_, _, err = c.NewLock(name).TryLock(held)
		require.ErrorIs(t, err, rlock.ErrNotAcquired, name)
		require.NoError(t, theirs.Unlock(t.Context()))
	}
	require.NoError(t, hold.Unlock(held))
}
