package rlock

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rs/xid"

	"github.com/go-rlock/rlock/lua"
)

// ticket returns the next request's ticket, used if the lock is not free, and registers the waiter under
// the ticket before the server can know of the ticket. queues.mu is held.
//
// The first request has a ticket if the client listens to the channel already, a sign that it has waited
// for the lock a moment ago, and for a fair lock: the ticket decides the place of the call. Otherwise the
// first request has none: most locks are free. An unsubscribed waiter takes a ticket after two refusals
// in a row, when a subscription is not likely soon, and keeps the ticket.
func (w *waiter) ticket() lua.Ticket {
	q, hub := w.queue, w.lock.client.server.Hub
	if q.signal == nil && hub.Active() && hub.Listens(w.lock.wire.GrantChannel()) {
		w.subscribe() // the subscription of the last wait still lingers
	}
	ticket := lua.Ticket{Claim: w.lock.claim()}
	switch {
	case q.signal != nil && q.signal.Live():
		ticket.Hears = w.lock.client.server.Channels.Hearing()
	case !w.lock.terms.fair && w.place.silent < 2 && !w.place.Held():
		return lua.Ticket{}
	}
	if q.tickets == nil {
		q.tickets = make(map[string]*waiter)
	}
	q.tickets[w.place.attempt.owner] = w
	return ticket
}

const (
	deafPause = time.Second // between the requests of a waiter that is subscribed but has no ticket

	// longestClaim is for how long the lock is nobody's after a grant to a dead waiter that looks alive.
	// The holder has to renew within longestClaim: a server that stands still for longer, just after the
	// grant, costs the hold.
	longestClaim = 2500 * time.Millisecond

	// firstPause is how often the first in the server's queue asks while unsubscribed.
	firstPause = 100 * time.Millisecond
	// straggle is how much later than the first ticket the rest ask for a lock after the end of the
	// holder's lease: their turn comes only if the first is dead as well. If the lease is short for a
	// call, the rest wait a quarter of that lease more.
	straggle = 200 * time.Millisecond
	// Waiting clients probe their subscriptions. All clients waiting for a lock probe together at most
	// this often a second, until the hub allows no longer silence: from 800 clients on each probes once
	// in 2 s. With few waiters, each probes after minSilence, so that a deaf client is noticed within a
	// second.
	probesPerSecond = 400
	minSilence      = 200 * time.Millisecond
	// A client with so many tickets before its own probes once in farSilence: thousands of clients would
	// take half of the server's time with their probes. Its requests, each keepAlive, say whether the
	// server has the subscription. A connection that delivers nothing for another reason, and whose turn comes
	// within farSilence, costs one claim.
	near       = 256
	farSilence = 10 * time.Second

	// reaction is how long the rest give the first ticket to answer a message to all.
	reaction = 100 * time.Millisecond
)

// ticketPause is how long a subscribed waiter sleeps after a refusal if no message arrives. The holder's
// lease ends after ttl. queues.mu is held.
func (w *waiter) ticketPause(asked lua.Ticket, ttl time.Duration) time.Duration {
	w.again = w.again || asked.Hears == lua.Deaf // the ticket says deaf, and the waiter can hear now
	d := untilExpiry(ttl)
	if !w.place.Held() { // the server had no memory for a ticket, and will send no message
		return min(d, deafPause)
	}
	c, channel := w.lock.client, w.lock.wire.GrantChannel()
	if w.place.Absent { // the next message would reach nobody
		c.server.Hub.Absent(channel, w.place.attempt.sent)
	}
	// The client has just learned how many wait, and probes accordingly.
	silence := max(time.Duration(w.place.Queue)*time.Second/probesPerSecond, minSilence)
	if w.place.Before >= near && w.lane().first == w {
		silence = farSilence
	}
	c.server.Hub.AllowSilence(channel, silence)
	if !w.place.First && ttl >= 0 {
		late := min(straggle, max(ttl/4, minPause))
		d += late + rand.N(late*2)
	}
	return min(d, w.unprompted())
}

// granted returns the grant from a message, if trusted. Otherwise the waiter has to ask. queues.mu is
// held.
//
// The trusted window of such a grant begins no later than the server's grant. A message older than the
// owner's newest place in the queue is not trusted: that grant may have lapsed, and the owner queues
// anew.
//
//	ticket taken, place at 10 ─► granted by a message at 20 ─► the claim lapses unseen
//	the waiter asks: a new place at 30 ─► the message of 20 arrives: 20 < 30, not trusted
func (w *waiter) granted(now time.Time) *grant {
	m := w.place.message
	w.place.message = lua.Message{} // a message is looked at only once
	g, l := w.place.attempt, w.lock
	sent, ok := w.queue.news.clock.before(m.Time)
	if !ok {
		sent, ok = w.place.queuedAt.before(m.Time)
	}
	switch {
	case !ok, m.Time < w.place.queuedAt.there, sent.After(now), // by the clock of another server
		now.Sub(sent) > m.Claim/2,             // too little of the claim is left
		m.Claim < l.claim(),                   // the server wants to know whether anybody is there
		l.terms.fixed, l.terms.replicas.n > 0, // a fixed lease must be granted in full, and replicas must be asked
		l.terms.fenced && m.Token == 0: // the client that released has no counter
		w.again = true
		return nil
	}
	g.sent, g.initialLease = sent, m.Claim
	g.run = run{began: now, next: m.Next}
	g.accept(m)
	w.gets(waiterOwns, g)
	return g
}

// claim is the lease with which the server may grant the lock to a ticket.
func (l *Lock) claim() time.Duration { return min(longestClaim, l.terms.lease) }

// accept notes the fencing tokens of a message, whether the lock is then held or passed on: the release
// gives back the unused tokens. A lock without fencing takes none.
func (g *grant) accept(m lua.Message) {
	if g.lock.terms.fenced {
		g.token, g.run.spare = m.Token, m.Spare
	}
}

// ours reports whether an owner belongs to this library and does not poll, so that the owner's release
// passes the lock on. Owners of Redisson begin with a UUID.
func ours(owner string) bool {
	client, _, _ := strings.Cut(owner, ":")
	return len(client) == len(xid.ID{}.String()) && !strings.Contains(client, "-")
}
