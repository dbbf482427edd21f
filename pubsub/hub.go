package pubsub

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	requests "github.com/go-rlock/rlock/internal/request" // request is a type here
)

const (
	// probeInterval is how long a connection with a new waiter may be silent before the hub
	// causes traffic. The package's documentation counts other times in such intervals.
	probeInterval = 500 * time.Millisecond
	// linger is how long a channel stays subscribed after the last listener has left: a
	// hot lock does not resubscribe for every contention.
	linger = time.Second
	// idle is how long the connection stays open when no channel is subscribed.
	idle = 10 * time.Second

	refusedRetry = 30 * time.Second // an operator who corrects an ACL need not restart anything
)

// Options are the settings of a [Hub]. The zero value of each field means its default.
type Options struct {
	// Logger gets one record for each outage of a connection, and one for each kind of error with which a
	// subscription was refused. The logger must not block, because the goroutines of the hub call it and wait.
	// The hub holds no mutex while it calls the logger. If Logger is nil, nothing is logged.
	Logger *slog.Logger

	probe, linger, idle time.Duration // in place of the constants, if not 0: tests have shorter ones
}

// Hub delivers messages to subscriptions. Its methods are safe for concurrent use.
type Hub struct {
	servers Servers
	opts    Options
	work
	copies requests.Copies // of probes

	active atomic.Int64 // len(channels)

	mu       sync.Mutex // guards the fields below, all channels and nodes, and parts of conn and Subscription; never held during I/O
	channels map[string]*channel
	nodes    map[string]*node
	placing
	notified []*Subscription // with calls to be made by unlock
	warned   map[string]bool // kinds of refusal in the log
	closed   bool
}

// work is the goroutines of a hub.
type work struct {
	ctx  context.Context // ends with Close; never a caller's: the caller's end would end the connection for all
	stop context.CancelCauseFunc
	wg   sync.WaitGroup // every goroutine; added to with Hub.mu held, or by a goroutine of the hub
}

// placing is the search for the servers of channels. Hub.mu guards it.
type placing struct {
	lost      []*channel // to be placed by search
	searching bool       // the goroutine of search exists
	inquiries int        // under way
}

// NewHub returns a hub for channels on servers, which [Redis], [Sharded] and other functions of this package
// return. The hub opens its first connection at the first [Hub.Subscribe].
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
	h.copies.Background = h.wg.Go // only goroutines of the hub send probes
	return h
}

// Active reports whether any channel is subscribed, or is about to be. Active locks no mutex.
func (h *Hub) Active() bool { return h.active.Load() > 0 }

// Listens reports whether the subscription of a channel is confirmed now, so that a new subscriber receives
// messages at once. A subscription stays confirmed while the channel has a subscriber, and for about a second
// after the last subscriber has closed its subscription.
func (h *Hub) Listens(channel string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := h.channels[channel]
	return ch != nil && ch.live
}

// Close ends all subscriptions, so that [Subscription.Live] returns false for each of them. It closes all
// connections and waits until every goroutine of the hub has ended. If ctx ends first, Close returns the cause
// of ctx. A goroutine can then continue until the timeouts of its connection end its call. Close also makes the
// pending calls of the functions of subscriptions, even if ctx has already ended, so these functions must not
// call Close. A second Close waits like the first.
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
		n.conn = nil // later events of the connection have no effect
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

// warn reports a refused subscription, once for each kind of error: the first word of a Redis
// error is the kind.
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
