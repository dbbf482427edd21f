package rlock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/lua"
)

// notifier is how the waiters of a lock learn that they may have it: by a message to the
// owner of a ticket (ticketed), by a message to all that listen (announced), or not at all
// (polled).
type notifier interface {
	// prepare readies a waiter for a request, and returns the ticket that the request takes
	// if the lock is not free. queues.mu is held.
	prepare(w *waiter) lua.Ticket
	// listen subscribes a waiter that was refused because of holder.
	listen(w *waiter, holder string)
	// hears reports whether messages reach the waiter now. queues.mu is held.
	hears(w *waiter) bool
	// pause is called for each refusal of a waiter that can hear. It returns how long the
	// waiter sleeps if no message arrives; the holder's lease ends after ttl. queues.mu is
	// held.
	pause(w *waiter, asked lua.Ticket, ttl time.Duration) time.Duration
	// silentPause is pause for a waiter that cannot hear. An error ends the wait.
	// queues.mu is held.
	silentPause(w *waiter, refusal *NotAcquiredError) (time.Duration, error)
}

// announced is the notifier of kinds whose releases are announced on a channel to all
// waiters.
type announced struct{}

func (announced) prepare(*waiter) lua.Ticket { return lua.Ticket{} }

func (announced) listen(w *waiter, _ string) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	if w.queue.signal == nil {
		w.subscribe()
		w.again = w.queue.signal.Live() // a release before this moment was missed
	}
}

func (announced) hears(w *waiter) bool {
	s := w.queue.signal
	return s != nil && s.Live() && w.queue.tells()
}

func (announced) pause(w *waiter, _ lua.Ticket, ttl time.Duration) time.Duration {
	return min(untilExpiry(ttl), w.unprompted())
}

// silentPause is 50 ms after the first refusal without a live subscription, then 100 ms, and
// so on up to 1 s. place.silent has counted this refusal already.
func (announced) silentPause(w *waiter, _ *NotAcquiredError) (time.Duration, error) {
	return min(25*time.Millisecond<<min(w.place.silent, 6), time.Second), nil
}

var errTries = errors.New("no more tries")

// polled is of locks whose waiters are told nothing, and leave nothing in the queue.
type polled struct {
	announced
	Polling
}

func (polled) listen(*waiter, string) {}

// hears is false also while the client listens, for another waiter.
func (polled) hears(*waiter) bool { return false }

func (p polled) silentPause(w *waiter, refusal *NotAcquiredError) (time.Duration, error) {
	n := w.place.silent
	if n == p.Tries {
		return 0, refusal.because(fmt.Errorf("%w: %d were made", errTries, n))
	}
	return p.after(n), nil
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
