package rlock

import (
	"errors"

	"github.com/go-rlock/rlock/internal/kind"
)

// NewFairLock returns a lock that is granted in the order in which the calls arrive at the server,
// across all processes. For the methods and options see [Client.NewLock].
//
// Every waiting call has its own place in a queue in Redis. A call keeps its place until it acquires
// the lock or gives up, even if Redis cannot be reached for up to a minute. A call loses its place if
// it does not react when its turn comes, because its connection for messages is broken or its process
// was suspended. It then continues to wait at the end of the queue. [Lock.TryLock] does not queue, and
// succeeds only if no call is queued.
//
// A release grants the lock to the first waiter by one message, and wakes no other waiter. So a
// hand-off costs two commands, however many calls wait: the release, and the next request of the client
// that has released. If neighbors in the queue are goroutines of the same client, they pass the lock on
// in memory, unless the lock is made [WithoutHandoff] or [WithoutRenewal]. While calls wait, their
// client confirms every 5 s or more often, for all of them at once, that it is alive.
//
// Waiters can be delayed in these cases:
//
//   - If a waiting process has died, the release skips it without delay, on a single server and in a
//     cluster with sharded channels.
//   - If a waiting process is suspended or its machine is lost, it delays the waiters behind it by the
//     lease, but no longer than 2.5 s, and until the client of the next waiter sends a request. The
//     longer the calls of that client have waited, the more rarely it does so, so the delay can be up
//     to 5.5 s. It happens only once, because the client of that process then loses all of its places.
//     Several such processes delay the others by about 0.8 s more in total.
//   - If a waiter gives up, it leaves the queue, or passes the lock on if it has just been granted. If
//     the waiter cannot reach Redis, the other waiters treat it as a process that has died.
//   - If a holder dies, the first waiter acquires the lock when the lease ends. If the first waiter has
//     died too, another waiter sends a request 0.2 to 0.6 s later.
//   - If a client receives no messages any more, it notices this after 0.75 to 1 s, or within 2.75 s if
//     many clients wait or all have waited for a long time. If a single message is lost, the client
//     sends a request after 1 s, or later if its first call has waited for longer than that, but within
//     5.5 s.
//   - If the lock is removed by force while it is passed on in memory, the next waiter is delayed by up
//     to 2.5 s.
//
// If a message has granted the lock, the lease is at first no longer than 2.5 s. The first renewal,
// within 0.9 s, extends it to the full lease. A lock made [WithoutRenewal] sends one more request for
// the full lease.
//
// The queue depends only on the clock of the server, and Redis removes it within a minute after the
// last waiter has left.
//
// A fair lock and a plain lock of the same name are the same lock with the same queue, so they exclude
// each other. However, a call of [Client.NewLock] or of Redisson's getLock that finds the lock free can
// overtake the queue. Redisson's own fair lock has a different queue. While there is such a queue for
// the name, calls return [ErrKeyConflict].
func (c *Client) NewFairLock(name string, opts ...LockOption) *Lock {
	l := c.newLock(name, fairKind, opts)
	l.terms.fair, l.terms.tickets = true, true
	switch {
	case l.terms.handoff.most > 0, l.terms.handoff.longest > 0:
		l.refuse(errors.New("WithHandoff does not apply to fair locks: they always go to the next in the queue, in whatever process"))
	case l.terms.replicas.n > 0:
		l.refuse(errors.New("WithReplicas: a fair lock is granted by the release of another, which does not wait for replicas"))
	case l.terms.polls:
		l.refuse(errors.New("WithPolling: a fair lock is granted by a message"))
	}
	l.use(kind.NewFair(&c.server, c.opts.Prefix+name, l.terms.fenced))
	return l
}
