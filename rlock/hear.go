package rlock

import (
	"slices"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// hear delivers a message to its waiter. If the message grants the lock to an owner that
// nobody waits for, the lock is passed on.
func (l *Lock) hear(payload string) {
	m := lua.ReadMessage(payload)
	var stranger string
	l.withQueue(func(q *queue) { stranger = q.heard(m) })
	if stranger != "" {
		left := l.leftBy(stranger).withTicket()
		left.likely = true
		if l.terms.fenced { // nobody has used its token
			left.ending.Used, left.ending.Reserved = m.Token, m.Token+m.Spare
		}
		left.sweep()
	}
}

// askAgain makes the waiter ask whose ticket is owner's.
func (l *Lock) askAgain(owner string) {
	l.withQueue(func(q *queue) {
		if w := q.tickets[owner]; w != nil {
			w.mustAsk()
		}
	})
}

// released is called when a release was announced to all waiters. One asks for all.
func (l *Lock) released() {
	l.withQueue(func(q *queue) {
		if w := q.first; w != nil {
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

// heard delivers a message to its waiter. If the message grants the lock to an owner that
// nobody waits for any more, and that does not hold the lock either, heard returns that
// owner, a stranger: the lock has to be passed on.
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

// changed makes all waiters ask that were refused, because messages may have been missed, or
// can be received from now on. The answer to a request that is under way may be older than the
// change, so its waiter asks once more. queues.mu is held.
func (q *queue) changed() {
	for w := q.first; w != nil; w = w.behind {
		w.again = w.again || w.state == waiterAsking
	}
	q.askAll()
}

// cannotTell notes that the server has refused to tell a waiter that the lock is free: its user may
// not publish, it has no memory left, or the slot of the lock moves. The lock is nobody's then until
// the first ticket asks, and that may be any waiter's: each asks by itself from now on, as without
// a subscription. queues.mu is held.
func (q *queue) cannotTell() {
	known := !q.news.tells()
	q.news.untold = time.Now()
	if !known {
		q.askAll()
	}
}

// askAll makes each waiter ask that was refused. One with a ticket that waits for a grant of
// its own client asks when that is over. queues.mu is held.
func (q *queue) askAll() {
	for w := q.first; w != nil; w = w.behind {
		if w.state == waiterQueued || w.state != waiterAsking && w.place.Held() {
			w.course.by.Reconnect++
			w.mustAsk()
		}
	}
}

// unlocked is called when a foreign owner has announced its release. The waiter with the
// first ticket of the server's queue asks at once, and so do those with a request under way,
// whose answer may be older than the release. The others ask after the reaction time; those
// of a fair lock by the first waiter of their client.
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
	if q.first != nil && q.news.askAt.After(later) {
		q.news.askAt = later
		q.first.wake()
	}
}
