package rlock

import (
	"errors"

	"github.com/go-rlock/rlock/internal/kind"
)

// NewFairLock returns a lock that is granted in the order in which its waiters came to the
// server, over all processes. A release grants it to the first waiter by one message, and wakes
// nobody else. So the cost of a hand-over does not grow with the number of waiters: it is two
// commands, the release and the next acquisition of the client that has released. If the first
// waiter is a goroutine of the same client, the answer to the release is the message.
// Goroutines of that client that follow it directly in the queue pass the lock on in memory,
// unless it has [WithoutHandoff] or [WithoutRenewal]. Calls of the client that come meanwhile
// take their tickets at once; those that ask at the same time travel in one script on a single
// server. For the methods and the options see [Client.NewLock].
//
// Every waiting call has a ticket of its own in the queue on the server, also those of
// one client, which says for all of them every 5 s, or more often, that it is still there.
// A waiter keeps its place until it acquires the lock or gives up, also while Redis is out
// of reach for less than a minute. It is lost, and the waiter starts again at the end, if
// its turn comes and nobody hears: its client's connection for messages is gone, or its
// process stood still and let the claim lapse. [Lock.TryLock] does not queue, and
// succeeds only if nobody does.
//
//   - A waiter whose process has died is passed over in the script of the release, on a
//     single server and with sharded channels in a cluster: a connection that is closed
//     is not counted. One that hangs (a stopped process, a machine that is gone) delays
//     those behind it by its claim, which is the lease but at most 2.5 s; that costs all
//     other tickets of its client as well, so that it happens once. The other clients are asked then
//     whether they live: several that hang cost some 0.8 s more, however many they are.
//   - A waiter that gives up takes its ticket out, or passes on what it was granted
//     in that moment. If Redis cannot be reached, that is as if it had died.
//   - A holder that dies delays the first waiter by what is left of its lease. If that
//     one is dead too, another one asks 0.2 to 0.6 s later.
//   - A lost message delays the waiter that it is for until its client notices that no
//     messages arrive: after 0.75 to 1 s, or up to 2.75 s if many clients wait or all have
//     waited for long. If nothing is wrong but that one, its client asks after a second, or as
//     long again as its first call has waited, and 5.5 s at most.
//   - A lock that is removed while it is passed on in memory delays the next by a
//     claim, as the server may grant it to a waiter that has just had it.
//   - The lease of a hold that was granted by a message begins with the claim, and
//     becomes the one asked for at the first renewal, within 0.9 s. With
//     [WithoutRenewal] the waiter asks once more for the full lease.
//
// The time of the server is the only one that counts, and nothing stays there for
// longer than a minute after the last waiter.
//
// The lock is the one of [Client.NewLock] with that name, and has the same queue, so
// the two exclude and wake each other and can be inspected alike. But a call that takes it by
// NewLock while it is free, or by Redisson's getLock, may overtake those who queue. Redisson's
// own fair lock queues in another way. While its queue exists for a name, that name
// is [ErrKeyConflict].
func (c *Client) NewFairLock(name string, opts ...LockOption) *Lock {
	l := c.newLock(name, opts)
	l.terms.fair, l.terms.tickets, l.kind = true, true, fairKind
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
