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
// There is no way back; a call that locks again gets a new grant.
//
//	asking ──► owned ──► released
//	   │          │          ▲
//	   │          └──► lost  │
//	   └─────────────────────┘
//
//	asking    the server has not granted it yet; a caller that gives up releases it
//	owned     it has holds, and is renewed
//	released  its last hold was unlocked; the server is told, or another hold is handed the lock
//	lost      ended against the holder's will: the contexts of its holds have ended
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
// A watchdog renews the lease when a third of it is over. What ends a grant against the
// holder's will is reported through the context, with a [*LostError] as its
// [context.Cause]: a removed or replaced key at the next renewal at the latest,
// an unreachable server at the end of the window, without waiting for any reply.
//
// # Who holds it, who waits
//
// While a client holds a lock for long, or waits for one, it says on the server who it is,
// and what for if a lock is made [WithPurpose]: see [Identity]. `rlock top` and `inspect`
// show it. Nothing in this package reads it, and no lock depends on it.
//
// # Waiting
//
// The goroutines of a client that want the same lock queue in memory, first come,
// first served, and the first of them asks the server for all. Clients queue on the
// server: in a sorted set beside the lock, `rlock_queue:{name}`, which has a ticket for
// each client that waits for a plain lock, and for each call that waits for a fair one.
// The script that releases a lock passes it on to the first ticket: it writes the
// owner of that ticket into the lock, with a lease of up to 2.5 s (its claim), and tells
// its client by one message on a channel of that client, `rlock_channel:{name}:<client>`.
// The waiter enters on the message alone. Nobody else is woken, however many wait.
//
// A call of [Lock.Lock] takes this way:
//
//  1. It joins the queue in memory. Unless it is the first there, it sleeps.
//  2. The first asks for the lock, without a ticket unless its client listens to the channel
//     already. Most locks are free: that was all.
//  3. If the server refuses, it subscribes to its client's channel. When the server has
//     confirmed that, it asks again and leaves a ticket, for which it will get a message.
//  4. The message grants it the lock. Its trusted window counts from a moment that is
//     surely not after the grant, reckoned from the newest answer of the server, and
//     the first renewal makes the claim the lease that was asked for.
//
// A waiter is in one of these states. Except while it asks, it may be given a grant of its
// own client in memory:
//
//	blocked ──► asking ──► queued ──► (has the lock, or gives up)
//	             ▲            │
//	             └────────────┘ wake-up, doubt, or time
//
//	blocked  another waiter is before it, or its client holds the lock
//	asking   a request is under way
//	queued   the server refused: it sleeps until a message or a timer wakes it
//
// A waiter that queues asks again after a message without a grant, when its subscription
// was lost or is confirmed anew, at the end of the holder's TTL (the first ticket at once,
// the others 0.2 to 0.6 s later), and without a message after 1, 2 and 4 s and then every
// 5 s; later if many wait. Such a request repairs whatever was lost on the server. A waiter
// without a subscription asks after 50 ms, doubling to 1 s, and each 100 ms if it has the
// first ticket.
//
// And the lock itself:
//
//	          free ◄───────────────────────────────┐ nobody waits
//	           │ a request                         │
//	           ▼                                   │
//	┌───► held: lease, renewed ──► released ───────┤
//	│          │                                   │ the first ticket
//	│          │ its lease ends                    ▼
//	│          └──► free, and whoever asks     granted: claim, at most 2.5 s
//	│               passes it on                   │ the waiter renews it
//	└──────────────────────────────────────────────┘ (or lets it end, as a holder may)
//
// A client that is not subscribed is sent nothing, and passed over in the same script: a single
// server knows who is, and so does the node of a cluster with sharded channels. A client that
// was granted the lock and let the claim lapse loses all its tickets for that lock. If the
// message is for a waiter that has left, its client releases the lock at once, which passes it
// on.
//
// Redisson's clients cannot queue. They listen on the unlock channel,
// `redisson_lock__channel:{name}`. While any connection does, a release leaves the lock
// free, announces it there, and tells the first ticket to ask, so that both sides have
// a chance. Clients of this library listen there only while Redisson, or a lock
// [WithPolling], holds the lock.
//
// Plain locks are not fair: a call that finds the lock free gets it, also before those who
// queue. The queue decides who gets a lock that is released while others wait for it.
//
// An Unlock hands the grant on to the next goroutine in the queue in memory, as often and
// for as long as [WithHandoff] allows. Then the lock is released on the server, and the
// next goroutine of this client takes a ticket behind those of the others. With
// [WithRetention] the grant may stay with the client although no goroutine of it waits:
// until its next call takes it, or another client recalls it.
//
// Requests that are sent to one server at the same time share pipelines, and most scripts
// of one kind in a pipeline become one. No request waits for others to join it. When a
// caller gives up, its request is taken back if it was not sent yet; what a request that was
// sent acquires is released when its answer comes. While more is left behind than a slow
// server, or master of a cluster, can release, no new attempts are sent to it.
//
// # Kinds
//
// Another kind of lock is something else on the wire (internal/kind) behind the same
// [Lock], with the same methods, nesting, renewal and loss:
//
//   - [Client.NewFairLock] grants in the order of arrival, over all processes.
//   - [Client.NewRWLock] has readers and a writer, with Redisson's among them.
//   - [NewMultiLock] holds several locks, or none.
//   - [NewQuorumLock] is held by the owner on whom a majority of independent servers agrees.
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
// A holder that is stopped for longer than its lease, in the middle of a statement, goes on
// with it although somebody else may hold the lock. Only a resource that checks the fencing
// token refuses that ([WithFencing]). Redis replicates asynchronously: a failover may forget a
// grant, which [WithReplicas] makes unlikely and only [NewQuorumLock] rules out,
// unless one of its servers forgets while it runs. A server that evicts keys may
// forget a grant too. The holder then learns of it at the next renewal, and so does the
// goroutine to which it has handed the grant on. A holder [WithoutRenewal] learns of it only
// at the end of its lease.
//
// Only fair locks have a strict order among processes: see above.
package rlock
