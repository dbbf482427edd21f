// Package watchdog keeps leases alive and says in time when one is lost.
//
// A lease is a right granted by a server for a bounded time. The holder prolongs the lease for
// as long as necessary. One [Scheduler] does this for every lease of a process, with a single
// goroutine. The scheduler knows neither the server nor the purpose of a lease: a [RenewFunc]
// sends, a callback hears of the loss.
//
// # States
//
// An entry is held until exactly one of five ends, and never changes after the end:
//
//   - stopped: the owner called [Entry.Stop]; nobody is told.
//   - passed on: [Entry.Pass] gave what is left of the lease to another entry; nobody is told.
//   - refused: by the server's answer, the lease is gone ([ErrRefused]).
//   - lapsed: the trusted window was about to close ([ErrLapsed]).
//   - closed: the scheduler was closed ([ErrClosed]).
//
// The last three are a loss. [Lease].OnLost is called after the end of the entry. No later
// answer to a renewal can bring an entry back.
//
// A renewal against Stop: the holder releases the lock while a renewal is under way.
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
// The server counts from the arrival of the request; the holder cannot know this moment. So the
// holder counts from the moment before the sending: a slow reply never lengthens trust. An
// allowance for clocks of unequal speed is taken off: [Until] is send time + lease time − drift,
// with Redlock's drift of lease/100 + 2ms
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/). Every confirmed
// request gives such a window by the send time of the request, also if a later request was
// faster; the latest end counts. [Guard] before that end the lease is given up, and the
// holder still has time to stop. A lease of 30 s:
//
//	 0.0 s  a request is sent; the server executes the request at 1.4 s, the answer comes at 1.5 s
//	10.0 s  the first renewal at the latest; no answer, nor to any attempt after this one
//	26.7 s  the lease is given up: OnLost is called
//	29.7 s  the trusted window ends
//	31.4 s  the server ends the lease
//
// Two clocks must agree that a window is open. The monotonic clock cannot be set, but
// stands still while the machine is suspended (golang/go#24595). The wall clock shows the time of
// a suspension, but can be set. A wall clock set forward beyond the end of a window costs the
// lease: the scheduler cannot tell this from a suspension.
//
// # Renewal
//
// A lease is renewed a third of its length after the sending of the last confirmed request. The
// first renewal comes at a random point between a sixth and a third: leases taken together
// do not come due together for ever after. Due renewals go out together with nearly due
// renewals, in batches, each batch in a goroutine of its own.
//
// # Failure
//
// An attempt is bounded by a sixth of the lease. At the start of an attempt, the next attempt is
// already set for the end of the bound: retries depend on no reply. An error only brings the
// next attempt forward, with jittered back-off. So a later attempt may overtake an earlier
// attempt. If all attempts hang, a lease has at most five, because none starts after the loss.
//
//	attempt 1 hangs               sent at 10 s
//	attempt 2                     sent at 15 s, confirmed: the window counts from 15 s
//	attempt 1 is answered         confirmed, sent at 10 s: the later window stays
//	attempt 1 fails instead       sent before the confirmed attempt: the error is ignored
//
// Loss is decided by the clocks alone and waits for nothing. After the process stood still, the
// loop is late: the loop looks at the windows first, and renews only trusted leases.
// [Entry.Check] compares the clocks on its own, for a holder in need of the truth before the loop
// has run. Until the loop or Check has decided, a reply that proves a later window still counts.
package watchdog
