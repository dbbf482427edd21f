package rlock_test

import (
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

// Goroutines of two clients take turns: whoever is next hears of it, by an answer or
// by a message, and nobody has to ask.
func TestFairMixedClients(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	clients := []*rlock.Client{newClient(t, srv, nil), newClient(t, srv, nil)}
	var wg sync.WaitGroup
	inside := make(chan struct{}, 1)
	for i := range 8 {
		wg.Go(func() {
			mu := clients[i%2].NewFairLock("a")
			for range 50 {
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
				<-inside
				if err := hold.Unlock(held); err != nil {
					t.Error(err)
				}
			}
		})
	}
	began := time.Now()
	wg.Wait()
	require.Less(t, time.Since(began), 5*time.Minute, "400 hand-overs do not wait for somebody to ask, which is 5 s each")
}
