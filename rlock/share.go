package rlock

import (
	"context"
	"errors"
	"time"
)

// inquiry is the request of a reader, whose answer others of its client wait for.
type inquiry struct {
	lock *Lock
	done chan struct{} // closed when there is an answer

	guests int // who wait for it; guarded by gates.mu

	// Written before done is closed.
	grant *grant // that the guests join; nil if there is none
	err   error  // why not
	left  bool   // whoever asked ran out of time
}

// share takes the lock for a reader without a place in the queue: it joins another
// reader of this client, waits for the answer to another's request and joins that, or
// asks.
func (l *Lock) share(ctx, wait context.Context, p patience) (context.Context, *Hold, error) {
	for {
		if held, hold := l.join(ctx); hold != nil {
			return held, hold, nil
		}
		q, asks := l.gates.inquire(l)
		switch {
		case q == nil:
			return l.try(ctx, wait, p)
		case asks:
			return l.ask(ctx, wait, p, q)
		}
		held, hold, err := l.visit(ctx, wait, q)
		_, refused := err.(*NotAcquiredError)
		switch {
		case hold != nil, refused, wait.Err() != nil, errors.Is(err, ErrClosed):
			return held, hold, err
		case !q.left: // for all that one knows, it would be the same for this one
			return l.try(ctx, wait, p)
		}
	}
}

// visit waits for the answer to q, and joins the grant, if it is one.
func (l *Lock) visit(ctx, wait context.Context, q *inquiry) (context.Context, *Hold, error) {
	select {
	case <-q.done:
	case <-wait.Done():
		l.gates.quit(q)
		return ctx, nil, l.givenUp(wait, nil)
	case <-l.client.closing:
		l.gates.quit(q)
		return ctx, nil, l.isClosed()
	}
	if q.grant == nil {
		return ctx, nil, q.err
	}
	held, hold := q.grant.newHold(ctx, l, nil)
	if err := q.grant.admit(hold); err != nil {
		hold.cancel(err)
		return ctx, nil, err
	}
	return held, hold, nil
}

// ask makes an attempt, and tells the guests what has become of it.
func (l *Lock) ask(ctx, wait context.Context, p patience, q *inquiry) (held context.Context, hold *Hold, err error) {
	defer func() {
		q.left = wait.Err() != nil
		l.gates.answer(q, hold, err)
	}()
	return l.try(ctx, wait, p)
}

// join lets a reader into the grant of another reader of this client, in memory and
// without a round trip, as a hand-off is. It does so only for a short while after the
// server was asked for that grant, and not while somebody queues here: a writer who
// waits, in whatever process, must not be kept out by readers who follow each other
// without the server's knowing. There is no hold then if join cannot.
func (l *Lock) join(ctx context.Context) (context.Context, *Hold) {
	g := l.gates.joinable(l)
	if g == nil {
		return ctx, nil
	}
	held, hold := g.newHold(ctx, l, nil)
	if err := g.add(hold); err != nil {
		hold.cancel(err)
		return ctx, nil
	}
	return held, hold
}

// shares tells whether readers of l and of other can have a grant in common.
func (l *Lock) shares(other *Lock) bool {
	return l.shared && other.shared && l.handoff.longest > 0 && !other.fixed && other.fenced == l.fenced && other.lease == l.lease
}

// joinable returns a grant that a reader of l may join.
func (gs *gates) joinable(l *Lock) *grant {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gate := gs.byKey[l.protocol.key()]
	if gate == nil || len(gate.queue) > 0 {
		return nil
	}
	for _, g := range gate.holders {
		if l.shares(g.lock) && !g.doubted && time.Since(g.chain.began) < l.handoff.longest {
			return g
		}
	}
	return nil
}

// inquire makes the caller a guest at the request of another reader, or the one who
// asks; answer, or quit, must follow. It returns nil if the caller has to ask for
// itself.
func (gs *gates) inquire(l *Lock) (q *inquiry, asks bool) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gate := gs.of(l.protocol.key())
	switch {
	case !l.shares(l):
		gs.tidy(gate)
		return nil, false
	case gate.inquiry == nil:
		gate.inquiry = &inquiry{lock: l, done: make(chan struct{})}
		return gate.inquiry, true
	case !l.shares(gate.inquiry.lock):
		return nil, false
	}
	gate.inquiry.guests++
	return gate.inquiry, false
}

// answer ends an inquiry. If there is a grant, it lasts until each guest has come and
// gone.
func (gs *gates) answer(q *inquiry, hold *Hold, err error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gate := gs.byKey[q.lock.protocol.key()]
	gate.inquiry = nil
	gs.tidy(gate)
	if q.err = err; hold != nil && !hold.grant.doubted {
		q.grant = hold.grant
		q.grant.expect(q.guests)
	}
	close(q.done)
}

// quit takes a guest out of an inquiry, or out of the grant that it has led to.
func (gs *gates) quit(q *inquiry) {
	gs.mu.Lock()
	q.guests--
	g := q.grant
	gs.mu.Unlock()
	if g != nil {
		g.dismiss()
	}
}

// expect has the grant last until that many guests were admitted or dismissed.
func (g *grant) expect(guests int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.guests += guests
}

// admit adds the hold of a guest.
func (g *grant) admit(h *Hold) error {
	g.check()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.guests--
	if g.state != owned {
		return errReleased
	}
	g.put(h)
	return nil
}

// dismiss gives up what is kept for a guest who does not come.
func (g *grant) dismiss() {
	g.mu.Lock()
	g.guests--
	last := g.state == owned && len(g.holds)+g.guests == 0
	if last {
		g.state = released
	}
	g.mu.Unlock()
	if last {
		g.lock.client.background(func() { _ = g.release(context.Background()) })
	}
}

// joined tells whether other readers than those under the same first hold share the
// grant.
func (h *Hold) joined() bool {
	g, first := h.grant, h.first()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, other := range g.holds {
		if other.first() != first {
			return true
		}
	}
	return g.guests > 0
}

// first returns the outermost hold of the grant that h was taken under.
func (h *Hold) first() *Hold {
	for h.parent != nil {
		h = h.parent
	}
	return h
}
