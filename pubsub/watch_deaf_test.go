package pubsub_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

// The server says that it has sent a message, and it does not arrive: the connection
// is given up two intervals after the first probe of which that is true.
func TestDeafConnectionIsReplaced(t *testing.T) {
	for _, test := range []struct{ age, limit time.Duration }{
		{100 * time.Millisecond, 1500 * time.Millisecond},
		{1800 * time.Millisecond, 1500 * time.Millisecond},
		{4200 * time.Millisecond, 2200 * time.Millisecond},
		{20 * time.Second, 3 * time.Second},
		{20*time.Minute + 900*time.Millisecond, 3 * time.Second},
	} {
		bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
			s.set(func() { s.counts = true })
			w := join("a")
			assert.True(t, awake(w))
			time.Sleep(test.age)
			old := s.conn()
			s.set(func() { old.deaf = true })
			start := time.Now()
			<-w.C()
			took := time.Since(start)
			assert.False(t, w.Live())
			assert.GreaterOrEqual(t, took, time.Second, "after %v", test.age)
			assert.LessOrEqual(t, took, test.limit, "after %v", test.age)
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			assert.True(t, w.Live())
		})
	}
}

// Whoever begins to wait is served as on a young connection.
func TestNewWaiterIsToldOfADeafConnectionSoon(t *testing.T) {
	for _, join := range []func(h *pubsub.Hub, channel string) func() bool{
		func(h *pubsub.Hub, channel string) func() bool { return h.Join(channel).Live },
		func(h *pubsub.Hub, channel string) func() bool {
			return h.Subscribe(channel, func(string) {}, func() {}).Live
		},
	} {
		hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
			s.set(func() { s.counts = true })
			h.Join("a")
			for i := range 100 {
				time.Sleep(20*time.Second + 77*time.Millisecond)
				s.set(func() { s.conns[len(s.conns)-1].deaf = true })
				live := join(h, "a")
				assert.True(t, live(), "as far as is known")
				time.Sleep(1520 * time.Millisecond)
				synctest.Wait()
				assert.Len(t, s.dialled(), i+2, "replaced")
				assert.True(t, live())
			}
		})
	}
}

// What a probe needs to be executed does not count, and neither does a message that
// comes late.
func TestSlowServerIsNotDeaf(t *testing.T) {
	for _, slow := range []time.Duration{50, 200, 400, 900, 1500, 2500} {
		for _, late := range []time.Duration{0, 300, 900} {
			bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
				w := join("a")
				assert.True(t, awake(w))
				conn := s.conn()
				s.set(func() {
					s.counts, s.manual = true, true
					conn.probe = func(context.Context) error {
						time.Sleep(slow * time.Millisecond)
						time.AfterFunc(late*time.Millisecond, func() { conn.send(pubsub.Event{Kind: pubsub.Pong}) })
						return nil
					}
				})
				time.Sleep(2 * time.Minute)
				assert.True(t, w.Live(), "%v and %v", slow, late)
				assert.False(t, awake(w), "%v and %v", slow, late)
				s.set(func() { conn.probe = nil })
				time.Sleep(5 * time.Second)
			})
		}
	}
}

// A wait costs two probes in a second while it is young, and in the end one in two
// seconds.
func TestPriceOfAWait(t *testing.T) {
	for _, test := range []struct {
		after time.Duration
		most  int
	}{
		{2 * time.Second, 5},
		{30 * time.Second, 22},
		{10 * time.Minute, 310},
	} {
		bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
			join("a")
			time.Sleep(test.after)
			assert.LessOrEqual(t, s.conn().probes(), test.most)
		})
	}
}

// far returns a client on a server behind a proxy.
func far(t *testing.T) (*netfault.Proxy, *redis.Client, *redistest.Server) {
	s := redistest.Start(t)
	proxy := netfault.New(t, s.Addr())
	return proxy, s.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), s
}

func TestRedisDeafConnection(t *testing.T) {
	t.Parallel()
	proxy, rdb, _ := far(t)
	h := hub(t, rdb, pubsub.Options{})
	w := h.Join("a")
	live(t, w)
	proxy.DropDown(true, "subscribe")
	start := time.Now()
	wake(t, w)
	t.Logf("noticed after %v", time.Since(start)) // 1 to 1.5 s; fake time says how long it may take
	assert.False(t, w.Live())
	proxy.Heal()
	live(t, w)
}

// A long way to the server is no reason for another connection. A machine that stalls is, so
// it is enough that one of a few connections is kept.
func TestRedisFarServerIsNotDeaf(t *testing.T) {
	t.Parallel()
	for _, rtt := range []time.Duration{50, 200, 500, 1000} {
		t.Run(fmt.Sprint(int(rtt), "ms"), func(t *testing.T) {
			t.Parallel()
			proxy, rdb, s := far(t)
			proxy.Delay(rtt/2*time.Millisecond, rtt/2*time.Millisecond)
			h := hub(t, rdb, pubsub.Options{})
			w := h.Join("a")
			live(t, w)
			for range 5 {
				if kept(t, s, w) {
					return
				}
			}
			t.Fatal("none of 5 connections was kept for some probes")
		})
	}
}

// kept waits for some probes and reports whether w was live all the time, on one connection.
func kept(t *testing.T, s *redistest.Server, w *pubsub.Waiter) bool {
	t.Helper()
	for awake(w) {
	}
	for !w.Live() {
		wake(t, w)
	}
	before := s.Clients(t, "pubsub")
	time.Sleep(6 * time.Second)
	after := s.Clients(t, "pubsub")
	return w.Live() && !awake(w) && len(before) == 1 && len(after) == 1 && before[0]["id"] == after[0]["id"]
}
