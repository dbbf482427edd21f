package rlock

import (
	"context"
	"time"
)

// join lets a reader into the grant of another reader of this client, in memory and
// without a round trip, as a hand-off is. It does so only for a short while after the
// server was asked for that grant, and not while somebody queues here: a writer who
// waits, in whatever process, must not be kept out by readers who follow each other
// without the server's knowing. There is no hold then if join cannot.
func (l *Lock) join(ctx context.Context) (context.Context, *Hold) {
	g := l.client.gates.joinable(l)
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

// joinable returns a grant that a reader of l may join.
func (gs *gates) joinable(l *Lock) *grant {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gate := gs.byKey[l.protocol.key()]
	if gate == nil || gate.queue.Len() > 0 {
		return nil
	}
	for _, g := range gate.holders {
		of := g.lock
		if of.shared && !g.doubted && time.Since(g.chain.began) < l.handoff.longest && of.fenced == l.fenced && of.lease == l.lease && !of.fixed {
			return g
		}
	}
	return nil
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
	return false
}

// first returns the outermost hold of the grant that h was taken under.
func (h *Hold) first() *Hold {
	for h.parent != nil {
		h = h.parent
	}
	return h
}
