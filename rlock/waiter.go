package rlock

import (
	"context"
	"runtime/trace"
	"time"

	"github.com/go-rlock/rlock/internal/request"
)

// waiter is a call for a lock. If it has to wait it has a place in the line of an asker, and
// nothing else: it is in the line, or served.
type waiter struct {
	lock     *Lock
	ctx      context.Context // of the wait: requests have its values
	under    *Hold           // the innermost hold around the call; nil if its context owns no lock
	once     bool            // it does not wait
	answered bool            // for a multi lock, of which another member was asked for with success
	since    time.Time       // when the call began
	course   course
	region   *trace.Region // for package runtime/trace

	// Of the place. queues.mu guards what changes before served is closed.
	asker      *asker
	prev, next *waiter
	served     chan struct{} // closed when there is a grant or an error, and the waiter is out of the line; nil before it waits
	grant      *grant
	err        error
}

func newCall() any { return new(waiter) }

// free has a call that has ended used again: most calls take a free lock, or one at hand, and have no place in a line.
// Others may still know one that was in a line: see asker.askForLine.
func (w *waiter) free() {
	if calls := &w.lock.client.calls; w.served == nil {
		*w = waiter{}
		calls.Put(w)
	}
}

// course is the reported course of a wait.
type course struct {
	tries int // requests
	by    [wakeups]int64
}

// unanswered is the error of a call without an answer, for its lock to make a text of: methods of the error may
// be the application's, and are not called under the mutex.
type unanswered struct {
	error
	left bool // the context of the call has ended
}

// panicked is what a hook has panicked with in a request for a waiter.
type panicked struct {
	error
	value any
}

// enter returns a grant that is at hand, or takes the last place in a line. If nobody is there, and the client has no
// grant, it returns an asker instead: the call asks by itself at first.
func (qs *queues) enter(w *waiter) (*grant, *asker, error) {
	l := w.lock
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if l.client.closed.Load() { // too late for Close to see this call
		return nil, nil, l.isClosed()
	}
	q := qs.of(l.key)
	if mine := q.atHand(l); mine != nil {
		return mine, nil, nil
	}
	a, begins := q.asker(w)
	q.waiting++
	q.news.served = q.news.served || len(q.grants) > 0
	if begins && a.asking {
		return nil, a, nil
	}
	a.push(w, false)
	if begins {
		a.turn()
	}
	return nil, nil, nil
}

// push adds a waiter: the last, or the first if it has asked by itself already. queues.mu is held.
func (a *asker) push(w *waiter, first bool) {
	w.asker, w.prev, w.next, w.served, w.grant, w.err = a, nil, nil, make(chan struct{}), nil, nil
	if first {
		w.next = a.first
	} else {
		w.prev = a.last
	}
	if w.prev == nil {
		a.first = w
	} else {
		w.prev.next = w
	}
	if w.next == nil {
		a.last = w
	} else {
		w.next.prev = w
	}
	if w.under != nil {
		a.queue.suspect(w)
	}
}

// waits reports whether the waiter is in the line. queues.mu is held.
func (w *waiter) waits() bool { return w.grant == nil && w.err == nil }

// serve takes a waiter out of the line, with a grant or an error. queues.mu is held.
func (w *waiter) serve(g *grant, err error) {
	a := w.asker
	if w.prev == nil {
		a.first, a.silent = w.next, 0 // refusals are counted for the first
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		a.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.lock.queues.hot.waited(w, a.queue.waiting)
	a.out(w)
	w.grant, w.err = g, err
	close(w.served)
	a.left()
}

// give hands a new grant to the first waiter with its terms, and to all readers who share it, or gives the grant back if
// all have left. queues.mu is held.
func (a *asker) give(g *grant) {
	w := a.first
	for w != nil && w.lock.terms != g.lock.terms {
		w = w.next
	}
	if w == nil {
		g.lock.client.background(g.forgo)
		return
	}
	if g.lock.terms.shared {
		a.share(g, w) // before w can unlock
	}
	w.serve(g, nil)
}

// wait waits to be served.
func (w *waiter) wait() (*grant, error) {
	select { // few cases: each takes memory during the wait
	case <-w.served:
	case <-w.ctx.Done():
		w.leave()
	}
	if w.err != nil {
		return nil, w.lock.failure(w.ctx, w.err)
	}
	return w.grant, nil
}

// leave takes out a waiter whose context has ended. It forgoes a grant of that very moment.
func (w *waiter) leave() {
	qs, end := w.lock.queues, ended(w.ctx)
	qs.mu.Lock()
	g := w.grant
	if w.waits() {
		w.serve(nil, w.lock.why(w.asker.queue, w.since, end, &NotAcquiredError{Name: w.lock.name, Err: end}))
	}
	if g != nil {
		w.err = &NotAcquiredError{Name: w.lock.name, Err: end}
	}
	qs.mu.Unlock()
	if g != nil {
		g.forgo()
	}
}

// why is the error of a call that began at began and gives up: its own client holds the lock (known without the server), or grants
// have too few replicas, or else the newest refusal; unknown if nothing is known. queues.mu is held.
func (l *Lock) why(q *queue, began time.Time, end, unknown error) error {
	n := &q.news
	mine, short := q.holder(), error(nil)
	if l.terms.replicas.n > 0 {
		short = n.short.of(l.name, l.terms.replicas.n, end)
	}
	switch {
	case mine != nil:
		return l.refusal(mine.owner, time.Until(mine.entry.Until())).because(end)
	case short != nil: // the present owner may be about to give the lock up for the same reason
		return short
	case n.refusal != nil: // newer than any failure
		return n.refusal.because(end)
	case n.trouble != nil:
		return unanswered{n.trouble, true}
	case n.newest.IsZero() && time.Since(began) >= answerTime: // another call asks for all
		return unanswered{request.ErrNoAnswer, true}
	}
	return unknown
}

// failure makes the error of a call of one that was noted under the mutex.
func (l *Lock) failure(ctx context.Context, err error) error {
	switch e := err.(type) {
	case unanswered:
		if e.left {
			return l.givenUp(ctx, e.error)
		}
		return l.failed(e.error)
	case panicked:
		panic(e.value)
	}
	return err
}
