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
// value, and a TTL. An owner is one grant: one outermost acquisition. The owner's name
// is `<client id>:<n>` and never used again, so a repeated or late request cannot
// touch another grant.
//
//	acquire a:1 is sent, and held up    the caller gives up
//	                                    a:2, b:1 … hold the lock, one after another
//	release a:1 arrives                 a:1 is not the owner: no effect
//	acquire a:1 arrives                 refused; or the lock is free, and nobody holds it as a:1
//	release a:1 again                   not the owner: no effect; or the lock is free again
//
// A grant is held, then ended: by the Unlock of its last hold, or by its loss.
// There is no way back; a call that locks again gets a new grant.
//
//	asking ──► owned ──► released
//	   │          │          ▲
//	   │          └──► lost  │
//	   └─────────────────────┘
//
//	asking    the server has not granted the lock yet; a caller that gives up releases the owner
//	owned     the grant has holds, and is renewed
//	released  the last hold was unlocked; the server is told, or another hold is handed the lock
//	lost      ended against the holder's will: the contexts of the holds have ended
//
// # Ownership travels in the context
//
// Lock returns a context that owns the grant. A Lock of the same name by the
// same [Client] under that context, or a context derived from it, re-enters: over
// functions, packages and goroutines. The hold count on the server is the
// number of live holds, and the lock is free after as many Unlocks, in any order.
// Goroutines with such a context are one owner and may be inside together; [Detach]
// takes the ownership out. Ownership does not leave the process alone: a service called
// under the lock owns the lock only after [Lock.Join] with the [Hold.Proof]. The service
// then asks the server whether the hold is still there, as often as the holder renews the
// lease, and trusts the lease for as long as the holder may.
//
// # The trusted window
//
// A lease ends on the server's clock; the holder counts by the holder's clock, and trusts a lease
// until
//
//	sent + lease − (lease/100 + 2ms)
//
// where sent is the moment before the sending of the answered request: no delay on the way
// lengthens the trust. The subtrahend allows for clocks that drift apart (Redlock's
// allowance). Both the monotonic and the wall clock must agree on the open window, as
// the monotonic clock stands still while a machine is suspended. A tenth of the lease before
// the end of the window the grant is given up: the context is cancelled, and the holder has that
// time to stop before anybody else can enter.
//
// # Renewal and loss
//
// A watchdog renews the lease when a third of the lease is over. Any end against the
// holder's will is reported through the context, with a [*LostError] as the
// [context.Cause]: a removed or replaced key at the next renewal at the latest,
// an unreachable server at the end of the window, without waiting for any reply.
//
// # Who holds it, who waits
//
// A client with a long hold or wait says on the server who it is, and for which purpose if
// the lock is made [WithPurpose]: see [Identity]. `rlock top` and `inspect` show this.
// Nothing in this package reads the records, and no lock depends on them.
//
// # Waiting
//
// The goroutines of a client that want the same lock queue in memory, first come,
// first served, and one request at a time is made for all of them. Clients queue on the
// server: in a sorted set beside the lock, `rlock_queue:{name}`, with a ticket for
// each client waiting for a plain lock, and for each call waiting for a fair lock.
// The script that releases a lock passes the lock on to the first ticket: the script writes the
// owner of that ticket into the lock, with a lease of up to 2.5 s (the claim), and tells
// the owner's client by one message on that client's channel, `rlock_channel:{name}:<client>`.
// The waiter enters on the message alone. Nobody else is woken, however many wait.
//
// A call of [Lock.Lock] takes this way:
//
//  1. The call joins the queue in memory. Unless first there, the call sleeps.
//  2. The first call asks for the lock, without a ticket unless the client listens to the
//     channel already. Most locks are free: that was all.
//  3. If the server refuses, the call subscribes to the client's channel. After the server's
//     confirmation, the call asks again and leaves a ticket, for a message later.
//  4. The message grants the lock. The trusted window counts from a moment that is surely
//     not after the grant, reckoned from the newest answer of the server, and the first
//     renewal turns the claim into the lease that was asked for.
//
// A release between the two requests is not missed:
//
//	waiter b:2              Redis             holder a:1
//	acquire ──────────────► refused
//	                        free ◄─────────── release; nobody listens
//	SUBSCRIBE ────────────► confirmed: b:2 asks again
//	acquire, a ticket ────► granted
//
// A waiter is in the line, or served. An asker asks for the line: it has the owner, the ticket and the one request
// under way, so a waiter that leaves takes nothing along. A waiter may be given a grant of the same client at any time.
//
//	        refused
//	asking ◄────────► waiting for a message, an event, or time
//	   │                     │
//	   └──► the first waiter ◄┘
//	        has the lock
//
// The asker asks again after a message without a grant; when the subscription was
// lost or is confirmed anew; at the end of the holder's TTL (the first ticket at once, the
// others 0.2 to 0.6 s later); and without a message after 1, 2 and 4 s and then every
// 5 s, later if many wait. Such a request repairs any loss on the server. Without a
// subscription it asks after 50 ms, doubling to 1 s, and each 100 ms with the
// first ticket.
//
// And the lock:
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
// A client without a subscription is sent nothing, and passed over in the same script: a single
// server knows the subscribers, and so does the node of a cluster with sharded channels. A client
// that was granted the lock and let the claim lapse loses all tickets for that lock. If the
// message comes for a waiter that has left, the client releases the lock at once, and the
// release passes the lock on.
//
// Redisson's clients cannot queue. They listen on the unlock channel,
// `redisson_lock__channel:{name}`. While any connection listens there, a release leaves the lock
// free, announces the release there, and tells the first ticket to ask: both sides have
// a chance. Clients of this library listen there only while Redisson, or a lock
// [WithPolling], holds the lock.
//
// Plain locks are not fair: a call that finds the lock free gets it, also before queued
// waiters. The queue decides about a lock that is released while others wait.
//
// An Unlock hands the grant on to the next goroutine in the queue in memory, as often and
// for as long as [WithHandoff] allows. Then the lock is released on the server, and the
// next goroutine of this client takes a ticket behind the other clients. With
// [WithRetention] the grant may stay with the client although no goroutine waits:
// until the client's next call takes the grant, or another client recalls the lock.
//
// Requests sent to one server at the same time share pipelines, and most scripts of one kind in
// a pipeline become one. No request waits for company. When a caller gives up, an unsent
// request is taken back; the acquisition of a sent request is released when the answer
// comes. While more is left behind than a slow server, or master of a cluster, can release,
// no new attempts are sent there.
//
// # Kinds
//
// Another kind of lock is another exchange with the server (internal/kind) behind the same
// [Lock], with the same methods, nesting, renewal and loss:
//
//   - [Client.NewFairLock] grants in the order of arrival, over all processes.
//   - [Client.NewRWLock] has readers and a writer, with Redisson's among them.
//   - [NewMultiLock] makes a [MultiLock], which holds several locks, or none.
//   - [NewQuorumLock] is held by the owner on whom a majority of independent servers agrees.
//
// # When Redis does not answer
//
// Every request may be repeated, and is, until an answer comes or the time is
// over. A request goes on after its caller has left, and an acquisition by such a
// request is released in the background. A failure of Redis is never taken for an
// acquired lock, and never silently for a released one.
//
// # What it does not promise
//
// A holder stopped for longer than the lease, in the middle of a statement, goes on with the
// statement although somebody else may hold the lock. Only a resource that checks the fencing
// token refuses the statement ([WithFencing]). Redis replicates asynchronously: a failover may
// forget a grant. [WithReplicas] makes this unlikely, and only [NewQuorumLock] rules it out,
// unless one of the servers forgets while it runs. A server that evicts keys may
// forget a grant too. The holder then learns of the loss at the next renewal, and so does the
// goroutine that was handed the grant. A holder [WithoutRenewal] learns of the loss only
// at the end of the lease.
//
// Only fair locks have a strict order among processes: see above.
package rlock
