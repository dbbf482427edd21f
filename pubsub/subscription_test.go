package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

// ear is a subscription that remembers what it was told.
type ear struct {
	*pubsub.Subscription
	channel string
	want    []string // what it should have heard; used by the model

	mu    sync.Mutex // guards what follows; held while hub methods are called
	heard []string
	live  bool // as read in changed, or after Subscribe
	calls int  // of changed
}

func listen(h *pubsub.Hub, channel string) *ear {
	e := &ear{channel: channel}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Subscription = h.Subscribe(channel, func(payload string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.heard = append(e.heard, payload)
	}, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.live = e.Live()
		e.calls++
	})
	e.live = e.Live()
	return e
}

func (e *ear) messages() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.heard)
}

// told returns whether the subscription is live, as far as it was told.
func (e *ear) told() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live
}

// changes counts the calls of changed since the last call.
func (e *ear) changes() (n int) {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	n, e.calls = e.calls, 0
	return n
}

func TestSubscriptionHearsEveryMessageInOrder(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
		first, second, other := listen(h, "a"), listen(h, "a"), listen(h, "b")
		w := newWaiter(h, "a")
		synctest.Wait()
		assert.True(t, awake(w))
		var want []string
		for i := range 1000 {
			want = append(want, strconv.Itoa(i%3))
			s.conn().publish("a", want[i])
		}
		synctest.Wait()
		assert.Equal(t, want, first.messages())
		assert.Equal(t, want, second.messages())
		assert.Empty(t, other.messages())
		assert.True(t, awake(w), "waiters are woken as always")
		assert.EqualValues(t, 1000, w.Heard())

		first.Close()
		first.Close()
		s.conn().publish("a", "x")
		synctest.Wait()
		assert.Equal(t, want, first.messages())
		assert.Equal(t, append(want, "x"), second.messages())
	})
}

func TestSubscriptionIsToldOfEachChange(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
		s.set(func() { s.manual = true })
		e := listen(h, "a")
		assert.Zero(t, e.changes())
		assert.False(t, e.Live())
		s.conn().answer(nil)
		assert.Equal(t, 1, e.changes(), "confirmed")
		assert.True(t, e.told())

		another := listen(h, "a")
		assert.True(t, another.Live(), "at once")
		assert.Zero(t, another.changes())

		_ = s.conn().Close()
		assert.Equal(t, 1, e.changes(), "lost")
		assert.False(t, e.told())
		time.Sleep(20 * time.Millisecond)
		assert.Zero(t, e.changes(), "there was nothing to lose")
		s.conn().answer(errors.New("NOPERM no"))
		assert.Equal(t, 1, e.changes(), "refused")
		assert.False(t, e.told())
		assert.Equal(t, 3, another.changes()+1, "likewise")

		s.set(func() { s.manual = false })
		time.Sleep(time.Minute)
		assert.Equal(t, 1, e.changes(), "confirmed at last")
		assert.True(t, e.told())
		require.NoError(t, h.Close(t.Context()))
		assert.Equal(t, 1, e.changes(), "the end")
		assert.False(t, e.told())
		e.Close()

		late := listen(h, "a")
		assert.False(t, late.Live())
		assert.Zero(t, late.changes())
		late.Close()
	})
}

func TestSubscriptionOfAChannelThatTheServerGivesAway(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		e, still := listen(h, "a"), listen(h, "a2")
		assert.Equal(t, 1, e.changes())
		assert.Equal(t, 1, still.changes())
		c.move("B", "a")
		c.servers["A"].conn().takeAway("a")
		assert.Equal(t, 1, e.changes(), "lost")
		assert.False(t, e.told())
		time.Sleep(20 * time.Millisecond)
		assert.Equal(t, 1, e.changes(), "confirmed by another server")
		assert.True(t, e.told())
		assert.Zero(t, still.changes())
	})
}

func TestSubscriptionLingers(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := &server{}
		h := pubsub.NewHub(s, pubsub.Options{})
		e, w := listen(h, "a"), newWaiter(h, "a")
		synctest.Wait()
		w.Leave()
		time.Sleep(time.Minute)
		assert.True(t, e.Live(), "it keeps the channel")
		e.Close()
		assert.False(t, e.Live())
		time.Sleep(time.Second - 1)
		again := listen(h, "a")
		assert.True(t, again.Live())
		again.Close()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.False(t, s.has("a"))
		time.Sleep(time.Minute)
		assert.Zero(t, s.opened(), "a hub at rest has no connection and no goroutine")
	})
}

// The functions may do what they like with the hub.
func TestSubscriptionMayUseTheHub(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
		var e *pubsub.Subscription
		var mu sync.Mutex
		heard := 0
		use := func() {
			mu.Lock()
			defer mu.Unlock()
			newWaiter(h, "b").Leave()
			h.Subscribe("c", nil, nil).Close()
			if heard == 3 {
				e.Close()
			}
		}
		mu.Lock()
		e = h.Subscribe("a", func(string) {
			mu.Lock()
			heard++
			mu.Unlock()
			use()
		}, use)
		mu.Unlock()
		synctest.Wait()
		s.set(func() { // five at once: none of the last two is heard
			for range 5 {
				s.conns[0].events <- pubsub.Event{Kind: pubsub.Message, Channel: "a"}
			}
		})
		synctest.Wait()
		assert.Equal(t, 3, heard)
		assert.False(t, e.Live())
	})
}

// A goroutine that finds another at work leaves its call to that one, and the order
// is kept.
func TestSubscriptionIsToldByOneGoroutineAtATime(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
		var calls []string // without a mutex: the race detector looks on
		e := h.Subscribe("a", func(payload string) {
			time.Sleep(time.Second) // a function must not; here it is made to be seen
			calls = append(calls, payload)
		}, func() { calls = append(calls, "changed") })
		synctest.Wait()
		s.conn().publish("a", "1")
		synctest.Wait()
		require.NoError(t, h.Close(t.Context()), "waits for the reading goroutine")
		assert.Equal(t, []string{"changed", "1", "changed"}, calls)
		e.Close()
	})
}

func TestRedisSubscription(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	h := hub(t, rdb, pubsub.Options{})
	e, w := listen(h, "a"), newWaiter(h, "b")
	live(t, w)
	redistest.Eventually(t, "a is subscribed", e.told)
	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprint("message ", i))
		require.EqualValues(t, 1, rdb.Publish(t.Context(), "a", want[i]).Val())
	}
	redistest.Eventually(t, "all are heard", func() bool { return len(e.messages()) == len(want) })
	assert.Equal(t, want, e.messages())
	for range 20 {
		before := e.total()
		require.EqualValues(t, 1, rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Val())
		redistest.Eventually(t, "lost, and confirmed anew", func() bool { return e.total() == before+2 })
		require.True(t, e.told())
		require.EqualValues(t, 1, rdb.Publish(t.Context(), "a", "0").Val())
	}
	redistest.Eventually(t, "those as well", func() bool { return len(e.messages()) == len(want)+20 })
	e.Close()
	redistest.Eventually(t, "it is unsubscribed", func() bool {
		return rdb.PubSubNumSub(t.Context(), "a").Val()["a"] == 0
	})
}

func (e *ear) total() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls
}

// Subscriptions come and go, messages arrive and connections break; nobody hears
// anything twice or out of order, and after Close at most the call that had begun.
func TestRedisManySubscriptions(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	h := hub(t, rdb, pubsub.Options{}.Lingering(time.Millisecond))
	ctx, stop := context.WithCancel(t.Context())
	var publishers, subscribers sync.WaitGroup
	for c := range 3 {
		publishers.Go(func() {
			for n := 1; ctx.Err() == nil; n++ {
				rdb.Publish(ctx, strconv.Itoa(c), n)
			}
		})
	}
	publishers.Go(func() {
		for ctx.Err() == nil {
			rdb.ClientKillByFilter(ctx, "TYPE", "pubsub")
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	for range 8 {
		subscribers.Go(func() {
			for range 100 {
				subscribeOnce(t, h, strconv.Itoa(rand.IntN(3)))
			}
		})
	}
	subscribers.Wait()
	stop()
	publishers.Wait()
}

// subscribeOnce hears ten messages, or none for a while, as one that was closed.
func subscribeOnce(t *testing.T, h *pubsub.Hub, channel string) {
	var last, heard, late atomic.Int64
	var closed atomic.Bool
	ten := make(chan struct{}, 1)
	e := h.Subscribe(channel, func(payload string) {
		n, err := strconv.ParseInt(payload, 10, 64)
		if err != nil || last.Swap(n) >= n {
			t.Errorf("%s came out of order", payload)
		}
		if closed.Load() && late.Add(1) > 1 {
			t.Errorf("%s came after Close", payload)
		}
		if heard.Add(1) == 10 {
			ten <- struct{}{}
		}
	}, func() {})
	if rand.IntN(4) > 0 {
		select {
		case <-ten:
		case <-time.After(10 * time.Second):
			t.Error("nothing was heard")
		}
	}
	e.Close()
	closed.Store(true)
	time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
}
