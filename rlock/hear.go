package rlock

import (
	"slices"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// hear delivers messages to their waiters. A message that grants the lock to an owner without a waiter
// passes the lock on.
func (l *Lock) hear(payload string) {
	for m := range lua.ReadMessages(payload) {
		var stranger string
		l.withQueue(func(q *queue) { stranger = q.heard(m) })
		if stranger == "" {
			continue
		}
		left := l.leftBy(stranger).withTicket()
		left.likely = true
		if l.terms.fenced { // nobody has used the message's token
			left.ending.Used, left.ending.Reserved = m.Token, m.Token+m.Spare
		}
		left.sweep()
	}
}

// askAgain makes the waiter with owner's ticket ask.
func (l *Lock) askAgain(owner string) {
	l.withQueue(func(q *queue) {
		if w := q.tickets[owner]; w != nil {
			w.mustAsk()
		}
	})
}

// released is called after the announcement of a release to all waiters. The first
// waiters ask for all.
func (l *Lock) released() {
	l.withQueue(func(q *queue) {
		for _, w := range q.firsts() {
			w.course.by.Message++
			w.mustAsk()
		}
	})
}

// changed is called when the subscription of the waiters was lost, or confirmed.
func (l *Lock) changed() { l.withQueue((*queue).changed) }

// withQueue runs f with the queue of the lock, or with an empty one if there is none, while
// the mutex is held.
func (l *Lock) withQueue(f func(q *queue)) {
	qs := l.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[l.key]
	if q == nil {
		q = &queue{}
	}
	f(q)
}

// heard delivers a message to its waiter. If the message grants the lock to an owner without a waiter and
// without a grant, heard returns that owner, a stranger: the lock has to be passed on.
func (q *queue) heard(m lua.Message) (stranger string) {
	w := q.tickets[m.Owner]
	switch {
	case m.Owner == lua.Everybody:
		for _, w := range q.tickets {
			w.course.by.Message++
			w.mustAsk()
		}
	case w != nil && m.Granted:
		w.place.message = m
		w.course.by.Message++
		w.wake()
	case w != nil:
		w.course.by.Message++
		w.mustAsk()
	case m.Granted && !slices.ContainsFunc(q.grants, func(g *grant) bool { return g.owner == m.Owner }):
		return m.Owner
	}
	return ""
}

// changed makes all refused waiters ask, because messages may have been missed, or can be received from
// now on. The answer to a request under way may be older than the change, so its waiter asks once more.
// queues.mu is held.
func (q *queue) changed() {
	for w := range q.waiters() {
		w.again = w.again || w.state == waiterAsking
	}
	q.askAll()
}

// cannotTell notes that the server has refused to tell a waiter that the lock is free: the user may not
// publish, the server has no memory left, or the slot of the lock moves. The lock is then nobody's until
// the first ticket asks, and any waiter may have the first ticket: from now on each waiter asks for
// itself, as without a subscription. queues.mu is held.
func (q *queue) cannotTell() {
	known := !q.news.tells()
	q.news.untold = time.Now()
	if !known {
		q.askAll()
	}
}

// askAll makes each refused waiter ask. A waiter with a ticket that waits for a grant of its own client
// asks after that grant. queues.mu is held.
func (q *queue) askAll() {
	for w := range q.waiters() {
		if w.state == waiterQueued || w.state != waiterAsking && w.place.Held() {
			w.course.by.Reconnect++
			w.mustAsk()
		}
	}
}

// unlocked is called when a foreign owner has announced its release. The waiter with the first ticket of
// the server's queue asks at once, and so do waiters with a request under way, whose answer may be older
// than the release. The rest ask after the reaction time; for a fair lock the first waiter of their
// client asks for the rest.
func (q *queue) unlocked() {
	later := time.Now().Add(reaction)
	for _, w := range q.tickets {
		switch {
		case w.place.First, w.state == waiterAsking:
			w.course.by.Message++
			w.mustAsk()
		case w.askAt.After(later):
			w.askAt = later
			w.wake()
		}
	}
	if first := q.writers.first; first != nil && q.news.askAt.After(later) {
		q.news.askAt = later
		first.wake()
	}
}
