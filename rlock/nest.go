package rlock

import (
	"context"
	"errors"
	"slices"
	"time"
)

// nest adds a hold to the grant of in, a hold found in ctx.
func (w *waiter) nest(ctx context.Context, in *Hold) (context.Context, *Hold, error) {
	l, g := w.lock, in.grant
	if l.terms.fenced && g.token == 0 {
		return ctx, nil, &lockError{l.name, ErrInvalidOption, errors.New("the lock is held here already, without fencing: make the outer lock WithFencing as well")}
	}
	if l.terms.replicas.n > g.lock.terms.replicas.n {
		return ctx, nil, &lockError{l.name, ErrInvalidOption, errors.New("the lock is held here already, with fewer replicas: make the outer lock WithReplicas of as many")}
	}
	held, hold := g.derive(ctx, new(Hold), l, in)
	if err := g.add(hold); err != nil {
		hold.cancel(err)
		return ctx, nil, err
	}
	answered := false
	defer func() {
		if !answered { // a panic: see send
			g.retract(hold)
		}
	}()
	err := g.recount(w.ctx, w.retries())
	if answered = true; err != nil {
		g.retract(hold)
		if ownershipEnded(ctx) { // the outer hold was unlocked meanwhile
			err = tooLate(l.name, ctx)
		}
		return ctx, nil, err
	}
	return held, hold, nil
}

// add adds a nested hold. The caller then sets the count on the server.
func (g *grant) add(h *Hold) error {
	g.check()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.state {
	case lost:
		return g.loss
	case released:
		return errReleased
	}
	if !h.lock.terms.shared && !g.Exclusive() {
		return &lockError{g.lock.name, ErrUpgrade, nil}
	}
	for h.parent != nil && h.parent.over() {
		h.parent = h.parent.parent
	}
	if h.parent != nil {
		h.parent.children++
	}
	g.put(h)
	g.longest = max(g.longest, h.lock.terms.lease)
	return nil
}

// remove takes out a hold, and ends the contexts without a live hold below. left is the number of holds
// left. If the acquisition ends with this hold, whoever unlocks it tells that: see Hold.ended.
func (g *grant) remove(h *Hold) (left int, err error) {
	g.mu.Lock()
	if h.unlocked {
		left = len(g.holds)
		g.mu.Unlock()
		return left, &lockError{g.lock.name, ErrNotHeld, nil}
	}
	h.unlocked = true
	last := len(g.holds) - 1 // a grant may have very many holds: those of readers
	g.holds[h.at] = g.holds[last]
	g.holds[h.at].at = h.at
	g.holds = slices.Delete(g.holds, last, last+1)
	first := h.first()
	first.under--
	if !h.lock.terms.shared {
		g.exclusives.Add(-1)
	}
	top := h // the first not over
	for top != nil && top.over() {
		if top = top.parent; top != nil {
			top.children--
		}
	}
	left = len(g.holds) + g.followers
	if g.state == lost {
		err = g.loss
	} else {
		if first.under == 0 {
			h.ends, first.counts = first.counts, false
		}
		if left == 0 {
			g.state = released
		}
	}
	g.mu.Unlock()
	for p := h; p != top; p = p.parent {
		p.cancel((*unlocked)(p))
	}
	return left, err
}

// over reports whether no live hold needs the hold's context any more. grant.mu is held.
func (h *Hold) over() bool { return h.unlocked && h.children == 0 }

// first returns the outermost hold of the grant around h.
func (h *Hold) first() *Hold {
	for h.parent != nil {
		h = h.parent
	}
	return h
}

// retract takes back a nested hold after a failed request about the count.
func (g *grant) retract(h *Hold) {
	left, err := g.remove(h)
	ctx := context.Background()
	switch {
	case errors.Is(err, ErrLeaseLost) && left == 0: // the Unlocks of the earlier holds have left the rest to this Unlock
		g.lock.client.background(func() { g.releaseRest(ctx) })
	case err != nil:
	case left > 0:
		h.ended(ctx, time.Now(), nil) // if the outer hold was unlocked meanwhile
		g.tell(ctx)
	default: // all further holds were unlocked meanwhile
		g.lock.client.background(func() { h.ended(ctx, time.Time{}, g.release(ctx)) })
	}
}
