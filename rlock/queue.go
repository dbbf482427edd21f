package rlock

import (
	"slices"
	"sync"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
)

// queues are the in-process queues of a client, by lock key. A queue exists while
// somebody waits in it or this client holds its lock. A client has several of these,
// so that locks with different names seldom wait for the same mutex.
type queues struct {
	mu    sync.Mutex // guards what follows, and everything in the queues and their waiters
	byKey map[string]*queue
	spare []*queue // to be used again: the queue of a free lock lives for two calls

	counters counters // not guarded by mu
}

// maxSpare is how many queues are kept for further use, by each of a client's queues.
const maxSpare = 32

// queue is where those goroutines of a client wait that want the same lock: first
// come, first served. The first of them asks the server, on behalf of all; those of a
// fair lock ask for themselves.
type queue struct {
	key     string
	waiters waiters
	holders []*grant // of this client, as far as it knows; one unless they are shared

	// What the waiters have left on the server, and how they hear of it.
	tickets map[string]*waiter // by the owner that stands in the server's queue
	signal  kind.Signal        // joined when the first of them is refused
	counted int64              // messages of signal up to the newest wake-up
	unlocks kind.Signal        // Redisson's unlock channel, while a foreign owner holds the lock

	outlook

	call *sharedCall // of readers; nil if none asks
	kept *kept       // nil unless a grant that this client holds may be kept
}

// of returns the queue of a key. mu is held.
func (qs *queues) of(key string) *queue {
	q := qs.byKey[key]
	if q == nil {
		if qs.byKey == nil {
			qs.byKey = make(map[string]*queue)
		}
		if last := len(qs.spare) - 1; last >= 0 {
			q, qs.spare = qs.spare[last], qs.spare[:last]
		} else {
			q = new(queue)
		}
		q.key = key
		qs.byKey[key] = q
	}
	return q
}

// tidy forgets a queue that nobody needs. mu is held.
func (qs *queues) tidy(q *queue) {
	if q.waiters.n > 0 || len(q.holders) > 0 || q.call != nil {
		return
	}
	delete(qs.byKey, q.key)
	if len(qs.spare) < maxSpare {
		*q = queue{holders: q.holders}
		qs.spare = append(qs.spare, q)
	}
}

// enter takes the last place in the queue. It must be left in any case. Whoever finds no
// waiter there, and no grant of this client, has nobody here to wait for, and asks the
// server.
func (qs *queues) enter(l *Lock, began time.Time) (w *waiter, asks bool) {
	w = &waiter{queues: qs, lock: l, course: course{since: began}}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of(l.key)
	w.queue = q
	q.waiters.push(w)
	if q.waiters.n == 1 && len(q.holders) == 0 {
		w.state = waitAsking
	}
	if q.kept != nil {
		mine, other := q.takeParked(l)
		if w.given = mine; other != nil {
			l.client.background(other.pass)
		}
	}
	if l.client.closed.Load() { // too late for Close to see it
		w.wakeUp()
	}
	return w, w.state == waitAsking
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

// empty ends what only waiters need, and returns the signals, which the caller leaves
// without the mutex. mu is held.
func (q *queue) empty() []kind.Signal {
	var idle []kind.Signal
	for _, s := range []kind.Signal{q.signal, q.unlocks} {
		if s != nil {
			idle = append(idle, s)
		}
	}
	q.signal, q.unlocks, q.tickets = nil, nil, nil
	q.outlook = outlook{}
	return idle
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

// held notes that a grant of this client began. It returns those that the client
// believed in until then and that exclude it, and of them the one that is parked, which is
// not any more.
func (qs *queues) held(g *grant) (before []*grant, parked *grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of(g.lock.key)
	for _, other := range q.holders {
		if g.exclusive() || other.exclusive() {
			before = append(before, other)
		}
	}
	q.holders = append(q.holders, g)
	if k := q.kept; k != nil && k.parked != nil {
		parked = k.stop()
	}
	return before, parked
}

// replace puts an heir in the place of a grant. mu is held.
func (q *queue) replace(before, heir *grant) {
	if i := slices.Index(q.holders, before); i >= 0 {
		q.holders[i] = heir
	} else {
		q.holders = append(q.holders, heir)
	}
}

// ended notes that a grant of this client is over, and has the head look again.
func (qs *queues) ended(g *grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[g.lock.key]; q != nil {
		q.holders = slices.DeleteFunc(q.holders, func(other *grant) bool { return other == g })
		if first := q.waiters.first; first != nil && !g.lock.shared { // the last reader of all is told by the server
			first.wakeUp()
		}
		if q.kept != nil && q.kept.owner == g.owner {
			q.kept.end()
			q.kept = nil
		}
		qs.tidy(q)
	}
}

// yielded has the first waiter ask: a writer of this client has become a reader, which
// excludes no readers. The others follow when that one has the lock. They may have
// relied on this client for that, and listen to nothing.
func (qs *queues) yielded(g *grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[g.lock.key]; q != nil && q.waiters.first != nil {
		q.waiters.first.mustAsk()
	}
}

// holder returns the client's grant that excludes all others from the lock, if it
// knows of one.
func (qs *queues) holder(l *Lock) *grant {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[l.key]; q != nil {
		return q.holder()
	}
	return nil
}

func (q *queue) holder() *grant {
	for _, holder := range slices.Backward(q.holders) {
		if holder.exclusive() {
			return holder
		}
	}
	return nil
}

// busy tells whether goroutines of this client queue for the lock.
func (qs *queues) busy(l *Lock) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[l.key]
	return q != nil && q.waiters.n > 0
}
