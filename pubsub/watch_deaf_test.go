package pubsub_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
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
// is given up one and a half intervals after the first probe of which that is true.
func TestDeafConnectionIsReplaced(t *testing.T) {
	for _, test := range []struct{ age, silence, limit time.Duration }{
		{100 * time.Millisecond, 0, 1250 * time.Millisecond},
		{1800 * time.Millisecond, 0, 1250 * time.Millisecond},
		{4200 * time.Millisecond, 0, 1950 * time.Millisecond},
		{20 * time.Second, 0, 2750 * time.Millisecond},
		{20*time.Minute + 900*time.Millisecond, 0, 2750 * time.Millisecond},
		{100 * time.Millisecond, 200 * time.Millisecond, 950 * time.Millisecond},
		{777 * time.Millisecond, 200 * time.Millisecond, 1000 * time.Millisecond},
		{20 * time.Second, 200 * time.Millisecond, 2750 * time.Millisecond},
		{100 * time.Millisecond, 1500 * time.Millisecond, 2250 * time.Millisecond},
		{100 * time.Millisecond, 3 * time.Second, 3750 * time.Millisecond},
		{100 * time.Millisecond, time.Minute, 10750 * time.Millisecond},
	} {
		hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
			s.set(func() { s.counts = true })
			w := newWaiter(h, "a")
			h.AllowSilence("a", test.silence)
			<-w.C()
			time.Sleep(test.age)
			old := s.conn()
			s.set(func() { old.deaf = true })
			start := time.Now()
			<-w.C()
			took := time.Since(start)
			assert.False(t, w.Live())
			assert.GreaterOrEqual(t, took, 750*time.Millisecond, "%v", test)
			assert.LessOrEqual(t, took, test.limit, "%v", test)
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			assert.True(t, w.Live())
		})
	}
}

// The shortest silence counts that is allowed on a connection, of those channels that somebody
// listens to, and from when it is allowed on.
func TestSilenceOfSeveralChannels(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
		probes := func(d time.Duration) int {
			before := s.conn().probes()
			time.Sleep(d)
			return s.conn().probes() - before
		}
		patient, hasty := newWaiter(h, "patient"), newWaiter(h, "hasty")
		<-patient.C()
		<-hasty.C()
		h.AllowSilence("nobody", time.Millisecond)
		h.AllowSilence("patient", 2*time.Second)
		h.AllowSilence("hasty", 2*time.Second)
		probes(2100 * time.Millisecond)
		assert.LessOrEqual(t, probes(1700*time.Millisecond), 1)
		_ = newWaiter(h, "hasty")
		h.AllowSilence("hasty", 100*time.Millisecond)
		assert.GreaterOrEqual(t, probes(390*time.Millisecond), 3)
	})
}

// refreshing counts how often the hub asks anew who is in charge.
type refreshing struct {
	*server
	n atomic.Int64
}

func (r *refreshing) Refresh(context.Context) { r.n.Add(1) }

// A crowd that comes while a connection is in doubt changes nothing about how often others are
// asked who is in charge: twice per interval.
func TestSilenceOfACrowdAsksNobody(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := &refreshing{server: &server{counts: true}}
		h := pubsub.NewHub(s, pubsub.Options{})
		for i := range 1000 {
			newWaiter(h, strconv.Itoa(i))
		}
		time.Sleep(2 * time.Second)
		conn := s.conn()
		s.set(func() {
			conn.deaf = true
			conn.probe = func(context.Context) error { time.Sleep(700 * time.Millisecond); return nil }
		})
		before := s.n.Load()
		for i := range 1000 {
			h.AllowSilence(strconv.Itoa(i), 200*time.Millisecond)
			time.Sleep(1500 * time.Microsecond)
		}
		assert.LessOrEqual(t, s.n.Load()-before, int64(6))
		assert.NoError(t, h.Close(t.Context()))
	})
}

// Whoever begins to wait is served as on a young connection.
func TestNewWaiterIsToldOfADeafConnectionSoon(t *testing.T) {
	for _, join := range []func(h *pubsub.Hub, channel string) func() bool{
		func(h *pubsub.Hub, channel string) func() bool { return newWaiter(h, channel).Live },
		func(h *pubsub.Hub, channel string) func() bool {
			return h.Subscribe(channel, func(string) {}, func() {}).Live
		},
	} {
		hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
			s.set(func() { s.counts = true })
			newWaiter(h, "a")
			for i := range 100 {
				time.Sleep(20*time.Second + 77*time.Millisecond)
				s.set(func() { s.conns[len(s.conns)-1].deaf = true })
				live := join(h, "a")
				assert.True(t, live(), "as far as is known")
				time.Sleep(1270 * time.Millisecond)
				synctest.Wait()
				assert.Len(t, s.dialled(), i+2, "replaced")
				assert.True(t, live())
			}
		})
	}
}

// A new wait on a new channel begins before the hub has found the server of the channel, which may have an old
// connection. Both the wait and its silence count as on a channel that the connection knew before.
func TestNewChannelIsToldOfADeafConnectionSoon(t *testing.T) {
	for _, test := range []struct{ before, silence, limit time.Duration }{
		{0, 0, 1250 * time.Millisecond},
		{0, 200 * time.Millisecond, 950 * time.Millisecond},
		{10 * time.Second, 0, 1250 * time.Millisecond},
		{10 * time.Second, 200 * time.Millisecond, 950 * time.Millisecond},
		{10 * time.Second, -time.Second, 1250 * time.Millisecond},
	} {
		for phase := range 40 { // of the rare probes of a long wait
			hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
				s.set(func() { s.counts = true })
				newWaiter(h, "old")
				h.AllowSilence("old", test.before)
				time.Sleep(time.Minute + time.Duration(phase)*277*time.Millisecond)
				w := newWaiter(h, "new")
				h.AllowSilence("new", test.silence)
				<-w.C()
				time.Sleep(100 * time.Millisecond)
				old := s.conn()
				s.set(func() { old.deaf = true })
				start := time.Now()
				<-w.C()
				assert.False(t, w.Live())
				assert.LessOrEqual(t, time.Since(start), test.limit, "%v, phase %d", test, phase)
			})
		}
	}
}

// What a waiter allowed is forgotten when it leaves, also on a channel that stays subscribed for a while.
func TestSilenceOfAFormerWaiter(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
		w := newWaiter(h, "a")
		h.AllowSilence("a", 10*time.Second)
		<-w.C()
		w.Leave()
		h.AllowSilence("a", 10*time.Second)
		time.Sleep(100 * time.Millisecond)
		newWaiter(h, "a")
		before := s.conn().probes()
		time.Sleep(1900 * time.Millisecond)
		assert.GreaterOrEqual(t, s.conn().probes()-before, 3)
	})
}

// What a probe needs to be executed does not count, and neither does a message that
// comes late.
func TestSlowServerIsNotDeaf(t *testing.T) {
	for _, slow := range []time.Duration{50, 200, 400, 900, 1500, 2500} {
		for _, late := range []time.Duration{0, 300, 700} {
			bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
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

// A wait costs as many probes as the silence allows that its listener can do without, but at
// most one in two seconds in the end.
func TestPriceOfAWait(t *testing.T) {
	for _, test := range []struct {
		silence, after time.Duration
		most           int
	}{
		{0, 2 * time.Second, 5},
		{0, 30 * time.Second, 22},
		{0, 10 * time.Minute, 310},
		{200 * time.Millisecond, 2 * time.Second, 10},
		{200 * time.Millisecond, 30 * time.Second, 28},
		{200 * time.Millisecond, 10 * time.Minute, 315},
		{1500 * time.Millisecond, 2 * time.Second, 2},
		{time.Hour, 10 * time.Minute, 305},
	} {
		hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
			newWaiter(h, "a")
			h.AllowSilence("a", test.silence)
			time.Sleep(test.after)
			assert.LessOrEqual(t, s.conn().probes(), test.most, "%v", test)
		})
	}
}

// far returns a client on a server behind a proxy.
func far(t *testing.T) (*netfault.Proxy, *redis.Client, *redistest.Server) {
	s := redistest.Start(t)
	proxy := netfault.New(t, s.Addr())
	return proxy, s.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() }), s
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
			w := newWaiter(h, "a")
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
func kept(t *testing.T, s *redistest.Server, w *waiter) bool {
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
