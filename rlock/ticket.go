package rlock

import (
	"strings"
	"time"

	"github.com/rs/xid"

	"github.com/go-rlock/rlock/lua"
)

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

// granted returns the grant that a message has brought, if it can be trusted. If not,
// the waiter has to ask. queues.mu is held.
//
// The window of such a grant begins at a point that is not after the moment when the
// server granted it. A message from before the owner's newest place in the queue is
// not trusted: the owner may have let that grant lapse, and queue anew.
func (w *waiter) granted(now time.Time) *grant {
	m := w.place.message
	if !m.Granted {
		return nil
	}
	w.place.message = lua.Message{}
	g, l := w.attempt, w.lock
	sent, ok := w.queue.clock.before(m.Time)
	if !ok {
		sent, ok = g.place.before(m.Time)
	}
	switch {
	case !ok, m.Time < g.place.there, now.Sub(sent) > m.Claim/2, // a good part of the claim is over
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

// doubt has all who wait for the lock ask.
func (l *Lock) doubt() { l.withQueue((*queue).doubt) }

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
// server's queue, and the others if nobody has answered that for a while.
func (q *queue) unlocked() {
	later := time.Now().Add(reaction)
	for _, w := range q.tickets {
		switch {
		case w.place.First:
			w.by.Message++
			w.mustAsk()
		case w.askAt.After(later):
			w.askAt = later
			w.wakeUp()
		}
	}
}

// ours tells whether an owner is of this library and does not poll, so that its
// release passes the lock on. Redisson's clients are named by a UUID.
func ours(owner string) bool {
	client, _, _ := strings.Cut(owner, ":")
	return len(client) == len(xid.ID{}.String()) && !strings.Contains(client, "-")
}
