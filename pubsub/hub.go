package pubsub

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// probeInterval is how long a connection on which somebody has begun to wait may be
	// silent before the hub causes traffic on it. See the package's documentation for
	// what is counted in intervals.
	probeInterval = 500 * time.Millisecond
	// linger is how long a channel stays subscribed after its last listener has left, so
	// that a hot lock does not resubscribe for every contention.
	linger = time.Second
	// idle is how long the connection stays open when no channel is subscribed.
	idle = 10 * time.Second

	refusedRetry = 30 * time.Second // an operator who corrects an ACL need not restart anything
)

// Options of a [Hub]. The zero value is ready for use.
type Options struct {
	// Logger is told once per outage that the connection was lost, and once
	// per kind of error that a subscription was refused. The goroutines at work
	// call it, without any mutex held, and wait: it must not block. Nil: nobody.
	Logger *slog.Logger

	probe, linger, idle time.Duration // in place of the constants, if not 0: tests have shorter ones
}

// Hub tells subscriptions of messages. Its methods may be called from any
// goroutine.
type Hub struct {
	servers Servers
	opts    Options
	work

	active atomic.Int64 // len(channels)

	mu       sync.Mutex // guards what follows, all channels and nodes, and parts of conn and Subscription; never held during I/O
	channels map[string]*channel
	nodes    map[string]*node
	placing
	notified []*Subscription // with calls to be made by unlock
	warned   map[string]bool // kinds of refusal in the log
	closed   bool
}

// work is the goroutines of a hub.
type work struct {
	ctx  context.Context // ends with Close; never a caller's, which would end the connection for all
	stop context.CancelCauseFunc
	wg   sync.WaitGroup // every goroutine; added to with Hub.mu held or by one of them
}

// placing is the search for the servers of channels. Hub.mu guards it.
type placing struct {
	lost      []*channel // to be placed by search
	searching bool       // the goroutine of search exists
	inquiries int        // under way
}

// NewHub returns a hub for channels on these servers, such as [Redis] or
// [Sharded] returns. Nothing is opened before the first [Hub.Subscribe].
func NewHub(servers Servers, opts Options) *Hub {
	opts.probe = cmp.Or(opts.probe, probeInterval)
	opts.linger = cmp.Or(opts.linger, linger)
	opts.idle = cmp.Or(opts.idle, idle)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	h := &Hub{
		servers:  servers,
		opts:     opts,
		channels: make(map[string]*channel),
		nodes:    make(map[string]*node),
		warned:   make(map[string]bool),
	}
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	return h
}

// Active reports whether there is any channel that is subscribed, or is about to be.
// It takes no mutex.
func (h *Hub) Active() bool { return h.active.Load() > 0 }

// Listens reports whether a subscription of that channel is confirmed now: somebody
// wants it, or did within the last second, so that another listener hears at once.
func (h *Hub) Listens(channel string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := h.channels[channel]
	return ch != nil && ch.live
}

// Close tells all subscriptions: none is live any more. It
// returns when the connection is closed and every goroutine has ended, or with the cause of
// ctx, as a call may hang in the network for longer; such a call ends by the
// time-outs of the source. A second call waits likewise. Close makes the calls that
// subscriptions are due itself, whatever ctx says, and must not be called from one.
func (h *Hub) Close(ctx context.Context) error {
	h.mu.Lock()
	h.closed = true
	for _, ch := range h.channels {
		ch.dropTimer()
		ch.live = false
		ch.changed()
	}
	clear(h.channels)
	h.active.Store(0)
	for _, n := range h.nodes {
		clear(n.channels)
		n.conn = nil // what it still hears has no effect
		n.idle.Stop()
	}
	h.unlock()
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
