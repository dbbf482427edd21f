package rlock

import (
	"slices"
	"time"
)

// Readers of a client share a grant, with a single owner on the server. Those that wait get the grant of
// the first (asker.share); later ones join for a short time (queue.shareable). 64 sharing readers take
// 1.2 µs for a Lock with its Unlock, 33 µs if each asks: BenchmarkReaders64, two cores.

// share gives a new grant to the waiting readers that can have it, besides the one it is for. The grant lasts until each of them has
// taken it and has unlocked, or has left. queues.mu is held.
func (a *asker) share(g *grant, besides *waiter) {
	if g.from.doubt {
		return
	}
	for w, next := a.first, (*waiter)(nil); w != nil; w = next {
		if next = w.next; w != besides && w.lock.shares(g.lock) {
			g.promise()
			w.serve(g, nil)
		}
	}
}

// promise gives the grant to one more call. queues.mu is held.
func (g *grant) promise() {
	g.mu.Lock()
	g.followers++
	g.mu.Unlock()
}

// shares reports whether readers of l and of other can share a grant.
func (l *Lock) shares(other *Lock) bool {
	return l.terms.shared && other.terms.shared && l.terms.handoff.longest > 0 && !other.terms.fixed && other.terms.fenced == l.terms.fenced && other.terms.lease == l.terms.lease && l.terms.limits == (limits{}) && other.terms.limits == (limits{})
}

// shareable returns a grant of another reader of this client for a reader of l to take, without a round trip: only for
// a short time after the request for that grant, and not while a goroutine waits. Otherwise readers could follow each
// other without the server's knowledge, and keep out a waiting writer of any process. queues.mu is held.
func (q *queue) shareable(l *Lock) *grant {
	if q.waiting > 0 {
		return nil
	}
	for _, g := range q.grants {
		if l.shares(g.lock) && !g.from.doubt && time.Since(g.run.began) < l.terms.handoff.longest && g.expects(l) {
			return g
		}
	}
	return nil
}

// expects gives the grant to one more reader, of l, if it is not over, and is renewed as this reader wants it.
func (g *grant) expects(l *Lock) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	renewed := g.followers > 0 || slices.ContainsFunc(g.holds, func(h *Hold) bool { return h.renewsFor(l) })
	if g.state != owned || !renewed {
		return false
	}
	g.followers++
	return true
}

// readers is how many shared holds the server counts: one for all readers who share the grant, because it keeps and
// renews a key for each read hold, and one for each nested read hold. mu is held.
func (g *grant) readers() (n int) {
	together := 0
	for _, h := range g.holds {
		switch {
		case !h.lock.terms.shared:
		case h.parent == nil:
			together = 1
		default:
			n++
		}
	}
	return n + together
}

// covered reports whether the server need not be told of the end of h: another reader shares the grant,
// and has the lease renewed as h does.
func (h *Hold) covered() bool {
	g, first := h.grant, h.first()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.followers > 0 || slices.ContainsFunc(g.holds, func(other *Hold) bool { return other.first() != first && other.renewsFor(h.lock) })
}

// renewsFor reports whether the renewal for h is enough for a hold of l.
func (h *Hold) renewsFor(l *Lock) bool {
	return !h.lock.terms.fixed && h.lock.terms.lease >= l.terms.lease
}
