package rlock

import (
	"slices"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// hear delivers messages to their waiters.
func (l *Lock) hear(payload string) {
	for m := range lua.ReadMessages(payload) {
		l.withQueue(func(q *queue) { q.heard(l, m) })
	}
}

// askAgain has the asker with owner's ticket ask.
func (l *Lock) askAgain(owner string) {
	l.withQueue(func(q *queue) {
		if a := q.tickets[owner]; a != nil {
			a.mustAsk()
		}
	})
}

// released is called after the announcement of a release to all waiters. The first
// waiters ask for all.
func (l *Lock) released() {
	l.withQueue(func(q *queue) {
		for _, a := range slices.Clone(q.askers) { // one may end meanwhile
			if a.leads() {
				a.woken(byMessage)
				a.mustAsk()
			}
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

// heard delivers a message to its waiter. If it grants the lock to an owner without a waiter and without a grant, nobody
// wants the lock: the release passes it on. queues.mu is held.
func (q *queue) heard(l *Lock, m lua.Message) {
	a := q.tickets[m.Owner]
	switch {
	case m.Owner == lua.Everybody:
		for _, a := range q.tickets {
			a.woken(byMessage)
			a.mustAsk()
		}
	case a != nil:
		a.told(m)
	case m.Granted && !slices.ContainsFunc(q.grants, func(g *grant) bool { return g.owner == m.Owner }):
		stranger := &candidate{lock: l, name: m.Owner}
		stranger.toldOf(m)
		stranger.withdraw()
	}
}

// changed makes all refused waiters ask, because messages may have been missed, or can be received from
// now on. The answer to a request under way may be older than the change, so its waiter asks once more.
// queues.mu is held.
func (q *queue) changed() {
	for _, a := range slices.Clone(q.askers) { // one may end meanwhile
		if a.asking {
			a.mustAsk()
		}
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
	for _, a := range slices.Clone(q.askers) { // one may end meanwhile
		if !a.asking && a.owner != nil {
			a.woken(byReconnect)
			a.mustAsk()
		}
	}
}

// trusts reports whether the grant in a message is trusted, and since when its lease counts. queues.mu is held.
//
// The trusted window of such a grant begins no later than the server's grant. A message older than the
// owner's newest place in the queue is not trusted: that grant may have lapsed, and the owner queues
// anew.
//
//	ticket taken, place at 10 ─► granted by a message at 20 ─► the claim lapses unseen
//	the waiter asks: a new place at 30 ─► the message of 20 arrives: 20 < 30, not trusted
func (a *asker) trusts(m lua.Message, now time.Time) (sent time.Time, ok bool) {
	l := a.lock
	sent, ok = a.queue.news.clock.before(m.Time)
	if !ok {
		sent, ok = a.taken.before(m.Time)
	}
	switch {
	case !ok, m.Time < a.taken.there, sent.After(now), // by the clock of another server
		now.Sub(sent) > m.Claim/2,             // too little of the claim is left
		m.Claim < l.claim,                     // the server wants to know whether anybody is there
		l.terms.fixed, l.terms.replicas.n > 0, // a fixed lease must be granted in full, and replicas must be asked
		l.terms.fenced && m.Token == 0: // the client that released has no counter
		return time.Time{}, false
	}
	return sent, true
}
