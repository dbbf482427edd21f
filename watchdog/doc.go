// Package watchdog renews leases, and reports in time when a lease is lost.
//
// A lease is a right that a server grants for a limited time. The holder renews the lease for as long as it
// needs it. One [Scheduler] renews all leases of a process, with a single goroutine. The scheduler does not
// know the server or the purpose of a lease. The scheduler calls a [RenewFunc], which sends the requests, and
// it calls OnLost of a [Lease] when that lease is lost.
//
// # States
//
// An [Entry] is a lease in a scheduler. It ends in exactly one of six ways, and never changes after that:
//
//   - stopped: the owner called [Entry.Stop]. OnLost is not called.
//   - passed on: [Entry.Pass] gave the rest of the lease to another entry. OnLost is not called.
//   - refused: the server answered that the holder no longer has the lease ([ErrRefused]).
//   - lapsed: the trusted window was about to end ([ErrLapsed]).
//   - limited: the time of [Entry.Limit] has come, even if the lease is still renewed.
//   - closed: the scheduler was closed ([ErrClosed]).
//
// The ways refused, lapsed, limited and closed are losses. OnLost is called after the entry has ended. No later answer
// to a renewal can revive an entry.
//
// In this example, the holder stops the entry and releases the lock while a renewal is in progress:
//
//	loop                        holder                      server
//	renew a:1 is sent
//	                            Stop: true
//	                            release a:1 is sent    ───► a:1 is removed
//	        the renewal arrives, late  ───────────────────► no owner a:1: refused
//	answer: refused; the entry has ended: OnLost is not called
//
// # Trusted window
//
// The server measures a lease from the arrival of the request, but the holder does not know this time. So the
// holder measures it from the time just before it sent the request. A slow request or reply therefore never
// makes the holder trust the lease for too long. The holder also subtracts an allowance for clocks that do not
// run at the same rate. So [Until] is sent + lease − drift, where sent is the time just before the request was
// sent, and drift is lease/100 + 2 ms, as in Redlock
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/). The time from sent to Until is
// the trusted window. If several requests are confirmed, the latest end of their windows counts. The entry ends
// before the window does, by the time that [Guard] returns, so that the holder has time to stop. This is the
// timeline of a lease of 30 s:
//
//	 0.0 s  a request is sent; the server executes the request at 1.4 s, the answer comes at 1.5 s
//	10.0 s  the first renewal at the latest; no answer, nor to any attempt after this one
//	26.7 s  the lease is given up: OnLost is called
//	29.7 s  the trusted window ends
//	31.4 s  the server ends the lease
//
// A lease is trusted only while two clocks show that its window has not ended. The monotonic clock cannot be
// set, but it stops while the machine is suspended (golang/go#24595). The wall clock includes the time of a
// suspension, but it can be set. If the wall clock is set forward beyond the end of a window, the lease is
// lost, because the scheduler cannot distinguish this from a suspension.
//
// # Renewal
//
// A lease is renewed when a third of its length has passed since the last confirmed request was sent. The first
// renewal happens at a random time between a sixth and a third, so that leases that were acquired together are
// not always renewed together. Renewals that are due are sent in batches, together with renewals that are
// nearly due. Each batch has a goroutine of its own.
//
// # Failure
//
// An attempt to renew a lease has a time limit of a sixth of the lease. When an attempt starts, the next
// attempt is already scheduled for the end of that limit, so retries do not depend on a reply, and a later
// attempt can overtake an earlier one. If an attempt fails before its limit, the next attempt starts after a
// random pause that grows with each failure. If all attempts hang, a lease has no more than five of them,
// because none starts after the loss.
//
//	attempt 1 hangs               sent at 10 s
//	attempt 2                     sent at 15 s, confirmed: the window counts from 15 s
//	attempt 1 is answered         confirmed, sent at 10 s: the later window stays
//	attempt 1 fails instead       sent before the confirmed attempt: the error is ignored
//
// Whether a lease has lapsed depends only on the clocks, and does not wait for a reply. If the process was
// suspended, the goroutine of the scheduler is late. The late goroutine checks the windows first, and renews
// only leases that are still trusted. A holder that cannot wait for this goroutine calls [Entry.Check], which
// reads the clocks itself. Until the goroutine or Check has ended the entry, a reply that proves a later end of
// the window still counts.
package watchdog
