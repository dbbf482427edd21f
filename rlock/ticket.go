package rlock

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rs/xid"

	"github.com/go-rlock/rlock/lua"
)

// ticketed is of kinds with a queue on the server: a waiter that is refused has a ticket
// there, and is told by a message when it comes to it, in most cases that it has the lock.
type ticketed struct{ announced }

// prepare registers the waiter as that of its ticket, before the server can know of it.
// A waiter that was never refused takes none, unless its place must be that of its first
// request: most locks are free. One that cannot hear takes one when it is clear that this
// will not change at once.
func (ticketed) prepare(w *waiter) lua.Ticket {
	q, hub := w.queue, w.lock.client.server.Hub
	if q.signal == nil && hub.Active() && hub.Listens(lua.GrantChannel(q.key, w.lock.client.id)) {
		w.subscribe() // again: it was wanted a moment ago
	}
	t := lua.Ticket{Claim: min(longestClaim, w.lock.lease)}
	switch {
	case q.signal != nil && q.signal.Live():
		t.Hears = w.lock.client.server.Channels.Hearing()
	case !w.lock.order.queuesDeaf(w):
		return lua.Ticket{}
	}
	if q.tickets == nil {
		q.tickets = make(map[string]*waiter)
	}
	q.tickets[w.attempt.owner] = w
	w.attempt.leftState = true
	return t
}

// listen also joins the channel of Redisson's clients while one of them has the lock: they
// know nothing of tickets.
func (ticketed) listen(w *waiter, holder string) {
	l, q := w.lock, w.queue
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.subscribe()
	switch foreign := holder != "" && !ours(holder); {
	case foreign && q.unlocks == nil:
		q.unlocks = l.client.server.SubscribeToUnlocks(l.key, func() { l.withQueue((*queue).unlocked) }, l.changed)
		w.again = w.again || q.unlocks.Live() // what was announced before is lost
	case !foreign && q.unlocks != nil:
		q.unlocks.Leave()
		q.unlocks = nil
	}
}

const (
	deafPause = time.Second // of a waiter who hears, and has no ticket for which it would be told anything

	// keepAlive is how often the first waiter of a client asks although nothing has
	// happened: it keeps the queue on the server, repairs what that has forgotten, and
	// learns of a holder that was granted the lock and died. So it is shorter than the
	// longest claim.
	keepAlive    = 5 * time.Second
	longestClaim = 6 * time.Second

	// firstPause is how often the first in the server's queue asks while it cannot hear.
	firstPause = 100 * time.Millisecond
	// straggle is how much later than the first those behind it ask for a lock whose
	// holder's lease is over: only if the first is dead as well is it their turn.
	straggle = 200 * time.Millisecond
	// reaction is how long those behind leave it to the first to answer a message that
	// all hear.
	reaction = 100 * time.Millisecond
)

func (ticketed) pause(w *waiter, asked lua.Ticket, ttl time.Duration) time.Duration {
	w.again = w.again || asked.Hears == lua.Deaf // now that it can hear
	d := untilExpiry(ttl)
	if !w.place.held { // the server had no memory for a ticket, and tells it nothing
		return min(d, deafPause)
	}
	if !w.place.First && ttl >= 0 {
		d += straggle + rand.N(straggle*2)
	}
	return min(d, keepAlive+rand.N(keepAlive/10))
}

// granted returns the grant that a message has brought, if it can be trusted. If not,
// the waiter has to ask. queues.mu is held.
//
// The window of such a grant begins at a point that is not after the moment when the
// server granted it. A message from before the owner's newest place in the queue is
// not trusted: the owner may have let that grant lapse, and queue anew.
func (w *waiter) granted(now time.Time) *grant {
	m := w.place.message
	w.place.message = lua.Message{} // it is looked at once
	g, l := w.attempt, w.lock
	sent, ok := w.queue.clock.before(m.Time)
	if !ok {
		sent, ok = g.place.before(m.Time)
	}
	switch {
	case !ok, m.Time < g.place.there, sent.After(now), // by another server's clock
		now.Sub(sent) > m.Claim/2, // a good part of the claim is over
		l.fixed, l.replicas.n > 0, // a fixed lease must be a whole one, and replicas must be asked
		l.fenced && m.Token == 0: // whoever has released has no counter
		w.again = true
		return nil
	}
	g.sent, g.initialLease = sent, m.Claim
	g.run = run{began: now, next: m.Next}
	g.accept(m)
	w.got = g
	return g
}

// accept notes the tokens that come with the lock, be it held or passed on: the release
// gives back what was reserved in vain.
func (g *grant) accept(m lua.Message) { g.token, g.run.spare = m.Token, m.Spare }

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
	if first := q.first(); first != nil && q.askAt.After(later) {
		q.askAt = later
		first.wakeUp()
	}
}

// ours tells whether an owner is of this library and does not poll, so that its
// release passes the lock on. Redisson's clients are named by a UUID.
func ours(owner string) bool {
	client, _, _ := strings.Cut(owner, ":")
	return len(client) == len(xid.ID{}.String()) && !strings.Contains(client, "-")
}
