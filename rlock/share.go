package rlock

import (
	"context"
	"slices"
	"time"
)

// Readers of a client share a grant, with a single owner on the server. Those that wait get the grant of
// the first (line.share); later ones join for a short time (Lock.shareGrant). 64 sharing readers take
// 1.2 µs for a Lock with its Unlock, 33 µs if each asks: BenchmarkReaders64, two cores.

// share gives a new grant to the waiting readers that can have it, besides the one it is for. The grant lasts until each of them has
// taken it and has unlocked, or has left. queues.mu is held.
func (ln *line) share(g *grant, besides *waiter) {
	if !g.lock.terms.shared || g.left(inDoubt) {
		return
	}
	for w, next := ln.first, (*waiter)(nil); w != nil; w = next {
		if next = w.next; w != besides && w.lock.shares(g.lock) {
			g.promise()
			w.serve(g, nil)
		}
	}
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
	if q == nil || q.waiting > 0 {
		return nil
	}
	for _, g := range q.grants {
		if l.shares(g.lock) && !g.left(inDoubt) && time.Since(g.run.began) < l.terms.handoff.longest {
			return g
		}
	}
	return nil
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
