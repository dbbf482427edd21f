package rlock

import (
	"time"

	"github.com/go-rlock/rlock/internal/kind"
)

// news is what the waiters of a queue have last learned from the server. They share it, and
// queues.mu guards it.
type news struct {
	warned  time.Duration     // the longest wait that the log tells of
	refusal *NotAcquiredError // the newest one; nil if a request has failed since
	askAt   time.Time         // of a fair lock: when the first waiter asks again for all, if no message arrives
	clock   moment            // the server's clock
	since   time.Time         // when requests began to fail; zero if the newest was answered
	trouble error             // the newest error since then
	failed  time.Time         // when it came
	newest  time.Time         // when the newest request that was answered was sent
	short   replicaShortage   // of grants
	untold  time.Time         // when the server has last refused to tell a waiter that the lock is free; see queue.cannotTell

	// forgotten is when the request was sent that found out last that the server had forgotten
	// tickets. All waiters were told: that another ticket from before is gone is no news.
	forgotten time.Time
}

// fails notes that a request got no answer.
func (n *news) fails(err error) {
	now := time.Now()
	if !n.silent(now) {
		n.since, n.refusal = now, nil
	}
	n.trouble, n.failed = err, now
}

// silentSince returns since when a waiter that came at came has had no answer while requests
// have failed: since the first failure of any waiter, but not from before this one came. So
// all give up together, not one after the other. It is zero if the newest request was answered,
// or nobody has asked for a while since it failed.
func (n *news) silentSince(came, now time.Time) time.Time {
	switch {
	case !n.silent(now):
		return time.Time{}
	case n.since.After(came):
		return n.since
	}
	return came
}

// longestFailure is longer than it takes from a failed attempt to the end of the next one.
const longestFailure = 2*kind.MaxAttempt + 500*time.Millisecond

// silent reports whether the newest request was not answered, and somebody goes on asking: a
// caller that has left may have been the only one that did.
func (n *news) silent(now time.Time) bool {
	return !n.since.IsZero() && now.Sub(n.failed) < longestFailure
}

// untoldFor is how long waiters do not rely on messages after the server has refused one.
const untoldFor = time.Minute

// tells reports whether the server may be expected to tell a waiter that its turn has come.
func (n *news) tells() bool { return n.untold.IsZero() || time.Since(n.untold) >= untoldFor }

// answered notes that the server has answered a request. sent is when that was sent, which may
// be before the newest failure; zero if the answer will be noted once more.
func (n *news) answered(sent time.Time) {
	n.since, n.trouble = time.Time{}, nil
	if sent.After(n.newest) {
		n.newest = sent
	}
}
