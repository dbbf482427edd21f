package rlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// Closing any client is noticed, and does not disturb what is held.
func TestQuorumClosedClient(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			all := newServers(t, 3)
			clients := all.clients(t, rlock.Options{}) // ids grow, so the first of these is the host
			mu := rlock.NewQuorumLock("a", []*rlock.Client{clients[order[0]], clients[order[1]], clients[order[2]]})
			held, hold := lock(t, t.Context(), mu)
			waited := make(chan error)
			go func() { _, _, err := mu.Lock(context.Background()); waited <- err }()
			require.NoError(t, closeSoon(clients[1]))
			_, _, err := mu.TryLock(t.Context())
			require.Error(t, err)
			require.NoError(t, held.Err())
			require.NoError(t, hold.Unlock(held))
			require.ErrorIs(t, <-waited, rlock.ErrClosed)
			_, _, err = mu.Lock(t.Context())
			require.ErrorIs(t, err, rlock.ErrClosed)
			require.NotErrorIs(t, err, rlock.ErrUnavailable)
			all.free(t)
		})
	}
}

// One of the clients of a quorum lock has its queue in memory, the same one in whatever
// order the clients are given. When this client is closed, waits and holds end. The same
// clients in another order make the same lock.
func TestQuorumHostCloses(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	clients := all.clients(t, rlock.Options{})
	mu := rlock.NewQuorumLock("a", []*rlock.Client{clients[1], clients[0], clients[2]})
	held, hold := all.lockAll(t, mu)
	redistest.Eventually(t, "the client knows", func() bool { // unless a renewal comes between
		before := all[0].CommandCalls(t)["evalsha"]
		_, _, err := rlock.NewQuorumLock("a", clients).TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		return all[0].CommandCalls(t)["evalsha"] == before
	})
	first, second := begin(t.Context(), mu), begin(t.Context(), mu)
	time.Sleep(20 * time.Millisecond) // most likely they wait by then
	closed := make(chan error)
	go func() { closed <- clients[0].Close(t.Context()) }()
	for _, w := range []*waiting{first, second} {
		<-w.done
		require.ErrorIs(t, w.err, rlock.ErrClosed)
	}
	<-held.Done()
	require.ErrorIs(t, context.Cause(held), rlock.ErrClosed)
	require.NoError(t, hold.Unlock(held))
	require.NoError(t, <-closed)
	all.free(t)
}
