package rlock

import (
	"slices"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// hear brings a message to the waiter that it is for. If nobody waits for what it
// grants, the lock is passed on.
func (l *Lock) hear(payload string) {
	m := lua.ReadMessage(payload)
	var stranger string
	l.withQueue(func(q *queue) { stranger = q.heard(m) })
	if stranger != "" {
		g := l.newGrant(stranger)
		g.leftState, g.place = true, moment{time.Now(), m.Time}
		g.accept(m)
		g.sweep()
	}
}

// askAgain has the waiter ask that stands in the server's queue as owner.
func (l *Lock) askAgain(owner string) {
	l.withQueue(func(q *queue) {
		if w := q.tickets[owner]; w != nil {
			w.mustAsk()
		}
	})
}

// changed is called when what the waiters hear by was lost, or is there again.
func (l *Lock) changed() { l.withQueue((*queue).changed) }

// withQueue runs f with the queue of the lock, an empty one if there is none, and the
// mutex held.
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

// heard brings a message to the waiter that it is for. If it grants the lock to an
// owner for whom nobody waits any more, and who does not hold it either, it returns
// that owner: the lock has to be passed on.
func (q *queue) heard(m lua.Message) (stranger string) {
	w := q.tickets[m.Owner]
	switch {
	case m.Owner == lua.Everybody:
		for _, w := range q.tickets {
			w.by.Message++
			w.mustAsk()
		}
	case w != nil && m.Granted:
		w.place.message = m
		w.by.Message++
		w.wakeUp()
	case w != nil:
		w.by.Message++
		w.mustAsk()
	case m.Granted && !slices.ContainsFunc(q.holders, func(g *grant) bool { return g.owner == m.Owner }):
		return m.Owner
	}
	return ""
}

// changed has all ask because what they hear by was lost, or is there again: messages may
// have been missed, or can be heard from now on. The answer to a request that is under way
// may be older than that, so who has made one makes another. queues.mu is held.
func (q *queue) changed() {
	for w := range q.waiters.all() {
		w.again = w.again || w.state == waitAsking
	}
	q.askAll()
}

// askAll has each waiter ask again that was refused; one with a ticket that waits for a grant
// of this client meanwhile does when that is over. queues.mu is held.
func (q *queue) askAll() {
	for w := range q.waiters.all() {
		if w.state == waitQueued || w.state == waitBlocked && w.place.held {
			w.by.Reconnect++
			w.mustAsk()
		}
	}
}

// unlocked has those ask who wait for a foreign owner to release: the first in the
// server's queue, whoever is about to get an answer that may be older than the release,
// and the others if nobody has answered that for a while: of a fair lock, its client's first
// waiter for all of them.
func (q *queue) unlocked() {
	later := time.Now().Add(reaction)
	for _, w := range q.tickets {
		switch {
		case w.place.First, w.state == waitAsking:
			w.by.Message++
			w.mustAsk()
		case w.askAt.After(later):
			w.askAt = later
			w.wakeUp()
		}
	}
	if first := q.waiters.first; first != nil && q.askAt.After(later) {
		q.askAt = later
		first.wakeUp()
	}
}
