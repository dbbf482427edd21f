// Package watchdog keeps leases alive and says in time when one is lost.
//
// A lease is a right that a server grants for a bounded time and that its
// holder prolongs while it needs it. One [Scheduler] does this for every lease
// of a process, with a single goroutine. It knows neither the server nor what
// the leases protect: a [RenewFunc] sends, a callback hears of the loss.
//
// # States
//
// An entry is held until exactly one of five things happens to it, and final
// from then on:
//
//   - stopped: its owner called [Entry.Stop]; nobody is told.
//   - passed on: [Entry.Pass] gave what is left of the lease to another entry; nobody is told.
//   - refused: the server said that the lease is gone ([ErrRefused]).
//   - lapsed: its trusted window was about to close ([ErrLapsed]).
//   - closed: the scheduler was closed ([ErrClosed]).
//
// The last three are a loss, and are reported through [Lease].OnLost after the
// entry has become final. No renewal answered later can bring an entry back.
//
// # Trusted window
//
// The server starts to count when the request arrives, the holder cannot know
// when that was. It therefore counts from the moment before the request was
// sent, so that a slow reply never lengthens trust, and takes off an allowance
// for clocks of unequal speed: [Until] is send time + lease time − drift, with
// Redlock's drift of lease/100 + 2ms (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/).
// Every confirmed request gives such a window by its own send time, also one
// that was overtaken by a later one; the latest end counts. [Guard] before that
// end the lease is given up, while the holder still has the time to stop.
//
// Two clocks must agree that a window is open. The monotonic clock cannot be
// set, but stands still while the machine is suspended (golang/go#24595); the
// wall clock shows that time, but can be set. Setting it forward beyond the end
// of a window costs the lease, since it looks the same as a suspension.
//
// # Renewal
//
// A lease is renewed a third of its length after the last confirmed request was
// sent. The first renewal comes at a random point between a sixth and a third,
// so that leases taken together do not come due together for ever after.
// Whatever is due goes out with what is nearly due, in batches, each in a
// goroutine of its own.
//
// # Failure
//
// An attempt is bounded by a sixth of the lease, and when it starts the next
// one is already set for the end of that bound: retries depend on no reply.
// An error only brings the next attempt forward, with jittered back-off. An
// attempt may so be overtaken; if all of them hang there are at most five to a
// lease, because none starts once it is lost.
//
// Loss is decided by the clocks alone and waits for nothing. After the process
// was stopped the loop is late: it looks at the windows first and renews only
// what is still trusted. [Entry.Check] compares the clocks itself, for a holder
// that must know before the loop has run. Until either has decided, a reply that
// proves a later window still counts.
package watchdog
