package rlock

import (
	"time"

	"github.com/go-rlock/rlock/internal/kind"
)

// news is the waiters' latest knowledge from the server. The waiters of a queue share the news, and
// queues.mu guards it.
type news struct {
	warned  time.Duration     // the longest wait in the log
	refusal *NotAcquiredError // the newest refusal; nil if a request has failed since
	askAt   time.Time         // when the first asker with a place of its own asks again, if nothing happens: of a fair lock, for all
	clock   moment            // the server's clock
	since   time.Time         // when requests began to fail; zero if the newest was answered
	trouble error             // the newest error since then
	failed  time.Time         // when trouble came
	newest  time.Time         // when the newest answered request was sent
	served  bool              // the server has answered a waiter, or granted the lock to this client, since the first waiter came
	denied  time.Time         // when the server first refused to serve a waiter; zero if the newest request was answered
	short   replicaShortage   // of grants
	untold  time.Time         // when the server has last refused to tell a waiter that the lock is free; see queue.cannotTell

	// forgotten is when the newest request was sent that found the server without our tickets. All
	// waiters were told. A missing ticket taken before then is the same loss, and is not reported again.
	forgotten time.Time
}

// fails notes that a request got no answer, which is known now.
func (n *news) fails(err error, now time.Time) {
	if !n.silent(now) {
		n.since, n.refusal, n.denied = now, nil, time.Time{}
	}
	n.trouble, n.failed = err, now
}

// silentSince returns since when a waiter that came at came has had no answer while requests have failed:
// since the first failure of any waiter, but not before came. So all give up together, not in turn. It is
// zero if the newest request was answered, or nobody has asked for a while since the failure.
func (n *news) silentSince(came, now time.Time) time.Time {
	switch {
	case !n.silent(now):
		return time.Time{}
	case n.since.After(came):
		return n.since
	}
	return came
}

// longestFailure is longer than the time from a failed attempt to the end of the next attempt.
const longestFailure = 2*kind.MaxAttempt + 500*time.Millisecond

// silent reports whether the newest request was not answered, and somebody goes on asking: the only
// asking caller may have left.
func (n *news) silent(now time.Time) bool {
	return !n.since.IsZero() && now.Sub(n.failed) < longestFailure
}

// untoldFor is how long waiters do not rely on messages after the server has refused a message.
const untoldFor = time.Minute

// tells reports whether the server may be expected to tell a waiter that its turn has come.
func (n *news) tells() bool { return n.untold.IsZero() || time.Since(n.untold) >= untoldFor }

// deniedFor notes a refusal to serve, and returns for how long the server has refused.
func (n *news) deniedFor() time.Duration {
	if n.denied.IsZero() {
		n.denied = time.Now()
	}
	return time.Since(n.denied)
}

// refused notes the answer to a request sent at sent that somebody else has the lock.
func (n *news) refused(sent time.Time, refusal *NotAcquiredError) {
	n.answered(sent)
	n.refusal = refusal
}

// answered notes an answer of the server. sent is when its request was sent, perhaps before the newest
// failure; zero if the answer will be noted once more.
func (n *news) answered(sent time.Time) {
	n.since, n.denied, n.trouble, n.served = time.Time{}, time.Time{}, nil, true
	if sent.After(n.newest) {
		n.newest = sent
	}
}
