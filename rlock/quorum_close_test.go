package rlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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
			host := hostOf(t, clients, hold)
			guest := clients[slices.IndexFunc(clients, func(c *rlock.Client) bool { return c != host })]
			require.NoError(t, closeSoon(guest))
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
	host := hostOf(t, clients, hold)
	go func() { closed <- host.Close(t.Context()) }()
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

// hostOf returns the client that names the owners of a quorum lock, and has its queue in memory.
func hostOf(t *testing.T, clients []*rlock.Client, of *rlock.Hold) *rlock.Client {
	t.Helper()
	for _, c := range clients {
		held, hold := lock(t, t.Context(), c.NewLock("id"))
		require.NoError(t, hold.Unlock(held))
		if id, _, _ := strings.Cut(hold.Owner(), ":"); strings.HasPrefix(of.Owner(), id+":") {
			return c
		}
	}
	require.Fail(t, "no client of the lock has named its owner")
	return nil
}

// A worker is cancelled, and its process closes one client after the other, each with its
// connection, as deferred calls do: the one that has the queue in memory comes last. Whatever the
// worker has left, also by a request under way, is released on each server before that.
func TestQuorumCloseReleasesWhatCallersLeft(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	for n := range 60 {
		name := fmt.Sprint("n", n)
		shiftUnderAQuorumLock(t, all, name)
		for _, srv := range all {
			require.Zero(t, srv.Client(t).Exists(context.Background(), name).Val(), "round %d", n)
		}
	}
}

// shiftUnderAQuorumLock is such a process.
func shiftUnderAQuorumLock(t *testing.T, all servers, name string) {
	var clients []*rlock.Client
	for _, srv := range all {
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
		c, err := rlock.New(rdb, &rlock.Options{LeaseTime: quorumLease})
		require.NoError(t, err)
		defer func() {
			require.NoError(t, closeSoon(c))
			require.NoError(t, rdb.Close())
		}()
		clients = append(clients, c)
	}
	mu := rlock.NewQuorumLock(name, clients)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond+rand.N(5*time.Millisecond))
	defer cancel()
	for ctx.Err() == nil {
		_ = mu.Do(ctx, func(context.Context) error { return nil })
	}
}

// A share of one server is no lock. It is removed all the same.
func TestQuorumForceUnlockOfAShare(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	mu := all.lock(t)
	put := func(servers servers) {
		for _, srv := range servers {
			require.NoError(t, srv.Client(t).HSet(t.Context(), "a", "somebody:1", 1).Err())
		}
	}
	for n, held := range []bool{false, false, true, true} {
		redistest.Eventually(t, "all answer in time", func() bool {
			put(all[:n])
			was, err := mu.ForceUnlock(t.Context())
			return inTime(t, err) && was == held
		})
		all.free(t)
	}
	put(all[1:]) // a majority, of which one does not answer
	all[2].Stop()
	redistest.Eventually(t, "the others do", func() bool {
		put(all[1:2])
		was, err := mu.ForceUnlock(t.Context())
		return inTime(t, err) && was
	})
	all[2].Cont()
	all.free(t)
}
