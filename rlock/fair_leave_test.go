package rlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestFairLeavingTakesTheTicketOut(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	mu := c.NewFairLock("a")
	held, hold := lock(t, t.Context(), mu)
	ctx, cancel := context.WithCancel(t.Context())
	leaver := begin(ctx, mu)
	awaitQueue(t, rdb, "a", 1)
	stayer := begin(t.Context(), mu)
	awaitQueue(t, rdb, "a", 2)
	cancel()
	<-leaver.done
	require.True(t, errors.Is(leaver.err, rlock.ErrNotAcquired) || errors.Is(leaver.err, rlock.ErrUnavailable), leaver.err) // the answer may be under way
	require.ErrorIs(t, leaver.err, context.Canceled)
	awaitQueue(t, rdb, "a", 1)
	require.NoError(t, hold.Unlock(held))
	held, hold = stayer.acquired(t)
	require.NoError(t, hold.Unlock(held))
}

// Waiters leave at the moment at which they are granted the lock, or about it: it
// is passed on at once and nothing is left.
func TestFairLeavingCrossesTheGrant(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	rival := newClient(t, srv, nil).NewFairLock("a")
	for i := range 200 {
		held, hold := lock(t, t.Context(), mu)
		ctx, cancel := context.WithCancel(t.Context())
		leaver := begin(ctx, mu)
		awaitQueue(t, rdb, "a", 1)
		stayer := begin(t.Context(), rival)
		awaitQueue(t, rdb, "a", 2)
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 3 * time.Microsecond)
			cancel()
		})
		began := time.Now()
		require.NoError(t, hold.Unlock(held))
		<-leaver.done
		if leaver.err == nil {
			require.NoError(t, leaver.hold.Unlock(leaver.held))
		}
		held, hold = stayer.acquired(t)
		require.Less(t, time.Since(began), longestClaim-time.Second, "it did not wait for the end of a claim")
		require.NoError(t, hold.Unlock(held))
		wg.Wait()
	}
}

// Messages are lost, but the subscription seems sound: that is noticed before
// the claim is over.
func TestFairLostMessage(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	proxy := netfault.New(t, srv.Addr())
	far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	mu := clientOn(t, far, nil).NewFairLock("a")
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewFairLock("a"))
	w := begin(t.Context(), mu)
	awaitHearing(t, rdb, "a", 1)
	proxy.DropDown(true, "subscribe")
	began := time.Now()
	require.NoError(t, hold.Unlock(held))
	held, hold = w.acquired(t)
	require.Less(t, time.Since(began), longestClaim-time.Second, "before the claim was over")
	proxy.Heal()
	require.NoError(t, hold.Unlock(held))
}

// Replies are lost at random, also those of keep-alives and releases.
func TestFairWithLostReplies(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	proxy := netfault.New(t, srv.Addr())
	far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	c := clientOn(t, far, &rlock.Options{UnlockTimeout: time.Minute})
	proxy.CutRandom(0.2, 1, func(args []string) bool { return strings.HasPrefix(strings.ToLower(args[0]), "eval") })
	var wg sync.WaitGroup
	inside := make(chan struct{}, 1)
	for range 4 {
		wg.Go(func() {
			mu := c.NewFairLock("a", rlock.WithFencing())
			for range 40 {
				held, hold, err := mu.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case inside <- struct{}{}:
				default:
					t.Error("two inside")
				}
				if held.Err() != nil {
					t.Error(context.Cause(held))
				}
				<-inside
				if err := hold.Unlock(held); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	proxy.Heal()
	require.NoError(t, closeSoon(c))
	rdb := srv.Client(t)
	redistest.Eventually(t, "nothing is left but the counter", func() bool {
		return len(lockKeys(t, rdb)) == 1
	})
}
