package rlock

import (
	"time"

	"github.com/go-rlock/rlock/internal/kind"
)

// news is what the waiters of a queue have last learned from the server. They share it.
type news struct {
	refusal *NotAcquiredError // the newest one; nil if a request has failed since
	askAt   time.Time         // of a fair lock: when the first waiter asks again for all, if no message arrives
	clock   moment            // the server's clock
	since   time.Time         // when requests began to fail; zero if the newest was answered
	trouble error             // the newest error since then
	failed  time.Time         // when it came
	newest  time.Time         // when the newest request that was answered was sent
	short   replicaShortage

	// forgotten is when the request was sent that found out last that the server had forgotten
	// tickets. All waiters were told: that another ticket from before is gone is no news.
	forgotten time.Time
}

// asked is called with an error when an attempt of the waiter got no answer, and with nil when
// a later attempt got one. It returns when the newest request of the queue that was answered
// was sent.
func (w *waiter) asked(err error) time.Time {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	q := w.queue
	switch {
	case err == nil:
		q.since, q.trouble = time.Time{}, nil
		return q.newest
	case !q.silent():
		q.since, q.refusal = time.Now(), nil
	}
	q.trouble, q.failed = err, time.Now()
	if q.waiters.first != w { // the first one tells the others
		return q.newest
	}
	for other := range q.waiters.all() {
		if other.unanswered() {
			other.wakeUp()
		}
	}
	return q.newest
}

// silentSince returns since when the waiter has had no answer while requests have failed:
// since the first failure of any waiter, but not from before this one came. So all give up
// together, not one after the other. It is zero if the newest request was answered, or nobody
// has asked for a while since it failed. queues.mu is held.
func (w *waiter) silentSince() time.Time {
	switch q := w.queue; {
	case !q.silent():
		return time.Time{}
	case q.since.After(w.since):
		return q.since
	}
	return w.since
}

// longestFailure is longer than it takes from a failed attempt to the end of the next one.
const longestFailure = 2*kind.MaxAttempt + 500*time.Millisecond

// silent reports whether the newest request was not answered, and somebody goes on asking: a
// caller that has left may have been the only one that did. queues.mu is held.
func (q *queue) silent() bool { return !q.since.IsZero() && time.Since(q.failed) < longestFailure }

// unanswered reports whether the waiter has had no answer for as long as it waits for one.
// queues.mu is held.
func (w *waiter) unanswered() bool {
	since := w.silentSince()
	return !since.IsZero() && time.Since(since) >= w.lock.retries.Total
}

// answered notes that the server has answered a request that was sent at sent, which may be
// before the newest failure. queues.mu is held.
func (q *queue) answered(sent time.Time) {
	q.since, q.trouble = time.Time{}, nil
	if sent.After(q.newest) {
		q.newest = sent
	}
}
