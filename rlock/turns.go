package rlock

import "time"

// order is how the goroutines of a client come to a lock: one asks the server for all
// (turns), or each asks for itself (fairOrder). queues.mu is held for all methods.
type order interface {
	// contends reports whether the waiter may ask the server.
	contends(w *waiter) bool
	// obstacle returns the grant of its own client that the waiter waits for, nil if none.
	// It may release queues.mu, and takes it again.
	obstacle(w *waiter) *grant
	// untilAsk is how long a refused waiter sleeps until it asks again, if no message
	// arrives.
	untilAsk(w *waiter, now time.Time) time.Duration
	// inherits reports whether a waiter takes over the ticket of one that leaves.
	inherits() bool
	// passes reports whether a grant may be passed on in memory once more.
	passes(g *grant, now time.Time) bool
	// next returns the waiter to pass g on to, nil if there is none, and the run that the
	// grant continues.
	next(q *queue, g *grant) (*waiter, run)
}

// turns is the order of all kinds but the fair one: the first waiter asks on behalf of all
// waiters of its client. A holder passes the lock on to them within the budget of its
// options.
type turns struct{}

func (turns) contends(w *waiter) bool { return w.queue.First() == w }

func (turns) obstacle(w *waiter) *grant {
	mine := w.queue.Holder()
	if mine == nil {
		return nil
	}
	w.queues.mu.Unlock() // check takes it if it finds that the grant is lost
	defer w.queues.mu.Lock()
	if mine.check() {
		return mine
	}
	return nil
}

func (turns) untilAsk(w *waiter, now time.Time) time.Duration { return w.askAt.Sub(now) }

func (turns) inherits() bool { return true }

// passes always allows the first hand-off, however long the holder took, unless the budget is
// zero. Further ones are allowed as long as neither their number nor the time since the run
// began exceeds the budget.
func (turns) passes(g *grant, now time.Time) bool {
	budget := g.lock.handoff
	return g.run.count < budget.most && (g.run.count == 0 || now.Sub(g.run.began) < budget.longest)
}

func (turns) next(q *queue, g *grant) (*waiter, run) {
	for w := range q.All() {
		if w.takes(g.lock) {
			return w, g.run
		}
	}
	return nil, run{}
}
