package rlock

import (
	"context"
	"time"
)

// Trace has functions that a client calls at events of its locks. Use them for spans, metrics, progress
// output and tests. Functions that are nil cost nothing. The client holds no mutex while it calls a
// function, and can call several functions at the same time.
//
// The goroutine that locks or unlocks calls Start, Acquired and Released, and continues when the
// function returns. These functions must not end their goroutine, as FailNow of a test does, because
// the lock call would then not return its hold.
//
// A separate goroutine calls Waiting, Renewed, NotRenewed and Lost a little later, in the order of the
// events. This goroutine also writes to the Logger. No lock depends on this goroutine, but while one of
// these functions or the Logger blocks, it reports nothing else. Up to 8,192 reports are queued.
// Further reports are dropped, and the log says how many. [Client.Close] waits for the queued reports,
// so a function must not call Close.
//
// If a function panics, the panic is logged and otherwise ignored. A multi lock is reported as one
// lock. Of its members, only refusals, renewals and losses are reported.
type Trace struct {
	// Start is called at the beginning of a lock call. It must return ctx or a context derived from it,
	// which is then the context of the requests, and of Waiting and Acquired. The context of the hold
	// does not descend from it.
	Start func(ctx context.Context, a Attempt) context.Context
	// Waiting is called when Redis has refused a request of a waiting call.
	Waiting func(ctx context.Context, r Refusal)
	// Acquired is called at the end of a lock call, whether it has acquired the lock or not. There is
	// one call of Acquired for each call of Start.
	Acquired func(ctx context.Context, a Acquisition)
	// Renewed is called when Redis has renewed a lease.
	Renewed func(r Renewal)
	// NotRenewed is called when a renewal got no answer in time, or an error that does not show whether
	// the lock is still held. The client repeats the renewal until the lock is lost.
	NotRenewed func(f FailedRenewal)
	// Lost is called when a lock was lost.
	Lost func(l Loss)
	// Released is called after the Unlock that ends an acquisition. ctx has the values of the context
	// of the Unlock, but does not end.
	Released func(ctx context.Context, r Release)
}

// Attempt describes the beginning of a lock call.
type Attempt struct {
	Lock string // the name
	Kind Kind
}

// Refusal describes an answer of Redis to a waiting call: another holder has the lock.
type Refusal struct {
	Lock   string
	Kind   Kind
	Holder string        // as in [NotAcquiredError]
	TTL    time.Duration // the rest of the holder's lease; negative if the lease has no end
	At     time.Time
}

// Acquisition describes the end of a lock call.
type Acquisition struct {
	Lock      string
	Kind      Kind
	Outcome   Outcome
	Owner     string        // as [Hold.Owner]; "" if the call did not acquire the lock
	Token     int64         // as [Hold.Token]; 0 if the call did not acquire the lock
	Contended bool          // the call had to wait for another holder
	Waited    time.Duration // time from the beginning of the call until it acquired the lock or gave up
	Tries     int           // number of requests for the lock since the client answered the waiting call before; 1 if the lock was free; 0 for a TryLock, or if another call's request served this one
	Wakeups   Wakeups       // why the call was woken in that time
	Err       error         // nil if the call acquired the lock
	Group     string        // as in [Stats]; "" without a group
}

// Renewal describes a lease that was renewed.
type Renewal struct {
	Lock   string
	Kind   Kind
	Owner  string
	Token  int64
	Until  time.Time     // as [Hold.Until] after this renewal
	Margin time.Duration // the time that was left until the old Until; if it gets smaller with each renewal, the lock will soon be lost
	Lease  time.Duration // the length of the lease of which Margin was left; up to 2.5 s for the first renewal after a message has granted the lock
}

// FailedRenewal describes an attempt to renew a lease whose outcome is not known.
type FailedRenewal struct {
	Lock  string
	Kind  Kind
	Owner string
	Token int64
	Until time.Time // as [Hold.Until]: the lock is lost shortly before, unless a later attempt succeeds
	Err   error
}

// Loss describes a lock that was lost.
type Loss struct {
	Lock  string
	Kind  Kind
	Cause LossCause
	Held  time.Duration // how long it was held; 0 for a lock that was only kept, see [WithRetention]
	Err   *LostError
	Group string // as in [Stats]; "" without a group
}

// Release describes an acquisition that was ended by an Unlock.
type Release struct {
	Lock    string
	Kind    Kind
	Owner   string
	Token   int64
	Outcome Outcome // [OutcomeReleased]; [OutcomeUnavailable] if the release continues in the background; or [OutcomeLost]
	Held    time.Duration

	HandedOff bool   // true if its acquisition had the outcome [OutcomeHandedOff]
	Group     string // as in [Stats]; "" without a group
}
