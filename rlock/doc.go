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
// may be inside together; [Detach] the context of those that must contend.
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
// # Waiting
//
// The goroutines of a client that want the same lock queue in memory, first
// come, first served, and only the head talks to Redis. Refused, it subscribes
// to the unlock channel, tries again once the subscription is confirmed, and
// then sleeps: until a message, a doubt about the connection, or the end of the
// holder's TTL. Nobody polls, unless the server does not let us subscribe or
// [WithPolling] asks for it. The order is that of Redisson's RedissonLock.lock.
//
// Who unlocks hands the grant on to the next goroutine in the queue, in memory, so
// often and so long as [WithHandoff] allows; then the lock is released on the
// server. A client that has released while others listen lets everybody else go
// first: it contends again when each of them had a turn, or none wants one.
//
// Requests that are sent at the same time share pipelines (group commit), and most
// scripts in a pipeline are one. Nobody waits in order to be in company, but for those
// who ask for a fair lock while their client passes it on in memory.
//
// # Kinds
//
// Another kind of lock is another protocol behind the same [Lock], with the same
// methods, nesting, renewal and loss:
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
// But for fair locks there is no order among processes.
package rlock
