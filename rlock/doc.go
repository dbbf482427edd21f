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
// A lock is a hash in Redis with a TTL. The hash has one field for each owner, and the value of the
// field is the owner's hold count. A grant is one outermost acquisition of the lock, together with all
// holds that are nested in it. Each grant has an owner name of its own, `<client id>:<n>`. The name is
// never used again, so a repeated or late request cannot affect another grant.
//
//	acquire a:1 is sent, and held up    the caller gives up
//	                                    a:2, b:1 … hold the lock, one after another
//	release a:1 arrives                 a:1 is not the owner: no effect
//	acquire a:1 arrives                 refused; or the lock is free, and nobody holds it as a:1
//	release a:1 again                   not the owner: no effect; or the lock is free again
//
// A grant ends when its last hold is unlocked, or when the lock is lost. A grant that has ended cannot
// begin again. A call that locks again gets a new grant.
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
// A lock call returns a context that owns the lock. If you lock the same name with the same [Client]
// under this context, or under a context derived from it, the call does not wait. Nested calls can be
// in other functions, packages and goroutines. The hold count in Redis is the number of holds that are
// not unlocked. The lock is released when all nested holds and the outermost hold are unlocked, in any
// order. Goroutines that share such a context are one owner, and can hold the lock at the same time.
// [Detach] returns a context that does not own the lock.
//
// Ownership does not cross process boundaries by itself. A service that you call while you hold the
// lock owns it only after it has called [Lock.Join] with your [Hold.Proof]. The client of that service
// then asks Redis as often as a holder renews its lease whether the lock is still held.
//
// # The trusted window
//
// The server measures the lease by its own clock. The holder measures it by the clock of its host, and
// relies on the lease until
//
//	sent + lease − (lease/100 + 2ms)
//
// Here, sent is the time just before the client sent the request that was answered, so a delay of the
// request or the answer does not make the holder rely on the lease for too long. The term lease/100 +
// 2ms allows for two clocks that do not run at the same rate, as in Redlock. The time from sent until
// this end is called the trusted window. The client compares the end with the monotonic clock and with
// the wall clock, because the monotonic clock stops while a machine is suspended. A tenth of the lease
// before the end of the window, the client cancels the context of the hold. So the holder has a tenth
// of the lease to stop before another client can acquire the lock.
//
// # Renewal and loss
//
// One goroutine per client, the watchdog, renews each lease when a third of it is over. If a lock ends
// before its holder unlocks it, the context of the hold is canceled, and [context.Cause] returns a
// [*LostError]. If the key was removed or replaced, the context is canceled no later than the next
// renewal. If Redis cannot be reached, it is canceled a tenth of the lease before the end of the
// trusted window, without waiting for any reply.
//
// # Who holds it, who waits
//
// During a long hold or wait, a client writes a record to Redis that says which process it is. If the
// lock is made [WithPurpose], the record also contains the purpose. See [Identity]. The commands `rlock
// top` and `rlock inspect` show these records. No lock depends on them.
//
// # Waiting
//
// The goroutines of a client that want the same lock form a local queue in memory, and only the first
// of them sends requests to Redis. The clients form a queue in Redis, in the sorted set
// `rlock_queue:{name}`. The braces are part of the key. An entry of this queue is called a ticket. A
// client has one ticket for each plain lock that it waits for, and one for each waiting call of a fair
// lock.
//
// The script that releases a lock passes it on to the first ticket. The script writes the owner of that
// ticket into the lock, with a provisional lease of up to 2.5 s, which is called the claim. It then
// publishes one message on the channel of the owner's client, `rlock_channel:{name}:<client>`. When the
// message arrives, the lock call of the waiter returns, without another request. No other client is
// woken.
//
// A call of [Lock.Lock] proceeds in these steps:
//
//  1. The call joins the local queue. If another call is ahead of it in the queue, it sleeps.
//  2. The first call in the local queue requests the lock. If the client already listens to its
//     channel, the request also leaves a ticket. If the lock is free, as most locks are, the call
//     returns here.
//  3. If the server refuses, the client subscribes to its channel. When the server has confirmed this,
//     the call requests the lock again, and now leaves a ticket.
//  4. The message grants the lock. The client computes the trusted window from a time that is surely
//     before the grant, which it derives from the last answer of the server. The first renewal replaces
//     the provisional lease, the claim, by the full lease.
//
// A release between the two requests is not missed:
//
//	waiter b:2              Redis             holder a:1
//	acquire ──────────────► refused
//	                        free ◄─────────── release; nobody listens
//	SUBSCRIBE ────────────► confirmed: b:2 asks again
//	acquire, a ticket ────► granted
//
// The calls of a local queue share one asker, which sends their requests. The asker has the owner, the
// ticket and the one request in progress, so a call that gives up leaves all of them to the others.
// Another goroutine of the client can pass the lock on to a waiting call in memory at any time.
//
//	        refused
//	asking ◄────────► waiting for a message, an event, or time
//	   │                     │
//	   └──► the first waiter ◄┘
//	        has the lock
//
// The asker sends its request again
//
//   - when a message arrives that does not grant the lock,
//   - when the subscription was lost, or is confirmed again,
//   - when the holder's lease should be over, at once if it has the first ticket and otherwise 0.2 to
//     0.6 s later,
//   - if no message arrives, after 1, 2 and 4 s and then every 5 s, or less often if many clients wait.
//
// Such a request restores the ticket if the server has lost it. An asker whose client has no
// subscription sends its request again after 50 ms, and then after pauses that double up to 1 s. If
// such an asker has the first ticket, it sends a request every 100 ms.
//
// The lock itself has these states:
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
// If the client of the first ticket has no subscription, the same script skips it. A single server
// knows its subscribers, and so does the node of a cluster with sharded channels. If a client is
// granted the lock but does not renew the claim, it loses all of its tickets for that lock. If the
// message arrives for a waiter that has given up, the client releases the lock at once, and this
// release passes the lock on.
//
// Clients of Redisson cannot join the queue. Redisson's waiters listen on the unlock channel,
// `redisson_lock__channel:{name}`. While any connection listens on the unlock channel, the script that
// releases a lock leaves the lock free, publishes the release on this channel, and notifies the client
// of the first ticket, which then sends a request. So clients of both libraries can acquire the lock.
// Clients of this library listen on the unlock channel only while Redisson, or a lock [WithPolling],
// holds the lock.
//
// Plain locks are not fair. A call that finds the lock free acquires it even if other clients are
// queued. The queue decides only who gets a lock that is released while clients wait.
//
// While goroutines of the same client wait, Unlock passes the lock on to the next of them in memory,
// within the limits of [WithHandoff]. When a limit is reached, the lock is released in Redis, and the
// client gets a new ticket behind the other clients. With [WithRetention], the client keeps the lock
// even if none of its goroutines waits, until its next lock call or until another client asks for the
// lock.
//
// Requests that are sent to one server at the same time share a pipeline, and most scripts of the same
// kind in a pipeline are combined into one. No request is delayed in order to share a pipeline. When a
// caller gives up, the client drops its request if it was not sent yet. If the request was sent and
// acquires the lock, the client releases the lock when the answer arrives. If more such releases are
// pending than a slow server can execute, the client sends no new lock requests to that server.
//
// # Kinds
//
// All kinds of lock nest, renew their leases and report losses in the same way:
//
//   - [Client.NewFairLock] returns a lock that is granted in the order of arrival, across all
//     processes.
//   - [Client.NewRWLock] returns a lock that many readers or one writer can hold, together with
//     Redisson's RReadWriteLock.
//   - [NewMultiLock] returns a [MultiLock], which holds several locks or none.
//   - [NewQuorumLock] returns a lock that is held by the owner that a majority of independent servers
//     has accepted.
//
// # When Redis does not answer
//
// Every request can be repeated without harm, and the client repeats it until Redis answers or the time
// of the call is over. A request continues after its caller has given up. If such a request acquires
// the lock, the client releases the lock in the background. If Redis fails, a lock call never returns
// as if it had acquired the lock, and Unlock never returns nil as if it had released it.
//
// # What it does not promise
//
// If a holder is suspended for longer than its lease in the middle of a statement, it finishes the
// statement later, although another client may hold the lock by then. Only a resource that checks the
// fencing token can reject that statement, see [WithFencing].
//
// Redis replicates asynchronously, so a failover can lose a lock. [WithReplicas] makes this unlikely.
// Only [NewQuorumLock] prevents it, unless one of its servers loses its data while it runs. A server
// that evicts keys can lose a lock as well. If a failover or an eviction has removed a lock, its holder
// notices the loss at its next renewal, even if the lock was passed on to it in memory. A holder of a
// lock made [WithoutRenewal] notices the loss only when its context ends.
//
// Only fair locks have a strict order among processes.
package rlock
