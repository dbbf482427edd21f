package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// hostProcess is another process that holds the lock "a", with a lease, and has given its
// proof away. The lock is fenced.
func hostProcess(t *testing.T, srv *redistest.Server, lease time.Duration) (child *redistest.Child, proof string) {
	t.Helper()
	child = redistest.Spawn(t, "holder", srv.Addr(), "a", lease.String())
	return child, child.Expect("proof ", 10*time.Second)
}

func TestJoinedAcrossProcesses(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithFencing())
	for name, tt := range map[string]struct {
		end  func(t *testing.T, child *redistest.Child)
		says string
	}{
		"the holder unlocks": {func(t *testing.T, child *redistest.Child) {
			_, err := child.Stdin.Write([]byte("unlock\n"))
			require.NoError(t, err)
			require.Equal(t, "false", child.Expect("unlock ", 10*time.Second), "it was not lost")
		}, "the holder has unlocked it, or lost it"},
		"forced": {func(t *testing.T, _ *redistest.Child) {
			_, err := mu.ForceUnlock(t.Context())
			require.NoError(t, err)
		}, "the holder has unlocked it, or lost it"},
		"flushed": {func(t *testing.T, _ *redistest.Child) {
			require.NoError(t, srv.Client(t).FlushAll(t.Context()).Err())
		}, "the holder has unlocked it, or lost it"},
		"the holder stands still": {func(_ *testing.T, child *redistest.Child) { child.Stop() }, "its holder does not renew it"},
	} {
		t.Run(name, func(t *testing.T) {
			child, proof := hostProcess(t, srv, 3*time.Second)
			joined, mine := join(t, t.Context(), mu, proof)
			nested, in := lock(t, joined, mu)
			require.Positive(t, in.Token())
			require.Equal(t, mine.Token(), mu.Token(nested))
			tt.end(t, child)
			cause := over(t, nested, 20*time.Second)
			require.ErrorIs(t, cause, rlock.ErrLeaseLost)
			require.ErrorContains(t, cause, tt.says)
			require.ErrorIs(t, in.Unlock(nested), rlock.ErrLeaseLost)
			require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)
			child.Kill()
			_, _, err := mu.Join(t.Context(), proof)
			if name != "the holder stands still" { // its lease may not be over yet
				require.ErrorIs(t, err, rlock.ErrNotHeld)
			}
			require.NoError(t, srv.Client(t).Del(t.Context(), "a").Err())
		})
	}
}

// The order that matters: whoever has joined is told, and only then somebody else has the
// lock.
func TestJoinedEndsBeforeTheNextHolder(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithFencing())
	rival := newClient(t, srv, nil).NewLock("a", rlock.WithFencing())
	for range 3 {
		child, proof := hostProcess(t, srv, 1500*time.Millisecond)
		joined, mine := join(t, t.Context(), mu, proof)
		w := begin(t.Context(), rival)
		require.NoError(t, joined.Err())
		child.Kill()
		next, nextHold := w.acquired(t)
		require.Error(t, joined.Err(), "at the first look")
		require.ErrorIs(t, context.Cause(joined), rlock.ErrLeaseLost)
		require.Greater(t, nextHold.Token(), mine.Token())
		require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)
		require.NoError(t, next.Err())
		_, _, err := mu.Join(t.Context(), proof)
		require.ErrorIs(t, err, rlock.ErrNotHeld)
		require.NoError(t, nextHold.Unlock(next))
	}
}

// The server is gone, and takes the lock with it.
func TestJoinedWithoutRedis(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a", rlock.WithFencing())
	child, proof := hostProcess(t, srv, 2*time.Second)
	joined, mine := join(t, t.Context(), mu, proof)
	srv.Kill()
	cause := over(t, joined, 20*time.Second)
	require.ErrorIs(t, cause, rlock.ErrLeaseLost)
	require.ErrorContains(t, cause, "it was not confirmed in time")
	child.Kill()
	srv.Restart()
	require.ErrorIs(t, mine.Unlock(joined), rlock.ErrLeaseLost)
}
