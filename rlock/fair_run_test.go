package rlock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// row has locks wait in this order, all of them listening.
func row(t *testing.T, rdb redis.UniversalClient, locks ...*rlock.Lock) (waiters []*waiting, cancel []context.CancelFunc) {
	t.Helper()
	for i, mu := range locks {
		ctx, leave := context.WithCancel(t.Context())
		waiters, cancel = append(waiters, begin(ctx, mu)), append(cancel, leave)
		awaitHearing(t, rdb, mu.Name(), i+1)
	}
	return waiters, cancel
}

// The exact tests of runs are in fake time: on a machine that stands still for a second or
// two the message that begins a run is too old to be trusted, or an answer late, and
// whoever is next asks the server instead.

// Those of one client who follow each other pass the lock on without a command, up
// to the first of another client.
func TestFairRun(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		here, there := f.client(t, nil).NewFairLock("a"), f.client(t, nil).NewFairLock("a")
		held, hold := lock(t, t.Context(), here)
		waiters, _ := row(t, f.rdb, here, here, here, there, here)
		var owners []string
		released, asked := len(f.scripts("release")), len(f.scripts("ask_fair"))
		require.NoError(t, hold.Unlock(held))
		for _, w := range waiters[:3] {
			held, hold := w.acquired(t)
			require.NoError(t, held.Err())
			owners = append(owners, hold.Owner())
			require.NoError(t, hold.Unlock(held))
		}
		held, hold = waiters[3].acquired(t)
		require.Len(t, f.scripts("release"), released+2, "the first one, and that to the other client")
		require.Len(t, f.scripts("ask_fair"), asked)
		require.Equal(t, slices.Repeat(owners[:1], 3), owners)
		require.Equal(t, map[string]string{hold.Owner(): "1"}, hgetall(t, f.rdb, "a"))
		require.Len(t, queueOf(t, f.rdb, "a"), 1)
		require.NoError(t, hold.Unlock(held))
		held, hold = waiters[4].acquired(t)
		require.NoError(t, hold.Unlock(held))
		requireNothing(t, f.rdb, "a")
	})
}

// The same on a real server, as far as it does not depend on time.
func TestFairRunInOrder(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	here, there := newClient(t, srv, nil).NewFairLock("a"), newClient(t, srv, nil).NewFairLock("a")
	held, hold := lock(t, t.Context(), here)
	waiters, _ := row(t, rdb, here, here, here, there, here, there, there, here)
	for i, w := range waiters {
		require.Len(t, hgetall(t, rdb, "a"), 1)
		require.NoError(t, hold.Unlock(held))
		held, hold = w.acquired(t)
		require.NoError(t, held.Err())
		require.Contains(t, hgetall(t, rdb, "a"), hold.Owner())
		for _, later := range waiters[i+1:] {
			select {
			case <-later.done:
				t.Fatal("out of order, or two inside")
			default:
			}
		}
	}
	require.NoError(t, hold.Unlock(held))
	requireNothing(t, rdb, "a")
}

// A client is granted the lock by a message, and more of its goroutines are next in the
// queue. They get the lock in memory, without a release on the server in between.
func TestFairRunAfterAMessage(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		here, there := f.client(t, nil).NewFairLock("a"), f.client(t, nil).NewFairLock("a")
		held, hold := lock(t, t.Context(), here)
		waiters, _ := row(t, f.rdb, there, there, there, here)
		released := len(f.scripts("release"))
		require.NoError(t, hold.Unlock(held))
		for _, w := range waiters {
			held, hold := w.acquired(t)
			require.NoError(t, held.Err())
			require.NoError(t, hold.Unlock(held))
		}
		require.Len(t, f.scripts("release"), released+3, "one for each change of the client, and the last")
		requireNothing(t, f.rdb, "a")
	})
}

// While the lock is in memory, the server knows its owner, and the queue.
func TestFairRunOnTheServer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewFairLock("a")
		held, hold := lock(t, t.Context(), mu)
		waiters, _ := row(t, f.rdb, mu, mu, mu)
		require.NoError(t, hold.Unlock(held))
		first, firstHold := waiters[0].acquired(t)
		owner := firstHold.Owner()
		require.NoError(t, firstHold.Unlock(first))
		held, hold = waiters[1].acquired(t)
		require.Equal(t, map[string]string{owner: "1"}, hgetall(t, f.rdb, "a"))
		inner, innerHold := lock(t, held, mu)
		require.Equal(t, map[string]string{owner: "2"}, hgetall(t, f.rdb, "a"))
		_, _, err := mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.NoError(t, innerHold.Unlock(inner))
		require.NoError(t, hold.Unlock(held))
		held, hold = waiters[2].acquired(t)
		require.NoError(t, hold.Unlock(held))
		requireNothing(t, f.rdb, "a")
	})
}

// A goroutine that has stopped waiting is passed over when the lock is handed on in
// memory.
func TestFairRunPastALeaver(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	held, hold := lock(t, t.Context(), mu)
	waiters, cancel := row(t, rdb, mu, mu, mu, mu)
	require.NoError(t, hold.Unlock(held))
	held, hold = waiters[0].acquired(t)
	cancel[1]()
	<-waiters[1].done
	require.ErrorIs(t, waiters[1].err, context.Canceled)
	require.NoError(t, hold.Unlock(held))
	for _, w := range waiters[2:] {
		held, hold := w.acquired(t)
		require.NoError(t, hold.Unlock(held))
	}
	requireNothing(t, rdb, "a")
}

// A goroutine that was handed the lock in memory loses it. Those behind it wait no longer
// than behind a waiter whose process has died.
func TestFairRunIsLost(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(t *testing.T, rdb redis.UniversalClient, mu *rlock.Lock){
		"removed": func(t *testing.T, rdb redis.UniversalClient, _ *rlock.Lock) {
			require.NoError(t, rdb.Del(t.Context(), "a").Err())
		},
		"forced": func(t *testing.T, _ redis.UniversalClient, mu *rlock.Lock) {
			was, err := mu.ForceUnlock(t.Context())
			require.NoError(t, err)
			require.True(t, was)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			rdb := srv.Client(t)
			mu := newClient(t, srv, &rlock.Options{LeaseTime: 10 * time.Second}).NewFairLock("a")
			held, hold := lock(t, t.Context(), mu)
			waiters, _ := row(t, rdb, mu, mu, mu)
			require.NoError(t, hold.Unlock(held))
			held, hold = waiters[0].acquired(t)
			require.NoError(t, hold.Unlock(held))
			held, hold = waiters[1].acquired(t)
			remove(t, rdb, mu)
			start := time.Now()
			<-held.Done()
			require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
			next, nextHold := waiters[2].acquired(t)
			require.Less(t, time.Since(start), longestClaim+slack)
			require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
			require.NoError(t, next.Err())
			require.NoError(t, nextHold.Unlock(next))
			requireNothing(t, rdb, "a")
		})
	}
}

// Those of one client who follow each other have tokens that grow, and the next client's
// is greater than all of them.
func TestFairRunWithTokens(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		here, there := f.client(t, nil).NewFairLock("a", rlock.WithFencing()), f.client(t, nil).NewFairLock("a", rlock.WithFencing())
		held, hold := lock(t, t.Context(), here)
		waiters, _ := row(t, f.rdb, here, here, here, there, here)
		owners, token := make(map[string]bool), hold.Token()
		for _, w := range waiters {
			require.NoError(t, hold.Unlock(held))
			held, hold = w.acquired(t)
			require.Greater(t, hold.Token(), token)
			owners[hold.Owner()], token = true, hold.Token()
		}
		require.NoError(t, hold.Unlock(held))
		require.Len(t, owners, 3)
		requireNothing(t, f.rdb, "a")
	})
}

// Without hand-off in memory, and with fixed leases, each hold has an owner of its own on
// the server.
func TestFairWithoutRun(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]rlock.LockOption{
		"without hand-off": rlock.WithoutHandoff(), "fixed": rlock.WithoutRenewal(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			rdb := srv.Client(t)
			mu := newClient(t, srv, nil).NewFairLock("a", option)
			held, hold := lock(t, t.Context(), mu)
			waiters, _ := row(t, rdb, mu, mu, mu)
			seen := map[string]bool{hold.Owner(): true}
			for _, w := range waiters {
				require.NoError(t, hold.Unlock(held))
				held, hold = w.acquired(t)
				require.False(t, seen[hold.Owner()])
				seen[hold.Owner()] = true
				require.Equal(t, map[string]string{hold.Owner(): "1"}, hgetall(t, rdb, "a"))
			}
			require.NoError(t, hold.Unlock(held))
		})
	}
}
