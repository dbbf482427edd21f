package rlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

// waitIn waits for the lock in the background, and unlocks it. The error is that of
// either.
func waitIn(ctx context.Context, mu *rlock.Lock) <-chan error {
	done := make(chan error, 1)
	go func() {
		held, hold, err := mu.Lock(ctx)
		if err == nil {
			err = hold.Unlock(held)
		}
		done <- err
	}()
	return done
}

func soon(t *testing.T, done <-chan error, what string) {
	t.Helper()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(slack): // and before anybody asks again, after 5 s
		require.Fail(t, what)
	}
}

// The next goroutine of a client keeps the place of the one that leaves, and is served by
// its ticket. When the last one leaves, the ticket goes as well.
func TestPlaceIsInherited(t *testing.T) {
	srv := newServer(t)
	admin := srv.Client(t)
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("lock"))
	mu, other := newClient(t, srv, nil).NewLock("lock"), newClient(t, srv, nil).NewLock("lock")
	ctx, leave := context.WithCancel(t.Context())
	first := waitIn(ctx, mu)
	awaitQueue(t, admin, "lock", 1)
	second := waitIn(t.Context(), mu)
	third := waitIn(t.Context(), other)
	awaitHearing(t, admin, "lock", 2)
	before := queueOf(t, admin, "lock")
	leave()
	require.ErrorIs(t, <-first, context.Canceled)
	time.Sleep(100 * time.Millisecond)
	require.Equal(t, before, queueOf(t, admin, "lock"))
	require.NoError(t, hold.Unlock(held))
	soon(t, second, "who inherited the place is not served")
	soon(t, third, "the one behind is not served")

	held, hold = lock(t, t.Context(), newClient(t, srv, nil).NewLock("lock"))
	ctx, leave = context.WithCancel(t.Context())
	last := waitIn(ctx, mu)
	awaitQueue(t, admin, "lock", 1)
	leave()
	require.ErrorIs(t, <-last, context.Canceled)
	awaitQueue(t, admin, "lock", 0)
	require.NoError(t, hold.Unlock(held))
}

// What a waiter may be told: it does something about each.
func TestHeard(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, admin *redis.Client, owner string) (message string){
		"a wake-up": func(t *testing.T, admin *redis.Client, owner string) string {
			require.NoError(t, admin.Del(t.Context(), "lock").Err())
			return owner
		},
		"the loss of all places": func(t *testing.T, admin *redis.Client, _ string) string {
			require.NoError(t, admin.Del(t.Context(), "lock", lua.QueueOf("lock")).Err())
			return lua.Everybody
		},
		"a grant to nobody": func(t *testing.T, admin *redis.Client, owner string) string {
			client, _, _ := strings.Cut(owner, ":")
			require.NoError(t, admin.Del(t.Context(), "lock").Err())
			require.NoError(t, admin.HSet(t.Context(), "lock", client+":99999", "1").Err())
			require.NoError(t, admin.PExpire(t.Context(), "lock", time.Minute).Err())
			return fmt.Sprintf("%s:99999 %d 6000 0 0", client, admin.Time(t.Context()).Val().UnixMicro())
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			admin := srv.Client(t)
			holder := newClient(t, srv, nil)
			held, hold := lock(t, t.Context(), holder.NewLock("lock"))
			waiter := newClient(t, srv, nil)
			done := waitIn(t.Context(), waiter.NewLock("lock"))
			awaitHearing(t, admin, "lock", 1)
			owner := queueOf(t, admin, "lock")[0]
			client, _, _ := strings.Cut(owner, ":")
			message := happens(t, admin, owner)
			require.EqualValues(t, 1, admin.Publish(t.Context(), lua.GrantChannel("lock", client), message).Val())
			soon(t, done, "it did not listen")
			require.Positive(t, waiter.Stats().Wakeups.Message, "it has asked of its own accord")
			require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
		})
	}
}

// A foreign owner releases the lock and tells nobody but those on its own channel.
func TestForeignRelease(t *testing.T) {
	srv := newServer(t)
	admin := srv.Client(t)
	const foreign = "8743c9c0-0795-4907-87fd-6c719a6b4586:1"
	require.NoError(t, admin.HSet(t.Context(), "lock", foreign, "1").Err())
	require.NoError(t, admin.PExpire(t.Context(), "lock", time.Minute).Err())
	one, two := newClient(t, srv, nil), newClient(t, srv, nil)
	first := waitIn(t.Context(), one.NewLock("lock"))
	awaitHearing(t, admin, "lock", 1)
	second := waitIn(t.Context(), two.NewLock("lock"))
	awaitHearing(t, admin, "lock", 2)
	channel := lua.UnlockChannel("lock")
	redistest.Eventually(t, "both listen", func() bool { return admin.PubSubNumSub(t.Context(), channel).Val()[channel] == 2 })
	require.NoError(t, admin.Del(t.Context(), "lock").Err())
	require.NoError(t, admin.Publish(t.Context(), channel, "0").Err())
	soon(t, first, "the first did not hear it")
	require.Positive(t, one.Stats().Wakeups.Message, "the first has asked of its own accord")
	soon(t, second, "the second is not served")
}
