package rlock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
)

// listen subscribes a waiter that was refused because of holder: to messages for its ticket, or to
// those for all waiters. While a client of Redisson holds a lock with tickets, the waiter listens to
// the unlock channel as well: that release knows nothing of tickets.
func (w *waiter) listen(holder string) {
	l, q, foreign := w.lock, w.queue, holder != "" && !ours(holder)
	if l.terms.polls {
		return
	}
	w.lock.queues.mu.Lock()
	defer w.lock.queues.mu.Unlock()
	first := q.signal == nil
	w.subscribe()
	switch {
	case !l.terms.tickets:
		w.again = w.again || first && q.signal.Live() // a release before this moment was missed
	case foreign && q.unlocks == nil:
		q.unlocks = l.client.server.SubscribeToUnlocks(l.key, func() { l.withQueue((*queue).unlocked) }, l.changed)
		w.again = w.again || q.unlocks.Live() // an announcement before this moment was missed
	case !foreign && q.unlocks != nil:
		q.unlocks.Close()
		q.unlocks = nil
	}
}

// hears reports whether messages reach the waiter now. Who polls does not hear, also while the
// client listens for another waiter. queues.mu is held.
func (w *waiter) hears() bool {
	s := w.queue.signal
	return !w.lock.terms.polls && s != nil && s.Live() && w.queue.news.tells()
}

var errTries = errors.New("no more tries")

// silentPause is how long a waiter that cannot hear sleeps after a refusal, which place.silent has
// counted: 50 ms after the first, then 100 ms, and so on up to 1 s, or as the lock is to be polled.
// An error ends the wait. queues.mu is held.
func (w *waiter) silentPause(refusal *NotAcquiredError) (time.Duration, error) {
	n, l := w.place.silent, w.lock
	switch {
	case !l.terms.polls:
		return min(25*time.Millisecond<<min(n, 6), time.Second), nil
	case n == l.terms.polling.Tries:
		return 0, refusal.because(fmt.Errorf("%w: %d were made", errTries, n))
	}
	return l.terms.polling.after(n), nil
}

// subscribe joins the channel of the lock. queues.mu is held.
func (w *waiter) subscribe() {
	if w.queue.signal == nil {
		l := w.lock
		w.queue.signal = l.wire.Subscribe(kind.Events{Message: l.hear, Released: l.released, Changed: l.changed})
	}
}

// How often the first waiter of a client asks although nothing has happened. The request keeps
// the queue on the server alive, restores what the server has forgotten, finds a lock that was
// removed without a message, and a holder that was granted the lock and died. It is made after
// about a second, and when the wait is twice as long as at the request before. If many wait for
// a plain or fair lock, they make about asksPerSecond of them in a second, until each makes one
// every keepAlive. How many wait for other kinds is not known: a release wakes them all anyway.
const (
	keepAlive     = 5 * time.Second // at the latest
	minKeepAlive  = 900 * time.Millisecond
	asksPerSecond = 20
)

// unprompted is how long a waiter sleeps at most until it asks of its own accord. queues.mu is
// held.
func (w *waiter) unprompted() time.Duration {
	d := max(time.Since(w.since), time.Duration(w.place.Queue)*time.Second/asksPerSecond, minKeepAlive)
	d = min(d, keepAlive)
	return d + rand.N(d/10)
}

// Bounds of a pause.
const (
	minPause = 5 * time.Millisecond // a holder's TTL may read 0
	maxPause = 30 * time.Second     // against whatever else may swallow a message
	ttlPause = time.Second          // a key without TTL: it is foreign, or broken
)

// untilExpiry is how long to wait for a key that expires after ttl: a millisecond longer,
// because the server tells whole ones, and up to 4 ms more at random, so that processes which
// saw the same TTL do not ask together.
func untilExpiry(ttl time.Duration) time.Duration {
	if ttl < 0 {
		return ttlPause
	}
	return min(max(ttl, minPause)+time.Millisecond+rand.N(4*time.Millisecond), maxPause)
}
