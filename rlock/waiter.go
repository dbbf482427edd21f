package rlock

import (
	"context"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/fifo"
	"github.com/go-rlock/rlock/lua"
)

// waiter is a call that waits for a lock, from its arrival in the queue until it has
// the lock or gives up. queues.mu guards every field that changes.
type waiter struct {
	queues *queues
	queue  *queue
	lock   *Lock
	fifo.Waiter[waiter, *grant]
	course

	again bool      // something has happened whose outcome only a request can tell: ask as soon as possible
	askAt time.Time // when to ask if nothing happens

	attempt *grant   // what its requests ask for; nil before the first of them
	place   standing // of the attempt's owner in the server's queue
}

// standing is the place of an owner in the server's queue.
type standing struct {
	lua.Place // as the newest refusal has told it; the zero value if the owner has no ticket

	message lua.Message // the newest message that grants the lock to the owner, until it is looked at
	silent  int         // refusals in a row while no message could arrive
}

// contends reports whether the waiter asks the server. The first waiter of a client asks for all;
// each waiter for a fair lock asks, as its ticket has a place of its own. queues.mu is held.
func (w *waiter) contends() bool { return w.lock.fair || w.queue.First() == w }

// await waits until it is the waiter's turn to ask, or it is handed a grant. The error
// says why neither happened.
func (w *waiter) await(ctx context.Context) error {
	w.queues.mu.Lock()
	if w.contends() {
		w.queues.mu.Unlock()
		return nil
	}
	wake := w.C()
	w.slept = true
	w.queues.mu.Unlock()
	select { // few cases: each takes memory while it waits
	case <-wake:
		if w.lock.client.closed.Load() {
			return w.lock.isClosed()
		}
		return nil
	case <-ctx.Done():
		return w.givenUp(ctx)
	}
}

// sleep waits for d, or until something happens that concerns the waiter.
func (w *waiter) sleep(wait context.Context, d time.Duration) (err error) {
	w.queues.mu.Lock()
	wake := w.C()
	w.slept = true
	w.queues.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
		w.queues.mu.Lock()
		w.by.TTL++
		w.queues.mu.Unlock()
	case <-w.lock.client.closing:
		err = w.lock.isClosed()
	case <-wait.Done():
		err = w.givenUp(wait)
	}
	return err
}

// givenUp is the error of a waiter whose context ended before it had the lock.
func (w *waiter) givenUp(ctx context.Context) error {
	refusal, trouble := w.refused(ctx)
	switch {
	case refusal != nil: // newer than any failure, or this client itself holds the lock
		return refusal
	case trouble != nil:
		return w.lock.givenUp(ctx, trouble)
	}
	return &NotAcquiredError{Name: w.lock.name, Err: ended(ctx)}
}

// mustAsk makes the waiter ask as soon as it can. queues.mu is held.
func (w *waiter) mustAsk() {
	w.again = true
	w.Wake()
}

// leave takes the waiter out of the queue. The next waiter takes over its ticket on the
// server, if it can use that; otherwise the ticket is withdrawn.
func (w *waiter) leave() {
	qs, q := w.queues, w.queue
	qs.mu.Lock()
	given, left := w.Given, w.disown()
	wasFirst := q.First() == w
	q.Leave(&w.Waiter)
	if next := q.First(); next == nil {
		qs.tidy(q)
	} else {
		if left != nil && next.takeOver(left, w) {
			left = nil
		}
		// The end of a grant that nobody shares will be told to the next.
		if wasFirst && (w.lock.shared || !slices.Contains(q.Grants, w.Got)) {
			next.Wake()
		}
		if wasFirst && q.trouble != nil { // it may have been asking for all
			next.mustAsk()
		}
	}
	qs.mu.Unlock()
	if left != nil {
		left.abandon(false)
	}
	if given != nil {
		given.pass()
	}
}

// disown takes the attempt from the waiter, and returns it if it has to be withdrawn on the
// server. It need not be if the waiter got the lock by it, or by a grant whose release removes
// this ticket. queues.mu is held.
func (w *waiter) disown() *grant {
	g := w.attempt
	if g == nil {
		return nil
	}
	delete(w.queue.tickets, g.owner)
	w.attempt = nil
	if g == w.Got || w.Got != nil && slices.Contains(w.Got.run.passed, g.owner) {
		return nil
	}
	if m := w.place.message; m.Granted { // the owner may hold the lock by this message
		g.accept(m)
		g.leftTicket = true // also if the answer to the request is still under way
	}
	return g
}

// renounce gives up a grant that came too late to be held. The waiter goes on waiting. Its
// attempt is dropped if the release of that grant ends it as well: it is the grant itself,
// or its ticket is among those that the grant has passed.
func (w *waiter) renounce(g *grant) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	if w.Got = nil; w.attempt != nil && (w.attempt == g || slices.Contains(g.run.passed, w.attempt.owner)) {
		delete(w.queue.tickets, w.attempt.owner)
		w.attempt, w.place = nil, standing{}
	}
	w.State = fifo.Blocked
}

// takeOver makes the waiter go on with the attempt of one that leaves, and with its place on
// the server. It returns false if the two want the lock with different options. queues.mu is
// held.
func (w *waiter) takeOver(g *grant, from *waiter) bool {
	if w.lock.fair || w.attempt != nil || !from.place.Held() || !w.lock.takes(from.lock) {
		return false
	}
	w.attempt, w.place, w.askAt, w.again = g, from.place, from.askAt, from.again || from.State == fifo.Asking
	w.State = fifo.Queued
	w.queue.tickets[g.owner] = w
	w.Wake()
	return true
}

// takes reports whether a grant of other has the terms that l asks for. A fixed lease runs for one
// call only.
func (l *Lock) takes(other *Lock) bool { return l.terms == other.terms && !l.fixed }
