package pubsub

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// node is a server in use. Hub.nodes has the node as long as the goroutine of run exists.
// Hub.mu guards all fields.
type node struct {
	hub      *Hub
	name     string              // as given by [Servers]
	channels map[string]*channel // the channels that the server serves, as far as is known
	conn     *conn               // nil between connections
	cut      bool                // the log has said that there is no connection
	idle     *time.Timer         // ends the connection; starts anew whenever the last channel goes
}

func newNode(h *Hub, name string) *node {
	n := &node{hub: h, name: name, channels: make(map[string]*channel)}
	n.idle = time.AfterFunc(h.opts.idle, n.rest)
	n.idle.Stop()
	return n
}

// run keeps a connection as long as channels are wanted.
func (n *node) run() {
	h, failures := n.hub, 0
	for c := n.connect(); c != nil; c = n.connect() {
		err := c.watch()
		c.giveUp(err)
		confirmed := n.disconnect(c)
		if young := time.Since(c.began) < patience*h.opts.probe; confirmed && !(young && errors.Is(err, errElsewhere)) {
			failures = 0 // a young connection to the wrong server counts as a failure: its name is not asked in a hurry
		}
		if errors.Is(err, errIdle) {
			continue
		}
		if failures == 0 && !errors.Is(err, errClosed) {
			h.mu.Lock()
			n.cut = true
			h.mu.Unlock()
			h.opts.Logger.Warn("pubsub: no connection, waiters poll until there is one", append([]any{"error", err}, n.attrs()...)...)
		}
		n.pause(backoff(failures))
		failures++
		n.rehome()
	}
}

// attrs names the server in the log.
func (n *node) attrs() []any {
	if n.name == "" {
		return nil
	}
	return []any{"server", n.name}
}

// confirmed logs the return of messages after a logged outage. Hub.mu is held, so a goroutine
// of its own calls the logger.
func (n *node) confirmed() {
	if n.cut {
		n.cut = false
		n.hub.wg.Go(func() { n.hub.opts.Logger.Info("pubsub: connected again", n.attrs()...) })
	}
}

// pause waits before the next connection. Meanwhile another server may take charge.
func (n *node) pause(d time.Duration) {
	h, step := n.hub, n.hub.opts.probe/inquiries
	for ; d > 0; d -= step {
		h.mu.Lock()
		h.inquire()
		h.mu.Unlock()
		select {
		case <-time.After(min(d, step)):
		case <-h.ctx.Done():
			return
		}
	}
}

// connect starts a connection, or returns nil if there is nothing to wait for.
func (n *node) connect() *conn {
	h := n.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(n.channels) == 0 {
		n.idle.Stop()
		delete(h.nodes, n.name)
		return nil
	}
	c := newConn(n)
	n.conn = c
	for name, ch := range n.channels {
		c.sample = name
		c.enqueue(ch)
	}
	h.wg.Go(c.serve)
	return c
}

// disconnect ends the effects of c, although the goroutines of c may still run, and reports
// whether c ever confirmed a subscription.
func (n *node) disconnect(c *conn) (confirmed bool) {
	n.hub.mu.Lock()
	defer n.hub.unlock()
	n.conn = nil
	for _, ch := range n.channels {
		ch.reset()
		if !ch.wanted() {
			n.hub.forget(ch)
		}
	}
	return c.confirmed
}

// verify acts on the newest map of the servers.
func (n *node) verify() {
	n.hub.mu.Lock()
	c := n.conn
	n.hub.mu.Unlock()
	if c != nil {
		c.verify()
	} else {
		n.rehome()
	}
}

// rehome moves channels to the servers in charge by now, unless there is a connection.
func (n *node) rehome() {
	h := n.hub
	h.mu.Lock()
	channels := slices.Collect(maps.Values(n.channels))
	h.mu.Unlock()
	for _, ch := range channels {
		name, err := h.servers.Find(h.ctx, ch.name)
		if err != nil || name == n.name {
			continue
		}
		h.mu.Lock()
		if n.conn == nil && n.channels[ch.name] == ch {
			n.drop(ch)
			h.assign(ch, name)
		}
		h.mu.Unlock()
	}
}

// drop takes a channel away; no request about the channel is open. hub.mu is held.
func (n *node) drop(ch *channel) {
	delete(n.channels, ch.name)
	ch.node, ch.queued = nil, false
	if len(n.channels) == 0 {
		n.idle.Reset(n.hub.opts.idle)
	}
}

// rest gives up an unused connection.
func (n *node) rest() {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	if n.conn != nil && len(n.channels) == 0 {
		n.conn.giveUp(errIdle)
	}
}

// backoff is the pause after so many failures in a row, drawn from the upper half of a doubling
// interval: a server back from an outage must not meet all clients at once.
func backoff(failures int) time.Duration {
	d := min(minBackoff<<min(failures, 10), maxBackoff)
	return d/2 + rand.N(d/2)
}
