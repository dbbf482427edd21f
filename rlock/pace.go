package rlock

import (
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rs/xid"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/lua"
)

// ticket returns the next request's ticket, used if the lock is not free, and registers the asker under
// the ticket before the server can know of the ticket. queues.mu is held.
//
// The first request has a ticket if the client listens to the channel already, a sign that it has waited
// for the lock a moment ago, and for a fair lock: the ticket decides the place of the call. Otherwise the
// first request has none: most locks are free. An unsubscribed waiter takes a ticket after two refusals
// in a row, when a subscription is not likely soon, and keeps the ticket.
func (a *asker) ticket() lua.Ticket {
	q, s := a.queue, &a.lock.client.server
	if q.signal == nil && s.Hub.Listens(a.lock.wire.GrantChannel()) {
		a.subscribe() // the subscription of the last wait still lingers
	}
	ticket := lua.Ticket{Claim: a.lock.claim}
	switch {
	case q.signal != nil && q.signal.Live():
		ticket.Hears = max(s.Channels.Hearing(), lua.Counted) // a quorum lock can hear a majority before it knows the channels of its own client
	case !a.lock.terms.fair && a.silent < 2 && !a.place.Held():
		return lua.Ticket{}
	}
	if q.tickets == nil {
		q.tickets = make(map[string]*asker)
	}
	q.tickets[a.owner.name] = a
	return ticket
}

const (
	deafPause = time.Second // between the requests of a waiter that is subscribed but has no ticket

	// longestClaim is for how long the lock is nobody's after a grant to a dead waiter that looks alive.
	// The holder has to renew within longestClaim: a server that stands still for longer, just after the
	// grant, costs the hold.
	longestClaim = 2500 * time.Millisecond

	// An asker that hears nothing asks after 50 ms, then 100 ms, and so on up to longestSilence, and the first in the
	// server's queue every firstPause.
	longestSilence = time.Second
	firstPause     = 100 * time.Millisecond

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

// ours reports whether an owner belongs to this library and does not poll, so that the owner's release
// passes the lock on. Owners of Redisson begin with a UUID.
func ours(owner string) bool {
	client, _, _ := strings.Cut(owner, ":")
	return len(client) == len(xid.ID{}.String()) && !strings.Contains(client, "-")
}

// listen subscribes an asker, refused because of holder, to messages for its ticket, or to messages for
// all waiters. While a client of Redisson holds a lock with tickets, it listens to the unlock
// channel as well: Redisson's release knows nothing of tickets. queues.mu is held.
func (a *asker) listen(holder string) {
	l, q := a.lock, a.queue
	if l.terms.polls {
		return
	}
	a.subscribe()
	if foreign := l.terms.tickets && holder != "" && !ours(holder); foreign != (q.unlocks != nil) {
		a.listenToUnlocks(foreign)
	}
}

// listenToUnlocks begins or ends listening to Redisson's unlock channel. queues.mu is held.
func (a *asker) listenToUnlocks(foreign bool) {
	l, q := a.lock, a.queue
	if !foreign {
		q.unlocks.Close()
		q.unlocks = nil
		return
	}
	q.unlocks = l.client.server.SubscribeToUnlocks(l.wire.UnlockChannel(), func() { l.withQueue((*queue).unlocked) }, l.changed)
	if q.unlocks.Live() { // an announcement before this moment was missed
		a.mustAsk()
	}
}

// hush ends the subscriptions. queues.mu is held.
func (q *queue) hush() {
	q.signal.Close()
	if q.unlocks != nil { // which comes later
		q.unlocks.Close()
	}
	q.signal, q.unlocks = nil, nil
}

// subscribe joins the channel of the lock. queues.mu is held.
func (a *asker) subscribe() {
	if q := a.queue; q.signal == nil {
		l := a.lock
		q.signal = l.wire.Subscribe(kind.Events{Message: l.hear, Released: l.released, Changed: l.changed})
	}
}

// How often the first waiter of a client asks without an event. The request keeps the queue on the server
// alive, restores forgotten tickets, and finds a lock removed without a message and a holder that died
// after its grant. The first such request comes after about a second, the next when the wait has doubled.
// Many waiters make about asksPerSecond requests in a second together, until each makes one every keepAlive.
// How many wait for a quorum lock is not known.
const (
	keepAlive     = 5 * time.Second // at the latest
	minKeepAlive  = 900 * time.Millisecond
	asksPerSecond = 20
)

// unprompted is how long an asker that hears sleeps at most until it asks of its own accord: until the holder's lease
// expires, or shorter. The lease ends after ttl. Of the askers for a fair lock the first asks for all of its client that
// have a place, and the others never. queues.mu is held.
func (a *asker) unprompted(expiry, ttl time.Duration) time.Duration {
	switch {
	case !a.lock.terms.tickets:
	case !a.place.Held(): // the server had no memory for a ticket, and will send no message
		return min(expiry, deafPause)
	case a.lock.terms.fair && !a.leads():
		return math.MaxInt64
	case !a.place.First && ttl >= 0:
		late := min(straggle, max(ttl/4, minPause))
		expiry += late + rand.N(late*2)
	}
	d := max(time.Since(a.since), time.Duration(a.place.Queue)*time.Second/asksPerSecond, minKeepAlive)
	d = min(d, keepAlive)
	return min(expiry, d+rand.N(d/10))
}

// Bounds of a pause.
const (
	minPause = 5 * time.Millisecond // a holder's TTL may read 0
	maxPause = 30 * time.Second     // against whatever else may swallow a message
	ttlPause = time.Second          // a key without TTL: it is foreign, or broken
)

// untilExpiry is how long to wait for a key that expires after ttl: a millisecond longer, because the
// server tells whole milliseconds, and up to 4 ms more at random, so that processes with the same TTL do
// not ask together.
func untilExpiry(ttl time.Duration) time.Duration {
	if ttl < 0 {
		return ttlPause
	}
	return min(max(ttl, minPause)+time.Millisecond+rand.N(4*time.Millisecond), maxPause)
}
