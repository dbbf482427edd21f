package rlock

import "time"

// run is the common state of one owner's grants that were handed off in memory, each to the next.
type run struct {
	count int       // hand-offs so far
	began time.Time // when the server was asked, or the message that granted the lock was read
	spare int64     // tokens that are reserved and not used yet

	// Of a fair lock, see fair_run.go: the next owners in the server's queue, and the owners of earlier
	// hand-offs, whose tickets the release removes.
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
	if q == nil || l.client.closed.Load() { // nobody can take it
		return false
	}
	if q.waiting == 0 {
		return q.park(g)
	}
	now := time.Now()
	if !g.inBudget(now) && !q.keeps(g) || !g.passable() {
		return false
	}
	next, r := q.next(g)
	if next == nil {
		return false
	}
	successor := g.passOn(q, next.lock, r, now)
	if successor == nil {
		return false
	}
	if l.terms.fair {
		next.asker.forget() // the release takes the ticket out
	}
	next.serve(successor, nil)
	return true
}

// inBudget reports whether the grant may be handed off in memory once more. The first hand-off is always
// allowed, however long the holder took, unless the budget is zero. Further hand-offs are allowed while
// neither their number nor the time since the run began exceeds the budget.
func (g *grant) inBudget(now time.Time) bool {
	budget := g.lock.terms.handoff
	if g.lock.terms.fair {
		return g.goesOn()
	}
	return g.run.count < budget.most && (g.run.count == 0 || now.Sub(g.run.began) < budget.longest)
}

// next returns the waiter for the hand-off of g, nil if there is none, and the run of the next grant.
func (q *queue) next(g *grant) (*waiter, run) {
	if g.lock.terms.fair {
		return q.nextInTurn(g)
	}
	for _, a := range q.askers {
		for w := a.first; w != nil; w = w.next {
			if w.lock.takes(g.lock) {
				return w, g.run
			}
		}
	}
	return nil, run{}
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
	token := g.token
	if r.count++; l.terms.fenced {
		token++
		r.spare--
	}
	successor := new(grant).init(l, g.from, g.sent, g.initialLease, token, r)
	successor.mu.Lock() // OnLost waits until the grant is complete
	defer successor.mu.Unlock()
	entry, ok := g.entry.Pass(successor, successor.lose, now, g.initialLease/2, g.lock.terms.lease)
	if !ok {
		return nil
	}
	successor.entry = entry
	q.replace(g, successor)
	return successor
}

// unsettled reports whether a request about the grant may still be executed or answered. The last hold is
// unlocked, so no new request begins.
func (g *grant) unsettled() bool {
	if g.from.doubt || g.left(countUnderWay|proofGiven) {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.told != nil
}

// spareTokens is the number of further fencing tokens asked for, for the next holders in this client. A
// kept lock may have many holders, so the grant asks for as many tokens as the server reserves ahead of
// the clock (lead in lua/token.lua). Otherwise the grant asks only while somebody waits, for no more than
// the budget's time allows: a hand-off takes at least a microsecond.
func (l *Lock) spareTokens(othersWait bool) int64 {
	switch {
	case l.terms.retention > 0:
		return maxHandoffs
	case !othersWait || l.terms.handoff.most <= 0:
		return 0
	}
	return min(int64(l.terms.handoff.most), max(l.terms.handoff.longest.Microseconds(), 1))
}

// takes reports whether a grant of other has the terms of l. A fixed lease serves a single call.
func (l *Lock) takes(other *Lock) bool { return l.terms == other.terms && !l.terms.fixed }
