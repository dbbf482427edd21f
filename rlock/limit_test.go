package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// On a real server: the context of a holder that makes no progress, and does not unlock, ends while the server has the
// lock. Then the lease ends, and a waiter of another client gets the lock.
func TestHolderThatHangs(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	const lease, limit = 6 * time.Second, 4 * time.Second // long, for a busy machine
	c := newClient(t, srv, &rlock.Options{LeaseTime: lease})
	held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithProgress(limit)))
	next := lockAsync(t.Context(), newClient(t, srv, nil).NewLock("a"))
	for began := time.Now(); time.Since(began) < lease+time.Second; time.Sleep(limit / 40) {
		rlock.Progress(held)
	}
	require.NoError(t, held.Err())
	rlock.Progress(held)
	stopped := time.Now()

	ends(t, limit+slack, "no progress", held.Done())
	require.GreaterOrEqual(t, time.Since(stopped), limit-limit/10)
	require.ErrorIs(t, context.Cause(held), rlock.ErrNoProgress)
	require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
	require.Contains(t, hgetall(t, rdb, "a"), hold.Owner(), "the lease is not over")

	g := within(t, lease+slack, next)
	require.NoError(t, g.err)
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrNoProgress)
	require.NoError(t, g.hold.Unlock(g.held), "the next holder is not affected")
}
