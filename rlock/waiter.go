package rlock

import (
	"context"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/lua"
)

// waiter is a call that waits for a lock, from its arrival in the queue until it has
// the lock or gives up. queues.mu guards all of it but what never changes.
type waiter struct {
	queues *queues
	queue  *queue
	lock   *Lock
	neighbours
	course
	wakeup

	state waiterState
	again bool      // something has happened that only a request can tell: ask as soon as possible
	askAt time.Time // when to ask if nothing happens

	attempt *grant   // asks the server; nil before the first request
	place   standing // of the attempt's owner in the server's queue
	grants
}

// grants are those that a waiter has come by.
type grants struct {
	given *grant // passed on in memory, not taken yet
	got   *grant // what it leaves with
}

// waiterState says what a waiter is about.
//
//	blocked ──► asking ──► queued ──► (has the lock, or gives up)
//	             ▲            │
//	             └────────────┘ message, doubt, or time
//
// It begins with asking if nobody of its client is before it, and otherwise as blocked. In
// each state it may be given a grant in memory, but while it asks: its own request may be
// granted.
type waiterState int

const (
	waitBlocked waiterState = iota // another waiter is before it, or its client holds the lock
	waitAsking                     // a request is under way, or about to be sent
	waitQueued                     // refused; waits to be told
)

// standing is where an owner is in the server's queue.
type standing struct {
	lua.Place
	held    bool        // a ticket is there, as far as is known
	message lua.Message // newest that grants the lock to that owner; not looked at yet
	silent  int         // refusals in a row after which nothing could be heard
}

// wakeup is what a waiter is woken by.
type wakeup struct {
	wake  chan struct{} // capacity 1; sent to with queues.mu held; made when it first has to wait
	woken bool          // before that
}

// await waits until it is the waiter's turn to ask, or it is given a grant. The error
// says why it never came to that.
func (w *waiter) await(ctx context.Context) error {
	w.queues.mu.Lock()
	if w.lock.order.contends(w) {
		w.queues.mu.Unlock()
		return nil
	}
	wake := w.enableWake()
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

// sleep waits for so long, or until something has happened.
func (w *waiter) sleep(wait context.Context, d time.Duration) (err error) {
	wake, c := w.channels()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-wake:
	case <-c:
		w.signalled()
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

// signalled has the waiter ask, after a wake-up that is for no waiter in particular: by a
// message, or because that channel was lost, or is there again.
func (w *waiter) signalled() {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.again = true
	q := w.queue
	if heard := q.signal.Heard(); heard != q.counted {
		q.counted = heard
		w.by.Message++
	} else {
		w.by.Reconnect++
	}
}

// channels returns those of the waiter's own wake-ups, and of those that are for no waiter
// in particular.
func (w *waiter) channels() (own, all <-chan struct{}) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	if w.queue.signal != nil && w.lock.order.contends(w) {
		all = w.queue.signal.C()
	}
	w.slept = true
	return w.enableWake(), all
}

// givenUp is the error of a waiter whose turn never came.
func (w *waiter) givenUp(ctx context.Context) error {
	refusal := w.refused()
	w.queues.mu.Lock()
	trouble := w.queue.trouble
	w.queues.mu.Unlock()
	switch {
	case refusal != nil: // newer than any trouble, or by a grant of this client
	case trouble != nil:
		return w.lock.givenUp(ctx, trouble)
	default:
		refusal = &NotAcquiredError{Name: w.lock.name}
	}
	return refusal.because(ended(ctx))
}

// wakeUp wakes the waiter. queues.mu is held.
func (w *wakeup) wakeUp() {
	if w.wake == nil {
		w.woken = true
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// enableWake returns what the waiter is woken by. queues.mu is held.
func (w *wakeup) enableWake() <-chan struct{} {
	if w.wake == nil {
		w.wake = make(chan struct{}, 1)
		if w.woken {
			w.wakeUp()
		}
	}
	return w.wake
}

// mustAsk has the waiter ask as soon as it can. queues.mu is held.
func (w *waiter) mustAsk() {
	w.again = true
	w.wakeUp()
}

// leave gives the place up. The next in the queue takes over what this one has left on
// the server, or it is taken back there.
func (w *waiter) leave() {
	qs, q := w.queues, w.queue
	var idle []kind.Signal
	qs.mu.Lock()
	given, left := w.given, w.disown()
	wasFirst := q.waiters.first == w
	q.waiters.remove(w)
	if next := q.waiters.first; next == nil {
		idle = q.empty()
		qs.tidy(q)
	} else {
		if left != nil && next.takeOver(left, w) {
			left = nil
		}
		// The end of a grant that nobody shares will be told to the next.
		if wasFirst && (w.lock.shared || !slices.Contains(q.holders, w.got)) {
			next.wakeUp()
		}
		if wasFirst && q.trouble != nil { // it may have been asking for all
			next.mustAsk()
		}
	}
	qs.mu.Unlock()
	for _, s := range idle {
		s.Leave()
	}
	if left != nil {
		left.abandon(false)
	}
	if given != nil {
		given.pass()
	}
}

// disown takes the attempt from the waiter, and returns it if something has to be taken back
// on the server: not if the waiter has the lock by it, or by a grant whose release takes out
// this ticket. queues.mu is held.
func (w *waiter) disown() *grant {
	g := w.attempt
	if g == nil {
		return nil
	}
	delete(w.queue.tickets, g.owner)
	w.attempt = nil
	if g == w.got || w.got != nil && slices.Contains(w.got.run.passed, g.owner) {
		return nil
	}
	if m := w.place.message; m.Granted { // nobody has looked at it
		g.accept(m)
		g.leftState = true // also if the answer to the request is still under way
	}
	return g
}

// renounce gives up a grant that came too late to be held. The waiter waits on, with an
// attempt of another owner if its own is that of the grant, or was passed over in its run:
// that one is released.
func (w *waiter) renounce(g *grant) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	if w.got = nil; w.attempt != nil && (w.attempt == g || slices.Contains(g.run.passed, w.attempt.owner)) {
		delete(w.queue.tickets, w.attempt.owner)
		w.attempt, w.place = nil, standing{}
	}
	w.state = waitBlocked
}

// takeOver has the waiter go on with the attempt of one that leaves, in its place on the
// server. It returns false if the two do not want the same. queues.mu is held.
func (w *waiter) takeOver(g *grant, from *waiter) bool {
	if !w.lock.order.inherits() || w.attempt != nil || !from.place.held || !w.lock.alike(from.lock) {
		return false
	}
	w.attempt, w.place, w.askAt, w.again = g, from.place, from.askAt, from.again || from.state == waitAsking
	w.state = waitQueued
	w.queue.tickets[g.owner] = w
	w.wakeUp()
	return true
}

// alike tells whether who wants the lock o can do with a grant of l.
func (o *Lock) alike(l *Lock) bool {
	return o.lease == l.lease && o.fenced == l.fenced && o.replicas == l.replicas && o.handoff == l.handoff && !o.fixed && !l.fixed &&
		o.order == l.order && o.notifier == l.notifier && o.retention == l.retention
}
