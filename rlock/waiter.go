package rlock

import (
	"context"
	"slices"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// waiter is a call that waits for a lock, from its arrival in the queue until success or giving up.
// queues.mu guards every field that changes.
//
//	             ┌──────── the first in the queue left, or the grant of this client ended
//	             ▼
//	blocked ──► asking ──► queued ──► owns, or gives up
//	   │          ▲           │
//	   │          └───────────┤ a message without a grant, doubt, or time
//	   └──────► given ◄───────┘ a hand-off
//
// A waiter begins as asking if nobody is there, otherwise as blocked. An asking waiter is given no grant,
// because its own request may be granted.
type waiter struct {
	lock           *Lock
	queue          *queue
	before, behind *waiter   // in the queue; nil at its ends
	since          time.Time // when the call began
	served         bool      // the call is for a multi lock, and another member was asked for with success

	state waiterState
	grant *grant        // while the state is given or owns
	woken chan struct{} // brings wake-ups, merged; made when the waiter first has to sleep

	again bool      // an event whose outcome only a request can tell: ask as soon as possible
	askAt time.Time // when to ask if nothing happens
	place place

	course course
}

// waiterState says what a waiter is doing.
type waiterState int

const (
	waiterBlocked waiterState = iota // another waiter is before, or the client has the lock
	waiterAsking                     // a request is under way, or about to be made
	waiterQueued                     // refused: the waiter sleeps until an event
	waiterGiven                      // handed a grant, not yet taken
	waiterOwns                       // has the lock
)

// place is the waiter's attempt and its place on the server.
type place struct {
	attempt   *grant // the object of the waiter's requests; nil before the first request
	queuedAt  moment // when the owner's newest ticket was taken; zero if there was none
	lua.Place        // of the attempt's owner in the server's queue, from the newest refusal; zero if the owner has no ticket

	message lua.Message // the newest message that grants the lock to the owner, until looked at
	silent  int         // refusals in a row while no message could arrive
}

// course is the reported course of a wait.
type course struct {
	tries int // requests
	by    Wakeups
}

// slept reports whether the waiter ever had to sleep.
func (w *waiter) slept() bool { return w.woken != nil }

// wake wakes the waiter, if asleep. An awake waiter looks at the queue before its next sleep. queues.mu
// is held.
func (w *waiter) wake() {
	if w.woken != nil {
		select {
		case w.woken <- struct{}{}:
		default:
		}
	}
}

// lane returns the waiter's lane.
func (w *waiter) lane() *lane {
	if w.lock.terms.shared {
		return &w.queue.readers
	}
	return &w.queue.writers
}

// contends reports whether the waiter asks the server. The first waiter of a lane asks for all; each waiter
// for a fair lock asks, as each ticket has a separate place, and so does a reader who cannot share the
// grant of the first. queues.mu is held.
func (w *waiter) contends() bool {
	first := w.lane().first
	return first == w || w.lock.terms.fair || w.lock.terms.shared && !w.lock.shares(first.lock)
}

// gets notes that the waiter has a grant: state is waiterGiven or waiterOwns. queues.mu is held.
func (w *waiter) gets(state waiterState, g *grant) {
	w.state, w.grant = state, g
	w.queue.waiting--
}

// give hands a grant to the waiter. queues.mu is held.
func (w *waiter) give(g *grant) {
	w.gets(waiterGiven, g)
	w.wake()
}

// await waits for the waiter's turn to ask, or for a hand-off. The error says why neither happened.
func (w *waiter) await(ctx context.Context) error {
	w.lock.queues.mu.Lock()
	if w.lock.client.closed.Load() { // too late for Close to wake this waiter
		w.lock.queues.mu.Unlock()
		return w.lock.isClosed()
	}
	if w.contends() || w.state == waiterGiven {
		w.lock.queues.mu.Unlock()
		return nil
	}
	if w.woken == nil {
		w.woken = make(chan struct{}, 1)
	}
	w.lock.queues.mu.Unlock()
	select { // few cases: each takes memory during the wait
	case <-w.woken:
		if w.lock.client.closed.Load() {
			return w.lock.isClosed()
		}
		return nil
	case <-ctx.Done():
		return w.givenUp(ctx)
	}
}

// sleep waits for d, or until an event for the waiter.
func (w *waiter) sleep(wait context.Context, d time.Duration) (err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.woken:
	case <-timer.C:
		w.lock.queues.mu.Lock()
		w.course.by.TTL++
		w.lock.queues.mu.Unlock()
	case <-w.lock.client.closing:
		err = w.lock.isClosed()
	case <-wait.Done():
		err = w.givenUp(wait)
	}
	return err
}

// givenUp is the error of a waiter whose context ended before a grant.
func (w *waiter) givenUp(ctx context.Context) error {
	refusal, trouble := w.refused(ctx)
	switch {
	case refusal != nil: // newer than any failure, or this client holds the lock
		return refusal
	case trouble != nil:
		return w.lock.givenUp(ctx, trouble)
	}
	return &NotAcquiredError{Name: w.lock.name, Err: ended(ctx)}
}

// mustAsk makes the waiter ask as soon as possible. queues.mu is held.
func (w *waiter) mustAsk() {
	w.again = true
	w.wake()
}

// leave takes the waiter out of the queue. The next waiter takes over the ticket on the server, if usable
// for its options; otherwise the ticket is withdrawn.
func (w *waiter) leave() {
	qs, q := w.lock.queues, w.queue
	qs.mu.Lock()
	lane := w.lane()
	left, wasFirst := w.disown(), lane.first == w
	var given *grant
	switch w.state {
	case waiterGiven:
		given = w.grant
	case waiterOwns:
	default:
		q.waiting--
	}
	if wasFirst {
		lane.first = w.behind
	} else {
		w.before.behind = w.behind
	}
	if w.behind == nil {
		lane.last = w.before
	} else {
		w.behind.before = w.before
	}
	w.before, w.behind = nil, nil
	if next := lane.first; next == nil {
		qs.tidy(q)
	} else {
		if left != nil && next.takeOver(left, w) {
			left = nil
		}
		// The end of an unshared grant will wake the next waiter.
		if wasFirst && (w.lock.terms.shared || w.state != waiterOwns || !slices.Contains(q.grants, w.grant)) {
			next.wake()
		}
		if wasFirst && q.news.trouble != nil { // this waiter may have been asking for all
			next.mustAsk()
		}
	}
	qs.mu.Unlock()
	if left != nil {
		left.abandon(false)
	}
	switch {
	case given == nil:
	case w.lock.terms.shared:
		given.forgo()
	default:
		given.pass()
	}
}

// disown detaches the attempt, and returns the attempt if it must be withdrawn on the server: not when
// the attempt became the grant, nor when its ticket is among those passed by the grant, whose release
// removes the ticket. queues.mu is held.
func (w *waiter) disown() *grant {
	g := w.place.attempt
	if g == nil {
		return nil
	}
	delete(w.queue.tickets, g.owner)
	w.place.attempt = nil
	if w.state == waiterOwns && (g == w.grant || slices.Contains(w.grant.run.passed, g.owner)) {
		return nil
	}
	if m := w.place.message; m.Granted { // the owner may hold the lock by this message
		g.accept(m)
		g.leaves(someTicket) // also if the answer to the request is still under way
	}
	return g
}

// renounce gives up a grant that came too late to be held. The waiter goes on waiting. Its attempt is
// dropped if the release of that grant ends the attempt as well: the attempt is the grant, or the
// attempt's ticket is among those that the grant has passed.
func (w *waiter) renounce(g *grant) {
	w.lock.queues.mu.Lock()
	defer w.lock.queues.mu.Unlock()
	w.state, w.grant = waiterBlocked, nil
	w.queue.waiting++
	if own := w.place.attempt; own != nil && (own == g || slices.Contains(g.run.passed, own.owner)) {
		delete(w.queue.tickets, own.owner)
		w.place = place{}
	}
}

// takeOver makes the waiter go on with the attempt of a leaving waiter, and with its place on the server.
// It returns false if the two want the lock with different options. queues.mu is held.
func (w *waiter) takeOver(g *grant, from *waiter) bool {
	if w.lock.terms.fair || w.place.attempt != nil || !from.place.Held() || !w.lock.takes(from.lock) {
		return false
	}
	w.place, w.askAt, w.again = from.place, from.askAt, from.again || from.state == waiterAsking
	w.place.attempt = g
	if w.state == waiterBlocked { // not if the waiter has a grant by now
		w.state = waiterQueued
	}
	w.queue.tickets[g.owner] = w
	w.wake()
	return true
}

// takes reports whether a grant of other has the terms of l. A fixed lease serves a single call.
func (l *Lock) takes(other *Lock) bool { return l.terms == other.terms && !l.terms.fixed }
