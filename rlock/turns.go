package rlock

import "time"

// order is how the goroutines of a client come to a lock: one after the other, or each by
// a place of its own on the server. queues.mu is held for all methods.
type order interface {
	// contends tells whether the waiter asks the server.
	contends(w *waiter) bool
	// obstacle returns the grant of its own client that the waiter waits for, nil if none.
	// It may release queues.mu, and takes it again.
	obstacle(w *waiter) *grant
	// untilAsk is the time that is left until a refused waiter asks again, if it hears
	// nothing.
	untilAsk(w *waiter, now time.Time) time.Duration
	// inherits tells whether a waiter takes over the place of one that leaves.
	inherits() bool
	// passes tells whether a grant may be passed on in memory once more.
	passes(g *grant, now time.Time) bool
	// next returns the waiter to pass g on to, nil if there is none, and the run that it
	// goes on with.
	next(q *queue, g *grant) (*waiter, run)
}

// turns is the order of all kinds but the fair one: the first waiter asks for all of its
// client. Whoever has the lock passes it on to the others within the budget of its options.
type turns struct{}

func (turns) contends(w *waiter) bool { return w.queue.waiters.first == w }

func (turns) obstacle(w *waiter) *grant {
	mine := w.queue.holder()
	if mine == nil {
		return nil
	}
	w.queues.mu.Unlock() // a grant that is found to be lost leaves the queue
	defer w.queues.mu.Lock()
	if mine.check() {
		return mine
	}
	return nil
}

func (turns) untilAsk(w *waiter, now time.Time) time.Duration { return w.askAt.Sub(now) }

func (turns) inherits() bool { return true }

// passes always allows the first hand-off, however long the holder took. Further ones need
// both: fewer than the budget has, and less time than it has since the run began.
func (turns) passes(g *grant, now time.Time) bool {
	budget := g.lock.handoff
	return g.run.count < budget.most && (g.run.count == 0 || now.Sub(g.run.began) < budget.longest)
}

func (turns) next(q *queue, g *grant) (*waiter, run) {
	for w := range q.waiters.all() {
		if w.takes(g.lock) {
			return w, g.run
		}
	}
	return nil, run{}
}
