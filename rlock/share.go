package rlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/request"
)

// sharedCall is a reader's request that serves other readers of the client, the followers. 64 sharing
// readers take 1.2 µs for a Lock with its Unlock, 33 µs if each asks: BenchmarkReaders64, two cores.
type sharedCall struct {
	lock *Lock
	done chan struct{} // closed when there is an answer

	followers int // guarded by queues.mu

	// Written before done is closed.
	grant *grant // joined by the followers; nil if there is none
	err   error  // why there is no grant
	left  bool   // the context of the asking reader has ended
}

// share takes the lock for a reader without a place in the queue, if no goroutine of this
// client waits there. The error is errQueue if that is not possible.
func (l *Lock) share(ctx, wait context.Context) (context.Context, *Hold, error) {
	if l.queues.busy(l) {
		return ctx, nil, errQueue
	}
	held, hold, err := l.joinOrAsk(ctx, wait, l.retries())
	if _, refused := err.(*NotAcquiredError); refused || errors.Is(err, errLate) {
		return ctx, nil, errQueue
	}
	return held, hold, err
}

// joinOrAsk joins the grant of another reader of this client. Without such a grant it follows the request
// of another reader, or asks. After two leaders have left before their answer, the reader asks for
// itself: leaders may have less time than the server takes, and would starve followers with more.
func (l *Lock) joinOrAsk(ctx, wait context.Context, p request.Policy) (context.Context, *Hold, error) {
	for followed := 0; ; followed++ {
		if held, hold := l.shareGrant(ctx); hold != nil {
			return held, hold, nil
		}
		call, asks := l.queues.joinCall(l)
		switch {
		case call == nil:
			return l.try(ctx, wait, p)
		case asks:
			return l.lead(ctx, wait, p, call)
		}
		began := time.Now()
		held, hold, err := l.follow(ctx, wait, call)
		if p.Since.IsZero() && errors.Is(err, ErrUnavailable) { // the time without an answer counts, whichever reader has asked
			p.Since, p.Trouble = began, request.ErrNoAnswer
		}
		_, refused := err.(*NotAcquiredError)
		switch {
		case hold != nil, refused, errors.Is(err, ErrClosed):
			return held, hold, err
		case wait.Err() != nil: // whatever the outcome of the leader's request
			return ctx, nil, l.givenUp(wait, nil)
		case !call.left, followed > 0: // the request failed, not for the leader's context, or a second leader left
			return l.try(ctx, wait, p)
		}
	}
}

// follow waits for the answer to call, and joins its grant, if any.
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
	call.grant.check()
	if !call.grant.admit(hold) {
		hold.cancel(errReleased)
		return ctx, nil, errReleased
	}
	return held, hold, nil
}

// lead makes an attempt, and tells the followers the outcome.
func (l *Lock) lead(ctx, wait context.Context, p request.Policy, call *sharedCall) (held context.Context, hold *Hold, err error) {
	defer func() { l.queues.finishCall(call, hold, err) }() // also after a panic
	held, hold, err = l.try(ctx, wait, p)
	call.left = wait.Err() != nil
	return held, hold, err
}

// shareGrant lets a reader into the grant of another reader of this client, in memory and without a round
// trip: only for a short time after the request for that grant, and not while a goroutine waits in the
// queue. Otherwise readers could follow each other without the server's knowledge, and keep out a waiting
// writer of any process. It returns no hold if there is no grant to share.
func (l *Lock) shareGrant(ctx context.Context) (context.Context, *Hold) {
	g := l.queues.shareable(l)
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

// shares reports whether readers of l and of other can share a grant.
func (l *Lock) shares(other *Lock) bool {
	return l.terms.shared && other.terms.shared && l.terms.handoff.longest > 0 && !other.terms.fixed && other.terms.fenced == l.terms.fenced && other.terms.lease == l.terms.lease
}

// shareable returns a grant that a reader of l may join.
func (qs *queues) shareable(l *Lock) *grant {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[l.key]
	if q == nil || q.first != nil {
		return nil
	}
	for _, g := range q.grants {
		if l.shares(g.lock) && !g.left(inDoubt) && time.Since(g.run.began) < l.terms.handoff.longest {
			return g
		}
	}
	return nil
}

// joinCall makes the caller a follower of another reader's request, or, if asks is true, the leader of a
// new shared call; leaveCall or finishCall must follow. It returns nil if the caller has to ask for
// itself only.
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

// finishCall ends a shared call. Its grant lasts until each follower has been admitted and has
// unlocked, or has left.
func (qs *queues) finishCall(call *sharedCall, hold *Hold, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[call.lock.key]
	q.call = nil
	qs.tidy(q)
	if call.err = err; hold != nil && !hold.grant.left(inDoubt) {
		call.grant = hold.grant
		call.grant.expect(call.followers)
	}
	close(call.done)
}

// leaveCall takes a follower out of a shared call, or out of the call's grant.
func (qs *queues) leaveCall(call *sharedCall) {
	qs.mu.Lock()
	call.followers--
	g := call.grant
	qs.mu.Unlock()
	if g != nil {
		g.admit(nil)
	}
}

// expect makes the grant last until this many followers were admitted, or have left.
func (g *grant) expect(followers int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.followers += followers
}

// admit adds the hold of a follower; nil if the follower has left. It returns false if there is no new
// hold. The last to leave a grant releases the grant, or the rest of a lost grant: the Unlocks of the
// earlier holds did not, as a follower was expected.
func (g *grant) admit(h *Hold) bool {
	g.mu.Lock()
	g.followers--
	before := g.state
	admitted := before == owned && h != nil
	if admitted {
		g.put(h)
	}
	last := len(g.holds)+g.followers == 0
	if last && before == owned {
		g.state = released
	}
	g.mu.Unlock()
	switch {
	case last && before == owned:
		g.lock.client.background(func() { _ = g.release(context.Background(), 0) })
	case last && before == lost:
		g.lock.client.background(func() { g.releaseRest(context.Background()) })
	}
	return admitted
}

// covered reports whether the server need not be told of the end of h: another reader shares the grant,
// and has the lease renewed as h does.
func (h *Hold) covered() bool {
	g, first := h.grant, h.first()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.followers > 0 || slices.ContainsFunc(g.holds, func(other *Hold) bool { return other.first() != first && other.renewsFor(h) })
}

// renewsFor reports whether the renewal for h is enough for other.
func (h *Hold) renewsFor(other *Hold) bool {
	return !h.lock.terms.fixed && h.lock.terms.lease >= other.lock.terms.lease
}
