package pubsub

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Reasons to give a connection up, beside the source's own errors.
var (
	errClosed    = errors.New("pubsub: hub closed")
	errIdle      = errors.New("pubsub: no channel wanted")
	errSilent    = errors.New("pubsub: connection gives no answer")
	errOutOfStep = errors.New("pubsub: an answer that was not asked for")
	errElsewhere = errors.New("pubsub: another server is in charge")
	errDeaf      = errors.New("pubsub: messages that the server has sent do not arrive")
)

// conn is one [Source] in use, from the attempt to open the source until the connection is
// given up. Later events and writes of the connection have no effect.
type conn struct {
	hub    *Hub
	node   *node
	sample string                  // a channel; the connection is to the server of this channel
	ctx    context.Context         // ends when the connection is given up; the cause says why
	giveUp context.CancelCauseFunc // the first call counts
	kick   chan struct{}           // capacity 1; sent to with hub.mu held: todo has grown
	activity

	// Guarded by hub.mu.
	src Source // nil until opened
	dialogue
}

// activity is the ground on which watch judges a connection.
type activity struct {
	began   time.Time
	heard   atomic.Int64  // time of the last event, as a duration since began
	reading atomic.Bool   // receive waits for an event
	stirs   chan struct{} // capacity 1; has watch look, because somebody begins to wait, say

	// Guarded by hub.mu.
	stirred time.Duration // when somebody began to wait, since began
	silence time.Duration // the shortest of the channels, as watch has seen, or is about to see
	echo    echo
}

// dialogue is the requests to the server, due and unanswered.
type dialogue struct {
	todo      []*channel
	pending   []request // unanswered, oldest first
	confirmed bool      // a subscription was confirmed
}

// echo is the first probe answered by the server and not heard since. Both times are
// durations since the connection began; 0 without such a probe.
type echo struct{ probe, at time.Duration }

// request is a SUBSCRIBE or UNSUBSCRIBE.
type request struct {
	ch        *channel
	subscribe bool
	at        time.Time
}

func newConn(n *node) *conn {
	c := &conn{hub: n.hub, node: n, kick: make(chan struct{}, 1)}
	c.began, c.stirs, c.silence = time.Now(), make(chan struct{}, 1), n.hub.opts.probe
	c.ctx, c.giveUp = context.WithCancelCause(n.hub.ctx)
	return c
}

// serve opens the source and writes requests until the connection is given up. Each call of the
// source may hang in the network; only Hub.Close waits for serve.
func (c *conn) serve() {
	src, err := c.hub.servers.Open(c.ctx, c.node.name, c.sample)
	if err != nil {
		c.giveUp(err)
		return
	}
	defer func() { _ = src.Close() }() // ends receive
	c.hub.mu.Lock()
	c.src = src
	c.hub.mu.Unlock()
	c.hub.wg.Go(func() { c.receive(src) })
	for c.ctx.Err() == nil {
		if err := c.write(src); err != nil {
			c.giveUp(err)
			return
		}
		select {
		case <-c.kick:
		case <-c.ctx.Done():
		}
	}
}

// write sends the due requests.
func (c *conn) write(src Source) error {
	for {
		r, ok := c.next()
		if !ok {
			return nil
		}
		send := src.Unsubscribe
		if r.subscribe {
			send = src.Subscribe
		}
		if err := send(r.ch.name); err != nil {
			return err
		}
	}
}

// next returns the request for the next channel whose wanted state differs from the asked state.
// The request counts from here on: the answer may be faster than the return of the writing call.
func (c *conn) next() (request, bool) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if c.node.conn != c {
		return request{}, false
	}
	for len(c.todo) > 0 {
		ch := c.todo[0]
		c.todo = c.todo[1:]
		if ch.node != c.node { // ch has moved
			continue
		}
		ch.queued = false
		if r := (request{ch, ch.wanted(), time.Now()}); r.subscribe != ch.asked && !ch.refused {
			ch.asked, ch.live = r.subscribe, false
			ch.open++
			c.pending = append(c.pending, r)
			return r, true
		}
	}
	return request{}, false
}

// enqueue has the goroutine of serve look at ch. hub.mu is held.
func (c *conn) enqueue(ch *channel) {
	if ch.queued {
		return
	}
	ch.queued = true
	c.todo = append(c.todo, ch)
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// receive takes events until serve closes the source. receive must keep up with the server, and
// so only sets flags, and makes the calls of subscriptions.
func (c *conn) receive(src Source) {
	for {
		c.reading.Store(true)
		e, err := src.Receive()
		c.reading.Store(false)
		if err == nil {
			c.heard.Store(int64(time.Since(c.began)))
			if e.Kind == Refused {
				c.hub.warn(e.Err)
			}
			err = c.handle(e)
		}
		if err != nil {
			c.giveUp(err)
			return
		}
	}
}

func (c *conn) handle(e Event) error {
	h := c.hub
	h.mu.Lock()
	defer h.unlock()
	if c.node.conn != c {
		return nil
	}
	switch e.Kind {
	case Message:
		if ch := h.channels[e.Channel]; ch != nil {
			ch.message(e.Payload)
		}
	case Subscribed, Unsubscribed, Refused, Moved:
		return c.answer(e)
	case Pong:
	}
	return nil
}

// answer applies the server's answer to the oldest request. Two answers belong to no request. A
// server that gives a slot away ends the subscriptions of the slot of its own accord. Any
// other answer means: code below the hub has subscribed or unsubscribed unasked, as after a
// reconnection. Then messages may be lost, and no confirmation can be trusted.
//
//	pending: SUBSCRIBE a, UNSUBSCRIBE b
//	"subscribed a"      answers the first
//	"unsubscribed c"    c is live, no request: the server gives c away, c is routed anew
//	"subscribed d"      the oldest request is UNSUBSCRIBE b: out of step, the connection ends
func (c *conn) answer(e Event) error {
	if ch := c.node.channels[e.Channel]; e.Kind == Unsubscribed && ch != nil && ch.live {
		c.hub.lose(ch)
		return nil
	}
	if len(c.pending) == 0 {
		if e.Kind == Moved { // to a PING, by a server that is busy
			return nil
		}
		return errOutOfStep
	}
	r := c.pending[0]
	if e.Kind != Refused && e.Kind != Moved && (r.ch.name != e.Channel || r.subscribe != (e.Kind == Subscribed)) {
		return errOutOfStep
	}
	c.pending = c.pending[1:]
	if r.ch.open--; r.ch.open == 0 { // otherwise a later request decides
		c.answered(r, e.Kind)
	}
	return nil
}

// answered applies the answer to the newest request for a channel.
func (c *conn) answered(r request, answer Kind) {
	ch := r.ch
	switch {
	case answer == Subscribed:
		ch.live, ch.moves, c.confirmed = true, 0, true
		ch.changed()
		c.node.confirmed()
	case answer == Moved && r.subscribe:
		c.hub.lose(ch)
		return
	case answer == Refused && r.subscribe:
		ch.asked, ch.refused = false, true
		c.hub.keep(ch, refusedRetry)
		ch.changed()
	}
	c.hub.settle(ch)
}
