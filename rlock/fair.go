package rlock

import (
	"errors"

	"github.com/go-rlock/rlock/internal/kind"
)

// NewFairLock returns a lock granted in the order of arrival at the server, over all processes. A
// release grants the lock to the first waiter by one message, and wakes nobody else. So the cost
// of a hand-over does not grow with the number of waiters: two commands, the release and the
// next acquisition of the releasing client. If the first waiter is a goroutine of the same
// client, the answer to the release is the message. Goroutines of this client directly behind
// in the queue pass the lock on in memory, unless the lock has [WithoutHandoff] or
// [WithoutRenewal]. Calls of the client in the meantime take their tickets at once; calls of
// the same moment travel in one script on a single server. For the methods and the options
// see [Client.NewLock].
//
// Every waiting call has a ticket in the queue on the server, also several calls of one
// client; the client says for all of its calls every 5 s, or more often, that it is still there.
// A waiter keeps the place until the waiter acquires the lock or gives up, also while Redis is
// out of reach for less than a minute. The place is lost, and the waiter starts again at the
// end, if the turn comes and nobody hears: the connection for messages is gone, or the process
// stood still and let the claim lapse. [Lock.TryLock] does not queue, and succeeds only if
// nobody queues.
//
//   - A waiter whose process has died is passed over in the script of the release, on a
//     single server and with sharded channels in a cluster: a closed connection does not
//     count. A hanging waiter (a stopped process, a machine that is gone) delays the tickets
//     behind by its claim: the lease, but at most 2.5 s. The client then loses all of its
//     tickets, so this happens once. The other clients are asked then whether they live:
//     several hanging clients cost some 0.8 s more, however many there are.
//   - A waiter that gives up takes its ticket out, or passes on a grant of that
//     moment. If Redis cannot be reached, the waiter counts as dead.
//   - A holder that dies delays the first waiter by the rest of the lease. If the first
//     waiter is dead too, another waiter asks 0.2 to 0.6 s later.
//   - A lost message delays its waiter until the client notices that no messages
//     arrive: after 0.75 to 1 s, or up to 2.75 s if many clients wait or all have waited for
//     long. If only this message is lost, the client asks after a second, or as long again as
//     the first call has waited, and 5.5 s at most.
//   - A lock removed during hand-offs in memory delays the next waiter by a claim, as
//     the server may grant the lock to a waiter that has just had it.
//   - After a grant by a message the lease begins with the claim, and becomes the lease asked
//     for at the first renewal, within 0.9 s. With [WithoutRenewal] the waiter asks once
//     more for the full lease.
//
// Only the time of the server counts, and nothing stays on the server for longer than a minute
// after the last waiter.
//
// A fair lock is the lock of [Client.NewLock] with the same name, with the same queue: both kinds
// exclude and wake each other and can be inspected alike. But a call that takes the free lock by
// NewLock, or by Redisson's getLock, may overtake the queue. Redisson's own fair lock has a queue of
// another form. While such a queue exists for a name, the name is [ErrKeyConflict].
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
	case l.terms.retention > 0:
		l.refuse(errors.New("WithRetention does not apply to fair locks: they always go to the next in the queue, in whatever process"))
	}
	l.use(kind.NewFair(&c.server, c.opts.Prefix+name, l.terms.fenced))
	return l
}
