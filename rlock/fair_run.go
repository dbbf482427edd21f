package rlock

// A fair lock is handed off in memory to the owner that the server would have passed it to: the message that granted the
// lock names the owners behind, and the release says who has had the lock since.

// goesOn reports whether a fair lock may be handed off in memory once more. It needs no budget: the server would pass the
// lock to the same waiter.
func (g *grant) goesOn() bool {
	return len(g.run.next) > 0 && !g.lock.terms.fixed && g.lock.terms.handoff.most >= 0
}

// nextInTurn is queue.next for a fair lock. The waiter is the next in the server's queue, behind departed waiters: these
// take out their tickets themselves.
func (q *queue) nextInTurn(g *grant) (*waiter, run) {
	for ; len(g.run.next) > 0; g.run.next = g.run.next[1:] {
		switch a := q.tickets[g.run.next[0]]; {
		case a == nil:
		case !a.asking && a.first != nil && a.first.lock.takes(g.lock):
			r := g.run
			r.next, r.passed = r.next[1:], append(r.passed, a.owner.name)
			return a.first, r
		default:
			return nil, run{}
		}
	}
	return nil, run{}
}

// sweepPassed removes the tickets of owners passed in memory when the grant is lost: otherwise the server may grant the
// lock to such an owner. A release removes them itself: see alsoEnds.
func (g *grant) sweepPassed() {
	for _, owner := range g.run.passed {
		g.lock.leftBy(owner, false).withTicket().sweep()
	}
}
