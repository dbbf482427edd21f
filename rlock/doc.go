// Package rlock is a reentrant distributed lock on Redis that shares its locks
// with Redisson.
//
//	client, err := rlock.New(rdb, nil)
//	mu := client.NewLock("invoice:42")
//	err = mu.Do(ctx, func(ctx context.Context) error {
//		return ship(ctx, order) // everything below uses this ctx
//	})
//
// # What a lock is
//
// A lock is a hash in Redis with one field per owner, the hold count as its
// value, and a TTL. An owner is one grant: one outermost acquisition. Its name
// is `<client id>:<n>` and never used again, so a request that is repeated, or
// arrives late, cannot touch another grant.
//
// A grant is held, then ended: by the Unlock of its last hold, or by its loss.
// There is no way back; whoever locks again gets a new grant.
//
// # Ownership travels in the context
//
// Lock returns a context that owns the grant. A Lock of the same name by the
// same [Client] under that context, or one derived from it, re-enters: over
// functions, packages and goroutines. The hold count on the server is the
// number of holds that are not unlocked yet, and the lock is free after as many
// Unlocks, in any order. Goroutines that share such a context are one owner and
// may be inside together; [Detach] takes the ownership out. Ownership does not leave
// the process by itself: a service that is called under the lock does not own it, unless
// it is given the [Hold.Proof] and joins the hold by [Lock.Join]. It then asks the server
// whether the hold is still there, as often as the holder renews it, and trusts the lease
// for as long as the holder may.
//
// # The trusted window
//
// A lease ends on the server's clock; the holder counts on its own. It trusts a
// lease until
//
//	sent + lease − (lease/100 + 2ms)
//
// where sent is the moment before the request that was answered went out, so
// that no delay on the way lengthens the trust, and the subtrahend allows for
// clocks that drift apart (Redlock's allowance). Both the monotonic and the
// wall clock must agree that the window is open, as the first stands still
// while a machine is suspended. A tenth of the lease before the window ends the
// grant is given up: the context is cancelled, which leaves the holder that time
// to stop before anybody else can enter.
//
// # Renewal and loss
//
// A watchdog renews the lease at each third of it. What ends a grant against the
// holder's will is reported through the context, with a [*LostError] as its
// [context.Cause]: a removed or replaced key at the next renewal at the latest,
// an unreachable server at the end of the window, without waiting for any reply.
//
// # Who holds it, who waits
//
// While a client holds a lock, or waits for one, for longer than a moment, it says on
// the server who it is, and [WithPurpose] says what for: see [Identity]. `rlock top` and
// `inspect` show it. Nothing in this package reads it, and no lock depends on it.
//
// # Waiting
//
// The goroutines of a client that want the same lock queue in memory, first come,
// first served, and the head asks the server for all of them. Clients queue on the
// server: in a sorted set beside the lock, `rlock_queue:{name}`, which has a ticket for
// each client that waits for a plain lock, and for each call that waits for a fair one.
// The script that releases a lock passes it on to the first ticket: it writes the
// owner of that ticket into the lock, with a lease of up to 6 s (its claim), and tells
// its client by one message on a channel of that client, `rlock_channel:{name}:<client>`.
// The waiter enters on the message alone. Nobody else is woken, however many wait.
//
// A call of [Lock.Lock] takes this way:
//
//  1. It joins the queue in memory. Unless it is the head, it sleeps there.
//  2. The head asks for the lock without a ticket. Most locks are free: that was all.
//  3. Refused, it subscribes to its client's channel, and when the server has confirmed
//     that, asks again and leaves a ticket. From then on it is told.
//  4. The message grants it the lock. Its trusted window counts from a moment that is
//     surely not after the grant, reckoned from the newest answer of the server, and
//     the first renewal makes the claim the lease that was asked for.
//
// A waiter is in one of these states, and in each of them, but while it asks, it may be
// given a grant of its own client in memory:
//
//	blocked ──► asking ──► queued ──► (has the lock, or gives up)
//	             ▲            │
//	             └────────────┘ wake-up, doubt, or time
//
//	blocked  another waiter is before it, or its client holds the lock
//	asking   a request is under way
//	queued   refused: it sleeps until it is told
//
// What has a waiter ask although it queues: a message without a grant, any doubt about
// the subscription (lost, confirmed anew), the end of the holder's TTL (the first in
// line at once, the others 0.2 to 0.6 s later), and 5 s in which nothing was heard.
// One request of that kind repairs whatever was lost on the server. A waiter that cannot
// hear asks after 50 ms, doubling to 1 s, and each 100 ms if it is the first in line.
//
// And the lock itself:
//
//	          free ◄───────────────────────────────┐ nobody waits
//	           │ a request                         │
//	           ▼                                   │
//	┌───► held: lease, renewed ──► released ───────┤
//	│          │                                   │ the first ticket
//	│          │ its lease ends                    ▼
//	│          └──► free, and whoever asks     granted: claim, at most 6 s
//	│               passes it on                   │ the waiter renews it
//	└──────────────────────────────────────────────┘ (or lets it end, as a holder may)
//
// Whom nobody hears is passed over within the same script: PUBLISH tells how many
// connections have received a message, on a single server and by SPUBLISH in a cluster.
// A client that was granted the lock and let the claim lapse loses all its tickets for
// that lock. A message for a waiter that has left makes its client release the lock at
// once, which passes it on.
//
// Redisson's clients cannot queue. They listen on the unlock channel,
// `redisson_lock__channel:{name}`; while any connection does, a release leaves the lock
// free, announces it there, and tells the first ticket to ask, so that both sides have
// a chance. Ours listen there only while an owner that is none of ours holds the lock.
//
// Plain locks are not fair: who asks for a lock that happens to be free gets it, also
// past those who queue; the queue decides to whom a lock goes that is released while
// others wait for it.
//
// Who unlocks hands the grant on to the next goroutine in the queue in memory, so often
// and so long as [WithHandoff] allows; then the lock is released on the server, and this
// client's next head takes a ticket behind those of the others. With [WithRetention] the
// grant may stay with the client although nobody here waits: until its next call takes
// it, or somebody elsewhere recalls it.
//
// Requests that are sent to one server at the same time share pipelines (group commit),
// and most scripts of one kind in a pipeline are one. Nobody waits in order to be in
// company. Whoever leaves takes his request along if it was not sent yet; the grant that
// comes of one that was sent is released when its answer comes. While more is left
// behind than a slow server can release, no new attempts are sent.
//
// # Kinds
//
// Another kind of lock is something else on the wire (internal/kind) behind the same
// [Lock], with the same methods, nesting, renewal and loss:
//
//   - [Client.NewFairLock] grants in the order of arrival, over all processes.
//   - [Client.NewRWLock] has readers and a writer, with Redisson's among them.
//   - [NewMultiLock] holds several locks, or none.
//   - [NewQuorumLock] is held by whom a majority of independent servers says.
//
// # When Redis does not answer
//
// Every request may be repeated, and is, until it is answered or its time is
// over. A request that its caller no longer waits for goes on without it, and
// what it acquires is released in the background. A failure of Redis is never
// taken for an acquired lock, and never silently for a released one.
//
// # What it does not promise
//
// Nothing done under a lease is safe once the holder is stopped for longer than
// the lease without noticing; only a resource that checks the fencing token is
// ([WithFencing]). Redis replicates asynchronously: a failover may forget a
// grant, which [WithReplicas] makes unlikely and only [NewQuorumLock] rules out,
// unless one of its servers forgets while it runs. A server that evicts keys may
// forget a grant too. The holder then learns of it at the next
// renewal, and so does whoever it has handed the grant on to.
//
// But for fair locks there is no strict order among processes: see above.
package rlock
