package rlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/request"
)

// sharedCall is the request of a reader, whose answer others of its client wait for.
type sharedCall struct {
	lock *Lock
	done chan struct{} // closed when there is an answer

	followers int // who wait for it; guarded by queues.mu

	// Written before done is closed.
	grant *grant // that the followers join; nil if there is none
	err   error  // why not
	left  bool   // whoever asked ran out of time
}

// share takes the lock for a reader without a place in the queue, if nobody of this client
// queues. The error is errQueue if that is not possible.
func (l *Lock) share(ctx, wait context.Context) (context.Context, *Hold, error) {
	if l.queues.busy(l) {
		return ctx, nil, errQueue
	}
	held, hold, err := l.joinOrAsk(ctx, wait, l.retries)
	if _, refused := err.(*NotAcquiredError); refused || errors.Is(err, errLate) {
		return ctx, nil, errQueue
	}
	return held, hold, err
}

// joinOrAsk joins another reader of this client, waits for the answer to another's request
// and joins that, or asks.
func (l *Lock) joinOrAsk(ctx, wait context.Context, p request.Policy) (context.Context, *Hold, error) {
	for {
		if held, hold := l.join(ctx); hold != nil {
			return held, hold, nil
		}
		call, asks := l.queues.joinCall(l)
		switch {
		case call == nil:
			return l.try(ctx, wait, p)
		case asks:
			return l.ask(ctx, wait, p, call)
		}
		held, hold, err := l.follow(ctx, wait, call)
		_, refused := err.(*NotAcquiredError)
		switch {
		case hold != nil, refused, errors.Is(err, ErrClosed):
			return held, hold, err
		case wait.Err() != nil: // whatever has become of the other's request
			return ctx, nil, l.givenUp(wait, nil)
		case !call.left: // for all that one knows, it would be the same for this one
			return l.try(ctx, wait, p)
		}
	}
}

// follow waits for the answer to call, and joins the grant, if it is one.
func (l *Lock) follow(ctx, wait context.Context, call *sharedCall) (context.Context, *Hold, error) {
	select {
	case <-call.done:
	case <-wait.Done():
		l.queues.leaveCall(call)
		return ctx, nil, l.givenUp(wait, nil)
	case <-l.client.closing:
		l.queues.leaveCall(call)
		return ctx, nil, l.isClosed()
	}
	if call.grant == nil {
		return ctx, nil, call.err
	}
	held, hold := call.grant.derive(ctx, new(Hold), l, nil)
	if err := call.grant.admit(hold); err != nil {
		hold.cancel(err)
		return ctx, nil, err
	}
	return held, hold, nil
}

// ask makes an attempt, and tells the followers what has become of it.
func (l *Lock) ask(ctx, wait context.Context, p request.Policy, call *sharedCall) (held context.Context, hold *Hold, err error) {
	defer func() {
		call.left = wait.Err() != nil
		l.queues.finishCall(call, hold, err)
	}()
	return l.try(ctx, wait, p)
}

// join lets a reader into the grant of another reader of this client, in memory and
// without a round trip, as a hand-off is. It does so only for a short while after the
// server was asked for that grant, and not while somebody queues here: a writer who
// waits, in whatever process, must not be kept out by readers who follow each other
// without the server's knowing. There is no hold then if join cannot.
func (l *Lock) join(ctx context.Context) (context.Context, *Hold) {
	g := l.queues.joinable(l)
	if g == nil {
		return ctx, nil
	}
	held, hold := g.derive(ctx, new(Hold), l, nil)
	if err := g.add(hold); err != nil {
		hold.cancel(err)
		return ctx, nil
	}
	return held, hold
}

// shares reports whether readers of l and of other can have a grant in common.
func (l *Lock) shares(other *Lock) bool {
	return l.joins && other.joins && l.handoff.longest > 0 && !other.fixed && other.fenced == l.fenced && other.lease == l.lease
}

// joinable returns a grant that a reader of l may join.
func (qs *queues) joinable(l *Lock) *grant {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[l.key]
	if q == nil || q.waiters.n > 0 {
		return nil
	}
	for _, g := range q.holders {
		if l.shares(g.lock) && !g.acquireUnknown && time.Since(g.run.began) < l.handoff.longest {
			return g
		}
	}
	return nil
}

// joinCall makes the caller a follower of the request of another reader, or the one who
// asks; finishCall, or leaveCall, must follow. It returns nil if the caller has to ask for
// itself.
func (qs *queues) joinCall(l *Lock) (call *sharedCall, asks bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of(l.key)
	switch {
	case !l.shares(l):
		qs.tidy(q)
		return nil, false
	case q.call == nil:
		q.call = &sharedCall{lock: l, done: make(chan struct{})}
		return q.call, true
	case !l.shares(q.call.lock):
		return nil, false
	}
	q.call.followers++
	return q.call, false
}

// finishCall ends a shared call. If there is a grant, it lasts until each follower has come and
// gone.
func (qs *queues) finishCall(call *sharedCall, hold *Hold, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[call.lock.key]
	q.call = nil
	qs.tidy(q)
	if call.err = err; hold != nil && !hold.grant.acquireUnknown {
		call.grant = hold.grant
		call.grant.expect(call.followers)
	}
	close(call.done)
}

// leaveCall takes a follower out of a shared call, or out of the grant that it has led to.
func (qs *queues) leaveCall(call *sharedCall) {
	qs.mu.Lock()
	call.followers--
	g := call.grant
	qs.mu.Unlock()
	if g != nil {
		g.dismiss()
	}
}

// expect has the grant last until that many followers were admitted or dismissed.
func (g *grant) expect(followers int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.followers += followers
}

// admit adds the hold of a follower.
func (g *grant) admit(h *Hold) error {
	g.check()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.followers--
	if g.state != owned {
		return errReleased
	}
	g.put(h)
	return nil
}

// dismiss gives up what is kept for a follower who does not come.
func (g *grant) dismiss() {
	g.mu.Lock()
	g.followers--
	last := g.state == owned && len(g.holds)+g.followers == 0
	if last {
		g.state = released
	}
	g.mu.Unlock()
	if last {
		g.lock.client.background(func() { _ = g.release(context.Background()) })
	}
}

// joined reports whether other readers than those under the same first hold share the
// grant, and have it renewed as h does.
func (h *Hold) joined() bool {
	g, first := h.grant, h.first()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.followers > 0 || slices.ContainsFunc(g.holds, func(other *Hold) bool { return other.first() != first && other.renewsFor(h) })
}

// renewsFor reports whether other needs no more of the lease than h does.
func (h *Hold) renewsFor(other *Hold) bool { return !h.fixed && h.lease >= other.lease }
