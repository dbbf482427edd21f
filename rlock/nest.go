package rlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// nest adds a hold to the grant of in, a hold found in ctx.
func (l *Lock) nest(ctx, wait context.Context, in *Hold, p request.Policy) (context.Context, *Hold, error) {
	g := in.grant
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
	err := g.setCount(wait, p)
	if answered = true; err != nil {
		g.retract(hold)
		if ownershipEnded(ctx) { // the outer hold was unlocked meanwhile
			err = tooLate(l.name, ctx)
		}
		return ctx, nil, err
	}
	return held, hold, nil
}

// add adds a hold: a nested hold, and the caller then sets the count on the server; or the hold of another
// reader, and nothing is sent. A reader is refused if no live hold has the lease renewed as this reader
// wants.
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
	c := g.counts()
	c.changes++
	c.longest = max(c.longest, h.lock.terms.lease)
	return nil
}

// remove takes out a hold, and ends the contexts without a live hold below. left is the number of holds
// left, ended the number of acquisitions ended by this Unlock: 0 or 1.
func (g *grant) remove(h *Hold) (left, ended int, err error) {
	g.mu.Lock()
	if h.unlocked {
		left = len(g.holds)
		g.mu.Unlock()
		return left, 0, &lockError{g.lock.name, ErrNotHeld, nil}
	}
	h.unlocked = true
	if g.counting != nil {
		g.counting.changes++
	}
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
		if first.counts && first.under == 0 {
			ended = 1
		}
		if left == 0 {
			g.state = released
		}
	}
	g.mu.Unlock()
	for p := h; p != top; p = p.parent {
		p.cancel((*unlocked)(p))
	}
	return left, ended, err
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

// counting is the state of the requests for setting the hold count of a grant on the server. Guarded by
// grant.mu.
type counting struct {
	turn       chan struct{} // held during such a request. Capacity 1: a mutex to wait for with a context
	correcting bool          // a correction is to be made, and has not read the count yet
	changes    int           // counts changes to the holds, and requests of unknown effect
	told       int           // the value of changes certainly seen by the server: the count there is out of date while told < changes
	longest    time.Duration // the longest lease asked for
}

// counts returns the counting of the grant. mu is held.
func (g *grant) counts() *counting {
	if g.counting == nil {
		g.counting = &counting{turn: make(chan struct{}, 1), changes: 1, longest: g.lock.terms.lease} // of earlier holds, added and removed without a counting, the server knows nothing
	}
	return g.counting
}

// setCount sets the hold count on the server to the number of live holds, and the lease to
// the longest asked for. A single request at a time does so, for all changes before the request is sent.
func (g *grant) setCount(ctx context.Context, p request.Policy) error {
	p.Since = time.Now()
	g.mu.Lock()
	c := g.counts()
	mine := c.changes
	g.mu.Unlock()
	done, err := g.takeTurn(ctx, c.turn, p)
	if err != nil {
		return err
	}
	defer done()
	t, ok := g.total(mine)
	if !ok {
		g.check()
		return g.lossOrNil()
	}
	if g.lock.terms.retention > 0 {
		g.lock.queues.askAnew(g)
	}
	p.Total = min(p.Total, g.entry.Until().Sub(p.Since))
	a := send(ctx, g.lock, p, func(ctx context.Context, r lua.Runner) (lua.Released, error) {
		return g.lock.freed(g.lock.wire.SetCount(ctx, r, g.owner, t.lease, t.count))
	}, func(lua.Released, error) { g.correct() })
	if a.Doubt || a.Open {
		g.leaves(countUnderWay)
	}
	if t.count.Exclusive == 0 && !g.lock.terms.shared { // a downgrade: no message tells a writer waiting for this grant
		g.lock.withQueue((*queue).askFirst)
	}
	switch {
	case a.Err == nil:
		g.entry.Rearm(a.Sent, t.lease, t.fixed)
		g.mu.Lock()
		c.told = max(c.told, t.changes)
		g.mu.Unlock()
	case errors.Is(a.Err, lua.ErrNotOwner):
		g.lose(errGone)
	default:
		g.entry.Rearm(time.Time{}, t.lease, t.fixed) // renew as the live holds ask, but trust no later end of the window
	}
	if g.check() {
		return a.Err
	}
	return g.lossOrNil()
}

// errCounting says why a single attempt was not made.
var errCounting = errors.New("an earlier request about the hold count has got no answer yet")

// takeTurn waits until no goroutine sets the count, as long as ctx and p.Stop allow, and
// no longer than p.Total if p.Once is set. The turn is given back, by done, before the
// trusted window is over.
func (g *grant) takeTurn(ctx context.Context, turn chan struct{}, p request.Policy) (done func(), _ error) {
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

// total is the sum of the live holds of a grant.
type total struct {
	count   kind.Count
	lease   time.Duration // the longest
	fixed   bool          // no hold has the lease renewed
	changes int           // of the holds until then
}

// total returns the sum to tell the server after so many changes. ok is false if there is nothing to tell:
// the server knows by now, or the grant was joined, and the count is the holder's.
func (g *grant) total(changes int) (t total, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.counts()
	if c.told >= changes {
		return t, false
	}
	c.correcting = false
	if g.state != owned || len(g.holds) == 0 || g.lock.joined() { // a passed-on grant has no hold at first
		return t, false
	}
	t.changes = c.changes
	t.count.Exclusive = int(g.exclusives.Load())
	t.fixed = true
	together := 0 // 1 for all readers who share the grant: the server keeps, and renews, a key for each read hold
	for _, h := range g.holds {
		t.lease, t.fixed = max(t.lease, h.lock.terms.lease), t.fixed && h.lock.terms.fixed
		switch {
		case !h.lock.terms.shared:
		case h.parent == nil:
			together = 1
		default:
			t.count.Shared++
		}
	}
	t.count.Shared += together
	if g.left(proofGiven) { // processes may rely on the lease stated by the proof
		t.lease = max(t.lease, g.lock.terms.lease)
	}
	return t, true
}

// correct sets the count in the background, after an abandoned request may have set an outdated count.
func (g *grant) correct() {
	g.mu.Lock()
	c := g.counts()
	idle := !c.correcting
	c.correcting = true
	c.changes++
	g.mu.Unlock()
	if idle {
		g.lock.client.background(func() { _ = g.setCount(context.Background(), g.retry(g.lock.terms.lease)) })
	}
}

// retract takes back a nested hold after a failed request about the count.
func (g *grant) retract(h *Hold) {
	left, ended, err := g.remove(h)
	switch {
	case errors.Is(err, ErrLeaseLost) && left == 0: // the Unlocks of the earlier holds have left the rest to this Unlock
		g.lock.client.background(func() { g.releaseRest(context.Background()) })
	case err != nil:
	case left > 0:
		g.countReleased(context.Background(), ended, time.Now(), nil) // if the outer hold was unlocked meanwhile
		g.correct()
	default: // all further holds were unlocked meanwhile
		g.lock.client.background(func() { _ = g.release(context.Background(), ended) })
	}
}
