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
type ticketed struct {
	announced
	atOnce bool // the first request takes a ticket, as the place of a call is that of its first request
}

// prepare registers the waiter as that of its ticket, before the server can know of it.
// A waiter that was never refused takes none, unless it is to do so at once: most locks are
// free. One that cannot hear takes one after two refusals in a row, when it is clear that
// this will not change soon, and keeps the one that it has.
func (t ticketed) prepare(w *waiter) lua.Ticket {
	q, hub := w.queue, w.lock.client.server.Hub
	if q.signal == nil && hub.Active() && hub.Listens(lua.GrantChannel(q.key, w.lock.client.id)) {
		w.subscribe() // again: it was wanted a moment ago
	}
	ticket := lua.Ticket{Claim: min(longestClaim, w.lock.lease)}
	switch {
	case q.signal != nil && q.signal.Live():
		ticket.Hears = w.lock.client.server.Channels.Hearing()
	case !t.atOnce && w.place.silent < 2 && !w.place.held:
		return lua.Ticket{}
	}
	if q.tickets == nil {
		q.tickets = make(map[string]*waiter)
	}
	q.tickets[w.attempt.owner] = w
	return ticket
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
// gives back what was reserved in vain. A lock without fencing has none, whoever released it.
func (g *grant) accept(m lua.Message) {
	if g.lock.fenced {
		g.token, g.run.spare = m.Token, m.Spare
	}
}

// moment is a point in time on two clocks: a request sent at here was executed at
// there, in microseconds of the server's clock. So there is not before here.
type moment struct {
	here  time.Time
	there int64
}

// longestReckoning is how much later than a moment another may be that is reckoned
// from it.
const longestReckoning = 30 * time.Second

// before returns a point on the clock here that is not after the server's time t, and
// whether there is one. The clocks may differ in their rates by as much as a lease
// allows for; the server's is taken not to jump ahead, as it is for a lease.
func (m moment) before(t int64) (time.Time, bool) {
	passed := time.Duration(t-m.there) * time.Microsecond
	if m.here.IsZero() || passed < 0 || passed > longestReckoning {
		return time.Time{}, false
	}
	return m.here.Add(max(passed-passed/100-2*time.Millisecond, 0)), true
}

// ours tells whether an owner is of this library and does not poll, so that its
// release passes the lock on. Redisson's clients are named by a UUID.
func ours(owner string) bool {
	client, _, _ := strings.Cut(owner, ":")
	return len(client) == len(xid.ID{}.String()) && !strings.Contains(client, "-")
}
