package rlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// Goroutines and subscriptions do not grow with the waiters, but for their own.
func TestFairManyWaiters(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	held, hold := lock(t, t.Context(), mu)
	before := redistest.Goroutines()
	ctx, cancel := context.WithCancel(t.Context())
	const waiters = 300
	all := make([]*waiting, waiters)
	for i := range all {
		all[i] = begin(ctx, mu)
	}
	awaitQueue(t, rdb, "a", waiters)
	redistest.Eventually(t, "they rest", func() bool { return redistest.Goroutines() < before+waiters+10 })
	redistest.Eventually(t, "they listen to one channel", func() bool {
		return len(rdb.PubSubChannels(t.Context(), "rlock_channel:*").Val()) == 1
	})
	cancel()
	for _, w := range all {
		<-w.done
		if !errors.Is(w.err, rlock.ErrNotAcquired) {
			require.ErrorIs(t, w.err, context.Canceled)
		}
	}
	awaitQueue(t, rdb, "a", 0)
	require.NoError(t, hold.Unlock(held))
}

// fairTraffic returns the scripts of fair locks that clients have sent, and the
// messages that grant one, since m was started.
func fairTraffic(m *redistest.Monitor) (traffic []string) {
	for _, c := range m.Commands() {
		switch command := strings.ToLower(c.Args[0]); {
		case command == "publish" && strings.HasPrefix(c.Args[1], "rlock_channel"):
			traffic = append(traffic, command)
		case c.Client != "lua":
			for _, name := range []string{"ask_fair", "release"} {
				if isScript(name)(c.Args) {
					traffic = append(traffic, name)
				}
			}
		}
	}
	return traffic
}

// learn has the server know the scripts.
func learn(tb testing.TB, mu *rlock.Lock) {
	tb.Helper()
	held, hold := lock(tb, tb.Context(), mu)
	require.NoError(tb, hold.Unlock(held))
}

// A hand-over to a goroutine of the same client is the release, and no message.
func TestFairHandoverInOneClient(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewFairLock("a", rlock.WithFencing())
		held, hold := lock(t, t.Context(), mu)
		w := begin(t.Context(), mu)
		awaitHearing(t, f.rdb, "a", 1)
		messages := f.rdb.PSubscribe(t.Context(), "rlock_channel*")
		defer func() { require.NoError(t, messages.Close()) }()
		_, err := messages.Receive(t.Context())
		require.NoError(t, err)
		released, asked := len(f.scripts("release")), len(f.scripts("ask_fair"))
		require.NoError(t, hold.Unlock(held))
		next, nextHold := w.acquired(t)
		synctest.Wait()
		require.Len(t, f.scripts("release"), released+1)
		require.Len(t, f.scripts("ask_fair"), asked)
		message, err := messages.ReceiveTimeout(t.Context(), time.Second)
		require.Error(t, err, "%v", message)
		require.Greater(t, nextHold.Token(), hold.Token())
		require.NoError(t, next.Err())

		elsewhere := begin(t.Context(), f.client(t, nil).NewFairLock("a", rlock.WithFencing()))
		awaitHearing(t, f.rdb, "a", 1)
		require.NoError(t, nextHold.Unlock(next))
		held, hold = elsewhere.acquired(t)
		_, err = messages.ReceiveMessage(t.Context())
		require.NoError(t, err, "there is one to another client")
		require.NoError(t, hold.Unlock(held))
	})
}

// The answer that grants the lock to another goroutine of the client is lost. The
// release is repeated, and has that one ask.
func TestFairLostAnswer(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	proxy := netfault.New(t, srv.Addr())
	far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	mu := clientOn(t, far, nil).NewFairLock("a")
	learn(t, mu)
	held, hold := lock(t, t.Context(), mu)
	w := begin(t.Context(), mu)
	awaitHearing(t, rdb, "a", 1)
	m := srv.Monitor(t)
	proxy.CutReplies(1, isScript("release"))
	require.NoError(t, hold.Unlock(held))
	next, nextHold := w.acquired(t)
	traffic := fairTraffic(m)
	traffic = traffic[max(slices.Index(traffic, "release"), 0):] // before it a keep-alive may come
	require.Equal(t, []string{"release", "release"}, traffic[:2])
	// On a busy machine an attempt may find no answer in time, and there is one more.
	require.Equal(t, []string{"release", "ask_fair"}, slices.Compact(traffic))
	require.EqualValues(t, 1, proxy.Stats().RepliesCut)
	require.NoError(t, nextHold.Unlock(next))
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
