package pubsub

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

const (
	refusedRetry = 30 * time.Second // an operator who corrects an ACL need not restart anything
	minBackoff   = 20 * time.Millisecond
	maxBackoff   = time.Second
)

// Options of a [Hub]. The zero value is ready for use.
type Options struct {
	// ProbeInterval is how long a connection may be silent before the hub
	// causes traffic on it, and then how long that may take. Two intervals
	// therefore bound the time in which a dead connection goes unnoticed, and
	// the time to open one. 0 means 3 s; a negative value panics.
	ProbeInterval time.Duration
	// Linger is how long a channel stays subscribed after its last waiter has
	// left, so that a hot lock does not resubscribe for every contention.
	// 0 means 1 s, a negative value not at all.
	Linger time.Duration
	// Idle is how long the connection stays open when no channel is
	// subscribed. 0 means 10 s, a negative value not at all.
	Idle time.Duration
	// Logger is told once per outage that the connection was lost, and once
	// per kind of error that a subscription was refused. Nil: nobody.
	Logger *slog.Logger
}

// Hub wakes waiters when messages arrive. Its methods may be called from any
// goroutine.
type Hub struct {
	open func(context.Context) (Source, error)
	opts Options
	ctx  context.Context // ends with Close; never a caller's, which would end the connection for all
	stop context.CancelCauseFunc
	wg   sync.WaitGroup // every goroutine of the hub; added to with mu held or by one of them

	mu       sync.Mutex // guards what follows, all channels, and parts of conn and Waiter; never held during I/O
	channels map[string]*channel
	conn     *conn           // nil between connections
	idle     *time.Timer     // calls rest; starts anew whenever the last channel goes
	running  bool            // the goroutine of run exists
	warned   map[string]bool // kinds of refusal in the log
	closed   bool
}

// NewHub returns a hub that opens its connections with open, such as [Redis]
// returns. open should give up when its context ends; until it does, it may be
// called again for another connection. Nothing is opened before the first
// [Hub.Join].
func NewHub(open func(context.Context) (Source, error), opts Options) *Hub {
	if opts.ProbeInterval < 0 {
		panic("pubsub: negative ProbeInterval")
	}
	opts.ProbeInterval = cmp.Or(opts.ProbeInterval, 3*time.Second)
	opts.Linger = cmp.Or(opts.Linger, time.Second)
	opts.Idle = cmp.Or(opts.Idle, 10*time.Second)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	h := &Hub{open: open, opts: opts, channels: make(map[string]*channel), warned: make(map[string]bool)}
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	h.idle = time.AfterFunc(opts.Idle, h.rest)
	h.idle.Stop()
	return h
}

// Join enters the queue of a channel, and never blocks. The waiter's first
// wake-up comes when the server has confirmed the subscription: at once, if it
// has already. After Close the waiter is awake and never live.
//
// Every waiter must [Waiter.Leave].
func (h *Hub) Join(name string) *Waiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &Waiter{hub: h, c: make(chan struct{}, 1)}
	if h.closed {
		w.wake()
		return w
	}
	ch := h.channels[name]
	if ch == nil {
		ch = &channel{name: name}
		h.channels[name] = ch
	}
	w.channel, w.place = ch, ch.waiters.PushBack(w)
	if ch.live {
		w.wake()
	}
	h.settle(ch)
	if !h.running {
		h.running = true
		h.wg.Go(h.run)
	}
	return w
}

// Close wakes everybody for good: no waiter is live any more. It returns when
// the connection is closed and every goroutine has ended, or with the cause of
// ctx, as a call may hang in the network for longer; such a call ends by the
// time-outs of the source. A second call waits likewise.
func (h *Hub) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	for _, ch := range h.channels {
		ch.dropTimer()
		ch.live = false
		ch.wakeAll()
	}
	clear(h.channels)
	h.conn = nil // what it still hears has no effect
	h.idle.Stop()
	h.mu.Unlock()
	h.stop(errClosed)

	ended := make(chan struct{})
	go func() { // ends with the last goroutine of the hub
		h.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run keeps a connection as long as channels are wanted.
func (h *Hub) run() {
	failures := 0
	for c := h.connect(); c != nil; c = h.connect() {
		err := c.watch()
		c.giveUp(err)
		if confirmed := h.disconnect(c); confirmed {
			failures = 0
		}
		if errors.Is(err, errIdle) {
			continue
		}
		if failures == 0 && !errors.Is(err, errClosed) {
			h.opts.Logger.Warn("pubsub: no connection, waiters poll until there is one", "error", err)
		}
		select {
		case <-time.After(backoff(failures)):
		case <-h.ctx.Done():
		}
		failures++
	}
}

// connect starts a connection, or returns nil if there is nothing to wait for.
func (h *Hub) connect() *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.channels) == 0 {
		h.running = false
		return nil
	}
	c := newConn(h)
	h.conn = c
	for _, ch := range h.channels {
		c.enqueue(ch)
	}
	h.wg.Go(c.serve)
	return c
}

// disconnect ends the effects of c, whose goroutines may still be on their way
// out, and reports whether it was ever of use.
func (h *Hub) disconnect(c *conn) (confirmed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conn = nil
	for name, ch := range h.channels {
		ch.reset()
		if !ch.wanted() {
			delete(h.channels, name)
		}
	}
	return c.confirmed
}

// rest gives up a connection that nobody needs.
func (h *Hub) rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn != nil && len(h.channels) == 0 {
		h.conn.giveUp(errIdle)
	}
}

// warn reports a refused subscription, unless its like was reported before: the
// first word of a Redis error is its kind.
func (h *Hub) warn(err error) {
	kind, _, _ := strings.Cut(err.Error(), " ")
	h.mu.Lock()
	known := h.warned[kind]
	h.warned[kind] = true
	h.mu.Unlock()
	if !known {
		h.opts.Logger.Warn("pubsub: subscription refused, waiters poll instead", "error", err)
	}
}

// backoff is the pause after so many failures in a row, drawn from the upper
// half of a doubling interval: a server that comes back is not to meet all of its
// clients at once.
func backoff(failures int) time.Duration {
	d := min(minBackoff<<min(failures, 10), maxBackoff)
	return d/2 + rand.N(d/2)
}
