package rlock

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Defaults of [WithHandoff].
const (
	DefaultHandoffs    = 1024
	DefaultHandoffTime = 2 * time.Millisecond
)

// WithHandoff bounds how often, and for how long, the goroutines of a client pass
// a renewed lock on among themselves, in memory and without a round trip, before
// it is released on the server and other processes get their turn. One hand-off
// is always allowed, however long the holder took; zero of either bound means
// its default. Goroutines whose lock has other options than the holder's are not
// given its grant.
func WithHandoff(most int, longest time.Duration) LockOption {
	return func(l *Lock) {
		l.handoff = handoff{most, longest}
		if most < 0 || longest < 0 {
			l.refuse(fmt.Errorf("WithHandoff: %d within %v: neither may be negative", most, longest))
		}
	}
}

// WithoutHandoff has every last Unlock release the lock on the server.
func WithoutHandoff() LockOption {
	return func(l *Lock) { l.handoff = handoff{most: -1} }
}

// handoff is the budget of a lock for hand-offs in a row.
type handoff struct {
	most    int // negative: none
	longest time.Duration
}

func (h handoff) withDefaults(fixed bool) handoff {
	if h.most < 0 || fixed {
		return handoff{}
	}
	return handoff{cmp.Or(h.most, DefaultHandoffs), cmp.Or(h.longest, DefaultHandoffTime)}
}

// spareTokens is how many tokens a grant reserves beside its own: none if nobody
// waits to whom it could be passed on. gates.mu is held.
func (s *seat) spareTokens() int64 {
	if !s.lock.fenced || len(s.gate.queue) < 2 {
		return 0
	}
	return int64(s.lock.handoff.most)
}

// chain is what grants have in common that were passed on, one to the next: the
// owner on the server.
type chain struct {
	links int       // hand-offs so far
	began time.Time // when the server was asked
	spare int64     // tokens reserved and not used yet

	// Of a fair lock: the owners to whom the server would give it next, and those to
	// whom it was passed on, who stand in the queue there until the release.
	next, heirs []string
}

// handOff passes the grant, whose last hold was unlocked, on to the next goroutine
// in the queue. It does not if the server might not agree, or if a request about
// the old holder might reach it after the new one has come; nor if the window is
// half over, so that a chain of short holds does not keep the loss of the lease
// from being noticed.
func (g *grant) handOff() bool {
	l, c := g.lock, g.lock.client
	now := time.Now()
	if !g.chain.within(l, now) || g.doubted || g.unsure.Load() || l.fenced && g.chain.spare == 0 || c.closed.Load() || g.counting() {
		return false
	}
	l.gates.mu.Lock()
	defer l.gates.mu.Unlock()
	gate := l.gates.byKey[l.protocol.key()]
	next := gate.taker(g)
	if next == nil {
		return false
	}
	heir := next.lock.newGrant(g.owner)
	heir.sent, heir.token, heir.chain, heir.state, heir.began, heir.armed = g.sent, g.token, g.chain, owned, now, g.armed
	heir.chain.links++
	heir.exclusives.Store(1) // of the hold that is to come
	if l.fenced {
		heir.token++
		heir.chain.spare--
	}
	heir.mu.Lock() // OnLost waits until the grant is complete
	defer heir.mu.Unlock()
	entry, ok := g.entry.Pass(heir, heir.lose, now, g.armed/2)
	if !ok {
		return false
	}
	heir.entry = entry
	if l.apart {
		heir.chain.next, heir.chain.heirs = g.chain.next[1:], append(g.chain.heirs, next.owner)
	}
	gate.replace(g, heir)
	next.given, next.open = heir, false
	next.rouse()
	return true
}

// within tells whether the budget of l allows one more hand-off. A fair lock needs
// none: it goes to whom it would go to in any case.
func (c *chain) within(l *Lock, now time.Time) bool {
	switch {
	case l.handoff.most < 0:
		return false
	case l.apart:
		return len(c.next) > 0 && !l.fixed
	}
	return c.links < l.handoff.most && (c.links == 0 || now.Sub(c.began) < l.handoff.longest)
}

// counting tells whether a request that sets the count is under way, or about to
// be. The grant's last hold is unlocked, so that none begins any more.
func (g *grant) counting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.correcting || len(g.turn) > 0
}

// taker returns the first seat that can be given what before has. gates.mu is held.
func (g *gate) taker(before *grant) *seat {
	if g == nil {
		return nil
	}
	l := before.lock
	if l.apart {
		return l.gates.called(before)
	}
	for _, s := range g.queue {
		if s.takes(l) {
			return s
		}
	}
	return nil
}

// called returns the seat of the owner whose turn it is after g, and forgets those
// who have left. gates.mu is held.
func (gs *gates) called(g *grant) *seat {
	for ; len(g.chain.next) > 0; g.chain.next = g.chain.next[1:] {
		s := gs.apart[g.chain.next[0]]
		switch {
		case s == nil: // it has left, and takes its ticket out itself
		case s.takes(g.lock):
			return s
		default:
			return nil
		}
	}
	return nil
}

// takes tells whether the seat can be given a grant of l. gates.mu is held.
func (s *seat) takes(l *Lock) bool {
	return s.open && s.lock.lease == l.lease && s.lock.fenced == l.fenced && s.lock.replicas == l.replicas && s.lock.handoff == l.handoff && !s.lock.fixed
}

// take returns the grant that the seat was given, if it was, and closes the seat.
// gates.mu is held.
func (s *seat) take() *grant {
	g := s.given
	s.given, s.open = nil, false
	return g
}

// adopt adds the first hold to a grant that was passed on.
func (g *grant) adopt(ctx context.Context) (context.Context, *Hold, error) {
	held, hold := g.derive(ctx, &g.first, g.lock, nil)
	g.check() // this process may have stood still
	g.mu.Lock()
	loss := g.loss
	if loss == nil {
		g.holds = append(g.holds, hold)
	}
	g.mu.Unlock()
	if loss != nil {
		hold.cancel(loss)
		return ctx, nil, loss
	}
	if g.lock.client.closed.Load() { // too late for Close to see it
		g.interrupt(ErrClosed)
	}
	return held, hold, nil
}

// pass gives away a grant that nobody took.
func (g *grant) pass() {
	g.mu.Lock()
	over := g.state != owned
	if !over {
		g.state = released
	}
	g.mu.Unlock()
	if !over && !g.handOff() {
		g.lock.client.background(func() { _ = g.release(context.Background()) })
	}
}
