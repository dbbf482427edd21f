package rlock

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rs/xid"

	"github.com/go-rlock/rlock/lua"
)

// ticket returns the ticket that the next request takes if the lock is not free, and registers the
// waiter under it before the server can know of that. The first request takes a ticket if the client
// listens to the channel already, which shows that it has waited for the lock a moment ago, and for
// a fair lock: the ticket decides the place of the call. Otherwise it takes none: most locks are free. One that cannot hear takes a ticket after two refusals in a row, when this is not
// likely to change soon, and keeps the one that it has. queues.mu is held.
func (w *waiter) ticket() lua.Ticket {
	q, hub := w.queue, w.lock.client.server.Hub
	if q.signal == nil && hub.Active() && hub.Listens(lua.GrantChannel(q.key, w.lock.client.id)) {
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

	// longestClaim is for how long the lock is nobody's when it has been granted to a dead waiter
	// that looks like one that waits. The holder has to renew within it: a server that stands still
	// for longer, just after the grant, costs the hold.
	longestClaim = 2500 * time.Millisecond

	// firstPause is how often the first in the server's queue asks while it cannot hear.
	firstPause = 100 * time.Millisecond
	// straggle is how much later than the first ticket the others ask for a lock whose
	// holder's lease has ended: it is their turn only if the first is dead as well. Of a
	// lease that is short for a call they wait for a quarter more.
	straggle = 200 * time.Millisecond
	// Clients that wait probe their subscriptions. All that wait for a lock together do it about
	// so many times a second at most, until the hub allows no longer silence: from 800 clients
	// on each probes once in 2 s. If few wait, each probes after minSilence, so that one that is
	// deaf is noticed within a second.
	probesPerSecond = 400
	minSilence      = 200 * time.Millisecond

	// reaction is how long the others give the first ticket to answer a message that all
	// receive.
	reaction = 100 * time.Millisecond
)

// ticketPause is how long a waiter that hears sleeps after a refusal if no message arrives. The
// holder's lease ends after ttl. queues.mu is held.
func (w *waiter) ticketPause(asked lua.Ticket, ttl time.Duration) time.Duration {
	w.again = w.again || asked.Hears == lua.Deaf // the ticket says that it cannot hear, and now it can
	d := untilExpiry(ttl)
	if !w.place.Held() { // the server had no memory for a ticket, and will send no message
		return min(d, deafPause)
	}
	c, channel := w.lock.client, lua.GrantChannel(w.queue.key, w.lock.client.id)
	if w.place.Absent { // the next message would reach nobody
		c.server.Hub.Absent(channel, w.place.attempt.sent)
	}
	// The client has just learned how many wait, and probes accordingly.
	c.server.Hub.AllowSilence(channel, max(time.Duration(w.place.Queue)*time.Second/probesPerSecond, minSilence))
	if !w.place.First && ttl >= 0 {
		late := min(straggle, max(ttl/4, minPause))
		d += late + rand.N(late*2)
	}
	return min(d, w.unprompted())
}

// granted returns the grant that a message has brought, if it can be trusted. Otherwise
// the waiter has to ask. queues.mu is held.
//
// The trusted window of such a grant begins at a moment that is not after the one when
// the server granted it. A message that is older than the owner's newest place in the
// queue is not trusted: that grant may have lapsed, and the owner queues anew.
func (w *waiter) granted(now time.Time) *grant {
	m := w.place.message
	w.place.message = lua.Message{} // it is looked at only once
	g, l := w.place.attempt, w.lock
	sent, ok := w.queue.news.clock.before(m.Time)
	if !ok {
		sent, ok = g.queuedAt.before(m.Time)
	}
	switch {
	case !ok, m.Time < g.queuedAt.there, sent.After(now), // by the clock of another server
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
	w.state, w.grant = waiterOwns, g
	return g
}

// claim is the lease with which the server may grant the lock to a ticket.
func (l *Lock) claim() time.Duration { return min(longestClaim, l.terms.lease) }

// accept notes the fencing tokens that come with a message, whether the lock is then held or
// passed on: its release gives back those that were not used. A lock without fencing takes
// none.
func (g *grant) accept(m lua.Message) {
	if g.lock.terms.fenced {
		g.token, g.run.spare = m.Token, m.Spare
	}
}

// ours reports whether an owner belongs to this library and does not poll, so that its
// release passes the lock on. Owners of Redisson begin with a UUID.
func ours(owner string) bool {
	client, _, _ := strings.Cut(owner, ":")
	return len(client) == len(xid.ID{}.String()) && !strings.Contains(client, "-")
}
