package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

var errBroken = errors.New("connection reset by test")

// server implements pubsub.Servers: it is a Redis with connections of its own kind. Unless it
// is manual, it answers requests and probes at once.
type server struct {
	mu     sync.Mutex // guards what follows, and all of its connections
	manual bool
	counts bool                        // says that it has executed a probe
	deaf   bool                        // new connections hear nothing and answer nothing
	dial   func(context.Context) error // before a connection is made; nil: at once
	dials  []time.Time
	conns  []*connection
}

// connection implements pubsub.Source.
type connection struct {
	s          *server
	ended      chan struct{} // closed with the connection, by either side
	events     chan pubsub.Event
	over       bool
	deaf       bool
	unanswered []request
	subscribed map[string]bool // what the server has executed
	kept       map[string]bool // still subscribed, for UNSUBSCRIBE was refused
	log        []entry

	// Further doings, nil for none: in Probe, at the end of Subscribe and
	// Unsubscribe, before Close. The last two happen once.
	probe func(context.Context) error
	wrote func()
	close func()
}

type request struct{ verb, channel string }

type entry struct {
	request
	at time.Time
}

func (s *server) Find(context.Context, string) (string, error) { return "", nil }
func (s *server) Refresh(context.Context)                      {}

func (s *server) Open(ctx context.Context, _, _ string) (pubsub.Source, error) {
	s.mu.Lock()
	s.dials = append(s.dials, time.Now())
	dial := s.dial
	s.mu.Unlock()
	if dial != nil {
		if err := dial(ctx); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &connection{
		s:          s,
		deaf:       s.deaf,
		ended:      make(chan struct{}),
		events:     make(chan pubsub.Event, 1<<16),
		subscribed: make(map[string]bool),
		kept:       make(map[string]bool),
	}
	s.conns = append(s.conns, c)
	return c, nil
}

// conn returns the newest connection.
func (s *server) conn() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) == 0 {
		return nil
	}
	return s.conns[len(s.conns)-1]
}

// set changes s while nobody looks.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// dialled returns when connections were asked for.
func (s *server) dialled() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.dials)
}

// opened counts the connections that are open.
func (s *server) opened() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if !c.over {
			n++
		}
	}
	return n
}

// has reports whether a message would reach the newest connection.
func (s *server) has(channel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) == 0 {
		return false
	}
	c := s.conns[len(s.conns)-1]
	return !c.over && c.subscribed[channel]
}

func (c *connection) Subscribe(channel string) error   { return c.request("SUBSCRIBE", channel) }
func (c *connection) Unsubscribe(channel string) error { return c.request("UNSUBSCRIBE", channel) }

func (c *connection) request(verb, channel string) error {
	c.s.mu.Lock()
	if hang := c.wrote; hang != nil {
		c.wrote = nil
		defer hang()
	}
	defer c.s.mu.Unlock()
	if c.over {
		return errBroken
	}
	r := request{verb, channel}
	c.log = append(c.log, entry{r, time.Now()})
	c.unanswered = append(c.unanswered, r)
	if !c.s.manual && !c.deaf {
		c.answerLocked(nil)
	}
	return nil
}

// keeps reports whether the newest connection is subscribed to a channel that nobody wants:
// the server has refused to end that.
func (s *server) keeps(channel string) bool {
	c := s.conn()
	s.mu.Lock()
	defer s.mu.Unlock()
	return c != nil && !c.over && c.kept[channel]
}

// answer executes the oldest request, or refuses it, and reports whether there
// was one.
func (c *connection) answer(refusal error) bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.over || c.deaf || len(c.unanswered) == 0 {
		return false
	}
	c.answerLocked(refusal)
	return true
}

func (c *connection) answerLocked(refusal error) {
	r := c.unanswered[0]
	c.unanswered = c.unanswered[1:]
	switch {
	case refusal != nil:
		if r.verb == "UNSUBSCRIBE" && c.subscribed[r.channel] {
			c.kept[r.channel] = true
		}
		c.events <- pubsub.Event{Kind: pubsub.Refused, Err: refusal}
	case r.verb == "SUBSCRIBE":
		c.subscribed[r.channel] = true
		delete(c.kept, r.channel)
		c.events <- pubsub.Event{Kind: pubsub.Subscribed, Channel: r.channel}
	default:
		delete(c.subscribed, r.channel)
		delete(c.kept, r.channel)
		c.events <- pubsub.Event{Kind: pubsub.Unsubscribed, Channel: r.channel}
	}
}

// send delivers an event of the server's own accord.
func (c *connection) send(e pubsub.Event) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if !c.deaf {
		c.events <- e
	}
}

// publish delivers a message if the channel is subscribed.
func (c *connection) publish(channel, payload string) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.subscribed[channel] && !c.deaf {
		c.events <- pubsub.Event{Kind: pubsub.Message, Channel: channel, Payload: payload}
	}
}

func (c *connection) Probe(ctx context.Context) (bool, error) {
	c.s.mu.Lock()
	c.log = append(c.log, entry{request{"PROBE", ""}, time.Now()})
	if !c.s.manual && !c.deaf {
		c.events <- pubsub.Event{Kind: pubsub.Pong}
	}
	probe, counts := c.probe, c.s.counts
	c.s.mu.Unlock()
	if probe == nil {
		return counts, nil
	}
	return counts, probe(ctx)
}

func (c *connection) Receive() (pubsub.Event, error) {
	select {
	case e := <-c.events:
		return e, nil
	default:
	}
	select {
	case e := <-c.events:
		return e, nil
	case <-c.ended:
		return pubsub.Event{}, errBroken
	}
}

// Close is called by the hub, and by tests to break the connection.
func (c *connection) Close() error {
	c.s.mu.Lock()
	if hang := c.close; hang != nil {
		c.close = nil
		c.s.mu.Unlock()
		hang()
		c.s.mu.Lock()
	}
	defer c.s.mu.Unlock()
	if c.over {
		return errBroken
	}
	c.over = true
	close(c.ended)
	return nil
}

// requests returns what was written but for probes, as "SUBSCRIBE a", and
// forgets all of it.
func (c *connection) requests() []string {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	var all []string
	for _, e := range c.log {
		if e.verb != "PROBE" {
			all = append(all, e.verb+" "+e.channel)
		}
	}
	c.log = nil
	return all
}

// probes counts the probes since the last requests.
func (c *connection) probes() (n int) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, e := range c.log {
		if e.verb == "PROBE" {
			n++
		}
	}
	return n
}

// at returns when a request was written.
func (c *connection) at(t *testing.T, verb, channel string) time.Time {
	t.Helper()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	i := slices.IndexFunc(c.log, func(e entry) bool { return e.request == request{verb, channel} })
	if i < 0 {
		t.Fatalf("no %s %s in %v", verb, channel, c.log)
	}
	return c.log[i].at
}

// awake reports whether w has a wake-up, and takes it.
func awake(w *waiter) bool {
	select {
	case <-w.C():
		return true
	default:
		return false
	}
}

// hub returns a hub on rdb, closed with the test.
func hub(t *testing.T, rdb redis.UniversalClient, opts pubsub.Options) *pubsub.Hub {
	h := pubsub.NewHub(pubsub.Redis(rdb, "probe"), opts)
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	return h
}

// wake fails the test if w does not wake up, with what a busy machine may need.
func wake(t *testing.T, w *waiter) {
	t.Helper()
	select {
	case <-w.C():
	case <-time.After(30 * time.Second):
		t.Fatal("no wake-up within 30 s")
	}
}

// live waits for the wake-up with which w becomes live.
func live(t *testing.T, w *waiter) {
	t.Helper()
	for wake(t, w); !w.Live(); {
		wake(t, w)
	}
}

// protocols runs a test with either version of the protocol.
func protocols(t *testing.T, test func(t *testing.T, edit func(*redis.Options))) {
	for _, version := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", version), func(t *testing.T) {
			test(t, func(o *redis.Options) { o.Protocol = version })
		})
	}
}

// dialler counts connections, and may be told where to.
type dialler struct {
	addr  atomic.Value // of string; overrides the client's address
	dials atomic.Int64
	hang  atomic.Bool // further dials hang until their context ends
}

func (d *dialler) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.dials.Add(1)
	if d.hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if a, ok := d.addr.Load().(string); ok {
		addr = a
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// waiter is somebody who waits for the messages of one channel: each of them, and each change of
// the subscription, leaves a wake-up in C, which holds one.
type waiter struct {
	*pubsub.Subscription
	c     chan struct{}
	heard atomic.Int64 // messages
}

func newWaiter(h *pubsub.Hub, channel string) *waiter {
	w := &waiter{c: make(chan struct{}, 1)}
	w.Subscription = h.Subscribe(channel, func(string) { w.heard.Add(1); w.wake() }, w.wake)
	if w.Live() {
		w.wake()
	}
	return w
}

func (w *waiter) wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

func (w *waiter) C() <-chan struct{} { return w.c }

func (w *waiter) Heard() int64 { return w.heard.Load() }

// Leave ends the wait, and takes a wake-up that is still in C.
func (w *waiter) Leave() {
	w.Close()
	awake(w)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Dials) }
