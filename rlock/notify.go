package rlock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
)

// listen subscribes a waiter, refused because of holder, to messages for its ticket, or to messages for
// all waiters. While a client of Redisson holds a lock with tickets, the waiter listens to the unlock
// channel as well: Redisson's release knows nothing of tickets.
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
		q.unlocks = l.client.server.SubscribeToUnlocks(l.wire.UnlockChannel(), func() { l.withQueue((*queue).unlocked) }, l.changed)
		w.again = w.again || q.unlocks.Live() // an announcement before this moment was missed
	case !foreign && q.unlocks != nil:
		q.unlocks.Close()
		q.unlocks = nil
	}
}

// hears reports whether messages reach the waiter now. A polling waiter does not hear, even while the
// client listens for another waiter. queues.mu is held.
func (w *waiter) hears() bool {
	s := w.queue.signal
	return !w.lock.terms.polls && s != nil && s.Live() && w.queue.news.tells()
}

var errTries = errors.New("no more tries")

// silentPause is how long an unsubscribed waiter sleeps after a refusal, counted in place.silent: 50 ms
// after the first, then 100 ms, and so on up to 1 s, or by the lock's polling options. An error ends the
// wait. queues.mu is held.
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

// untilExpiry is how long to wait for a key that expires after ttl: a millisecond longer, because the
// server tells whole milliseconds, and up to 4 ms more at random, so that processes with the same TTL do
// not ask together.
func untilExpiry(ttl time.Duration) time.Duration {
	if ttl < 0 {
		return ttlPause
	}
	return min(max(ttl, minPause)+time.Millisecond+rand.N(4*time.Millisecond), maxPause)
}
