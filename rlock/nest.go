package rlock

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// nest adds a hold to the grant of in, a hold found in ctx.
func (l *Lock) nest(ctx, wait context.Context, in *Hold, p request.Policy) (context.Context, *Hold, error) {
	g := in.grant
	if l.fenced && g.token == 0 {
		return ctx, nil, &lockError{l.name, ErrInvalidOption, errors.New("WithFencing under a grant that was taken without: it has no token")}
	}
	if l.replicas.n > g.lock.replicas.n {
		return ctx, nil, &lockError{l.name, ErrInvalidOption, errors.New("WithReplicas under a grant for which fewer were asked")}
	}
	held, hold := g.derive(ctx, new(Hold), l, in)
	if err := g.add(hold); err != nil {
		hold.cancel(err)
		return ctx, nil, err
	}
	if err := g.setCount(wait, p); err != nil {
		g.retract(hold)
		if ownershipEnded(ctx) { // what it was nested in was unlocked meanwhile
			err = l.tooLate(ctx)
		}
		return ctx, nil, err
	}
	return held, hold, nil
}

// add adds a nested hold, of which the server does not know yet, or that of another reader,
// of whom it is never told. A reader is refused unless the lease is renewed as it wants that,
// which it is not while only nested holds with other terms are left.
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
	if !h.shared && !g.exclusive() {
		return &lockError{g.lock.name, ErrUpgrade, nil}
	}
	if h.parent == nil && len(g.holds) > 0 && !slices.ContainsFunc(g.holds, func(other *Hold) bool { return other.renewsFor(h) }) {
		return errTerms
	}
	for h.parent != nil && h.parent.over() {
		h.parent = h.parent.parent
	}
	if h.parent != nil {
		h.parent.children++
	}
	g.put(h)
	g.longest = max(g.longest, h.lease)
	return nil
}

// remove takes a hold out and ends the contexts that nothing live is under any
// more. It returns how many holds are left, and whether one acquisition has ended while
// others have not.
func (g *grant) remove(h *Hold) (left int, one bool, err error) {
	g.mu.Lock()
	if h.unlocked {
		left = len(g.holds)
		g.mu.Unlock()
		return left, false, &lockError{g.lock.name, ErrNotHeld, nil}
	}
	h.unlocked = true
	g.holds = slices.DeleteFunc(g.holds, func(other *Hold) bool { return other == h })
	if !h.shared {
		g.exclusives.Add(-1)
	}
	top := h // the first one that is not over
	for top != nil && top.over() {
		if top = top.parent; top != nil {
			top.children--
		}
	}
	left = len(g.holds) + g.followers
	first := h.first()
	switch {
	case g.state == lost:
		err = g.loss
	case left == 0:
		g.state = released
	case first.counts && !g.hasUnder(first):
		one = true
		g.current--
	}
	g.mu.Unlock()
	for p := h; p != top; p = p.parent {
		p.cancel(ErrUnlocked)
	}
	return left, one, err
}

// over reports that nothing needs the hold's context any more. grant.mu is held.
func (h *Hold) over() bool { return h.unlocked && h.children == 0 }

// first returns the outermost hold of the grant that h was taken under.
func (h *Hold) first() *Hold {
	for h.parent != nil {
		h = h.parent
	}
	return h
}

// counting is about the requests that set the hold count.
type counting struct {
	countUnknown atomic.Bool // one of them may still arrive
	proven       atomic.Bool // the proof was given out: others may ask about the owner; written with grant.mu held

	// turn is held around each of them. Capacity 1: a mutex whose wait ends with a
	// context. Made with the first such request; guarded by grant.mu.
	turn       chan struct{}
	correcting bool // a correction is on its way that has not looked yet; guarded by grant.mu
}

// setCount makes the hold count on the server that of the live holds, and the
// lease the longest that they ask for.
func (g *grant) setCount(ctx context.Context, p request.Policy) error {
	p.Since = time.Now()
	done, err := g.takeTurn(ctx, p)
	if err != nil {
		return err
	}
	defer done()
	n, lease, fixed, ok := g.wanted()
	if !ok {
		return g.lossOrNil()
	}
	if g.lock.retains != nil {
		g.lock.queues.counted(g)
	}
	p.Total = min(p.Total, g.entry.Until().Sub(p.Since))
	a := send(ctx, g.lock, p, func(ctx context.Context, r lua.Runner) (struct{}, error) {
		return struct{}{}, g.lock.wire.SetCount(ctx, r, g.owner, lease, n)
	}, func(struct{}, error) { g.correct() })
	if a.Doubt || a.Open {
		g.countUnknown.Store(true)
	}
	switch {
	case a.Err == nil:
		g.entry.Rearm(a.Sent, lease, fixed)
		if n.Exclusive == 0 && !g.lock.shared {
			g.lock.queues.yielded(g)
		}
	case errors.Is(a.Err, lua.ErrNotOwner):
		g.lose(errGone)
	default:
		g.entry.Rearm(time.Time{}, lease, fixed) // what the live holds ask for, but no later end of the window
	}
	if g.check() {
		return a.Err
	}
	return g.lossOrNil()
}

// errCounting is why a single attempt was not made.
var errCounting = errors.New("an earlier request about the hold count has got no answer yet")

// takeTurn waits until no other request sets the count: for the time of an attempt, if
// that is made only once. done gives the turn back.
func (g *grant) takeTurn(ctx context.Context, p request.Policy) (done func(), _ error) {
	g.mu.Lock()
	if g.turn == nil {
		g.turn = make(chan struct{}, 1)
	}
	turn := g.turn
	g.mu.Unlock()
	done = func() { <-turn }
	select {
	case turn <- struct{}{}: // most often
		return done, nil
	default:
	}
	var over <-chan time.Time
	if p.Once {
		timer := time.NewTimer(p.Total)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case turn <- struct{}{}:
		if !p.Once || time.Since(p.Since) < p.Total {
			return done, nil
		}
		done() // too late
	case <-over:
	case <-ctx.Done():
		return nil, g.lock.givenUp(ctx, nil)
	case <-p.Stop:
		return nil, g.lock.givenUp(ctx, nil)
	}
	return nil, g.lock.failed(errCounting)
}

// wanted returns the count and the lease as they should be on the server. ok is false if
// there is nothing to set: the count of what was joined is the holder's.
func (g *grant) wanted() (n kind.Count, lease time.Duration, fixed, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.correcting = false
	if g.state != owned || len(g.holds) == 0 || g.lock.joined { // no holds until a successor takes what it was given
		return n, 0, false, false
	}
	n.Exclusive = int(g.exclusives.Load())
	n.Shared = len(g.holds) - n.Exclusive
	fixed = true
	for _, h := range g.holds {
		lease, fixed = max(lease, h.lease), fixed && h.fixed
	}
	if g.proven.Load() { // whoever has joined relies on the lease that the proof states
		lease = max(lease, g.lock.lease)
	}
	return n, lease, fixed, true
}

// correct sets the count in the background: after a request that nobody waited
// for may have set one that is not true any more.
func (g *grant) correct() {
	g.mu.Lock()
	idle := !g.correcting
	g.correcting = true
	g.mu.Unlock()
	if idle {
		g.lock.client.background(func() { _ = g.setCount(context.Background(), g.retry(g.lock.lease)) })
	}
}

// retract takes back a nested hold that the server may not know of.
func (g *grant) retract(h *Hold) {
	left, one, err := g.remove(h)
	if one { // what it was nested in was unlocked meanwhile
		g.released(context.Background(), 1, nil)
	}
	switch {
	case errors.Is(err, ErrLeaseLost) && left == 0: // and the Unlocks of the others have left it to this one
		g.lock.client.background(func() { g.releaseRest(context.Background()) })
	case err != nil:
	case left > 0:
		g.correct()
	default: // the others were unlocked meanwhile
		g.lock.client.background(func() { _ = g.release(context.Background()) })
	}
}
