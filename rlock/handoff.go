package rlock

import (
	"context"
	"slices"
	"time"
)

// run is the common state of one owner's grants that were handed off in memory, each to the next.
type run struct {
	count int       // hand-offs so far
	began time.Time // when the server was asked, or the message that granted the lock was read
	spare int64     // tokens that are reserved and not used yet

	// Of a fair lock: the next owners in the server's queue, and the owners of earlier hand-offs, whose
	// tickets the release removes.
	next, passed []string
}

// handOff hands the grant, whose last hold was unlocked, to the next goroutine in the queue. If nobody
// waits and the lock is kept, handOff parks the grant. It does neither, and returns false, if a request
// about the old holder might still reach the server, or be answered.
//
//	A's count of a nested hold is sent ─► A unlocks ─► the grant goes to B ─► the count arrives:
//	the owner is the same, so the count of A's holds stands for B's
func (g *grant) handOff() bool {
	l := g.lock
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	q := l.queues.byKey[l.key]
	if q == nil || q.writers.first == nil && q.kept == nil || l.client.closed.Load() { // nobody can take it
		return false
	}
	now := time.Now()
	inBudget, keeps := g.inBudget(now), q.kept.allows(g)
	if !inBudget && !keeps || !g.passable() {
		return false
	}
	switch next, r := q.next(g); {
	case next != nil:
		successor := g.passOn(q, next.lock, r, now)
		if successor != nil {
			next.give(successor)
		}
		return successor != nil
	case keeps && q.writers.first == nil:
		return g.park(q, now)
	}
	return false
}

// inBudget reports whether the grant may be handed off in memory once more. The first hand-off is always
// allowed, however long the holder took, unless the budget is zero. Further hand-offs are allowed while
// neither their number nor the time since the run began exceeds the budget. A fair lock needs no budget:
// the server would pass the lock to the same waiter.
func (g *grant) inBudget(now time.Time) bool {
	budget := g.lock.terms.handoff
	if g.lock.terms.fair {
		return len(g.run.next) > 0 && !g.lock.terms.fixed && budget.most >= 0
	}
	return g.run.count < budget.most && (g.run.count == 0 || now.Sub(g.run.began) < budget.longest)
}

// next returns the waiter for the hand-off of g, nil if there is none, and the run of the next grant. For
// a fair lock the waiter is the next in the server's queue, behind departed waiters: these take out their
// tickets themselves.
func (q *queue) next(g *grant) (*waiter, run) {
	if !g.lock.terms.fair {
		for w := q.writers.first; w != nil; w = w.behind {
			if w.takes(g.lock) {
				return w, g.run
			}
		}
		return nil, run{}
	}
	for ; len(g.run.next) > 0; g.run.next = g.run.next[1:] {
		switch w := q.tickets[g.run.next[0]]; {
		case w == nil:
		case w.takes(g.lock):
			r := g.run
			r.next, r.passed = r.next[1:], append(r.passed, w.place.attempt.owner)
			return w, r
		default:
			return nil, run{}
		}
	}
	return nil, run{}
}

// park keeps the grant for the next call of this client. queues.mu is held.
func (g *grant) park(q *queue, now time.Time) bool {
	successor := g.passOn(q, g.lock, g.run, now)
	if successor == nil {
		return false
	}
	q.kept.parked, q.kept.since, successor.began = successor, now, time.Time{}
	return true
}

// passable reports whether the grant may get another holder: there is a token for the new holder, and no
// request about the old holder is under way.
func (g *grant) passable() bool {
	return (!g.lock.terms.fenced || g.run.spare > 0) && !g.unsettled()
}

// passOn ends the grant and returns its successor for the next holder, whose lock is l. The successor has
// the same owner, and the rest of the lease. passOn returns nil if less is left than half of the initial
// lease: otherwise a run of short holds could go on without noticing the loss of the lease. It also
// returns nil if the lease was set by a nested hold with other options, unlocked last. queues.mu is held.
func (g *grant) passOn(q *queue, l *Lock, r run, now time.Time) *grant {
	successor := l.newGrant(g.owner)
	successor.token, successor.sent, successor.initialLease = g.token, g.sent, g.initialLease
	successor.state, successor.began, successor.run = owned, now, r
	successor.run.count++
	successor.exclusives.Store(1) // the next holder's hold
	if l.terms.fenced {
		successor.token++
		successor.run.spare--
	}
	successor.mu.Lock() // OnLost waits until the grant is complete
	defer successor.mu.Unlock()
	entry, ok := g.entry.Pass(successor, successor.lose, now, g.initialLease/2, g.lock.terms.lease)
	if !ok {
		return nil
	}
	successor.entry = entry
	if i := slices.Index(q.grants, g); i >= 0 {
		q.grants[i] = successor
	} else {
		q.grants = append(q.grants, successor)
	}
	return successor
}

// unsettled reports whether a request about the grant may still be executed or answered. The last hold is
// unlocked, so no new request begins.
func (g *grant) unsettled() bool {
	if g.left(inDoubt | underWay | countUnderWay | proofGiven) {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.counting
	return c != nil && (c.correcting || len(c.turn) > 0)
}

// takes reports whether the waiter can be given a grant of l. queues.mu is held.
func (w *waiter) takes(l *Lock) bool {
	return (w.state == waiterBlocked || w.state == waiterQueued) && w.lock.takes(l)
}

// adopt adds a hold of the lock by to a given grant.
func (g *grant) adopt(ctx context.Context, by *Lock) (context.Context, *Hold, error) {
	h := &g.first
	if h.grant != nil { // another reader's
		h = new(Hold)
	}
	held, hold := g.derive(ctx, h, by, nil)
	g.check() // the lease may have ended, if this process stood still
	g.mu.Lock()
	loss := g.loss
	if loss == nil {
		if g.began.IsZero() {
			g.began = time.Now()
		}
		g.put(hold)
		if by.terms.shared {
			g.followers--
		} else {
			g.exclusives.Add(-1) // passOn has counted the hold
		}
	}
	g.mu.Unlock()
	if loss != nil {
		hold.cancel(loss)
		return ctx, nil, loss
	}
	if g.lock.client.closed.Load() { // too late for Close to see this hold
		g.interrupt(ErrClosed)
	}
	return held, hold, nil
}

// pass hands an unused grant to the next waiter, or releases the grant.
func (g *grant) pass() {
	if g.giveUp() && !g.handOff() {
		g.releaseEmpty()
	}
}

// drop releases an unused grant, whoever waits.
func (g *grant) drop() {
	if g.giveUp() {
		g.releaseEmpty()
	}
}

// giveUp ends an unused grant. It returns false if the grant was lost before.
func (g *grant) giveUp() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state != owned {
		return false
	}
	g.state = released
	return true
}

func (g *grant) releaseEmpty() {
	g.lock.client.background(func() { _ = g.release(context.Background(), 0) })
}
