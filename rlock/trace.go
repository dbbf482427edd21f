package rlock

import (
	"context"
	"time"
)

// Trace has functions that a client calls when something happens to its locks: for spans,
// metrics, progress lines and tests. Unset functions cost nothing. They are called without any mutex
// held, possibly several at once. Start, Acquired and Released are called by the goroutine
// that locks or unlocks, which waits for them. Waiting, Renewed, NotRenewed and Lost are
// called a little later, in the order in which it happened, by a goroutine that also
// writes the log: no lock depends on it, but as long as one of them, or the Logger, does
// not return, nothing else is told. Up to 8,192 reports wait for it, and the log
// says how many were dropped beyond that. [Client.Close] waits for them, and so must
// not be called by them. A function that panics is logged and otherwise ignored. None of
// Start, Acquired and Released may end its goroutine, as FailNow of a test does: the call
// that it is told of would not return its hold to anybody.
//
// A multi lock is one lock here: its members are told of when they are refused, renewed
// and lost, and otherwise not.
type Trace struct {
	// Start: a call wants a lock. The context it returns, derived from ctx, is the one
	// that requests are made with, and that Waiting and Acquired get; a hold's does not
	// descend from it.
	Start func(ctx context.Context, a Attempt) context.Context
	// Waiting: a request of a call that waits was refused.
	Waiting func(ctx context.Context, r Refusal)
	// Acquired: a call has ended, with the lock or without it, as the outcome says. It is
	// called once for each Start.
	Acquired func(ctx context.Context, a Acquisition)
	// Renewed: the server has renewed a lease.
	Renewed func(r Renewal)
	// NotRenewed: an attempt to renew a lease had no answer in time, or an error that says
	// nothing about the lease. It is tried again until the trusted window ends.
	NotRenewed func(f FailedRenewal)
	// Lost: a grant ended against the will of its holder.
	Lost func(l Loss)
	// Released: what an Acquired began has ended by an Unlock. ctx is that of the Unlock,
	// without its end.
	Released func(ctx context.Context, r Release)
}

// Attempt is a call that wants a lock.
type Attempt struct {
	Lock string // its name
	Kind Kind
}

// Refusal is an answer of the server to a call that waits: somebody else holds the lock.
type Refusal struct {
	Lock   string
	Kind   Kind
	Holder string        // as in [NotAcquiredError]
	TTL    time.Duration // what is left of the holder's lease, negative if it has no end
	At     time.Time
}

// Acquisition is how a call ended that wanted a lock.
type Acquisition struct {
	Lock      string
	Kind      Kind
	Outcome   Outcome
	Owner     string        // as [Hold.Owner]; "" without the lock
	Token     int64         // as [Hold.Token]; 0 without the lock
	Contended bool          // it had to wait for somebody
	Waited    time.Duration // from the call until it had the lock, or gave up
	Tries     int           // requests that it made while it queued, one for a free lock; 0 for a TryLock, and for a reader that did not queue
	Wakeups   Wakeups       // what it was woken by
	Err       error         // nil if it has the lock
}

// Renewal is a lease that was renewed.
type Renewal struct {
	Lock   string
	Kind   Kind
	Owner  string
	Token  int64
	Until  time.Time     // the trusted window ends then, as soon as the watchdog has noted it
	Margin time.Duration // what was left of the window before: it shrinks before a lease is lost
}

// FailedRenewal is an attempt to renew a lease whose outcome is unknown.
type FailedRenewal struct {
	Lock  string
	Kind  Kind
	Owner string
	Token int64
	Until time.Time // the trusted window ends then, and the hold with it, unless a later attempt succeeds
	Err   error
}

// Loss is a grant that ended against the will of its holder.
type Loss struct {
	Lock  string
	Kind  Kind
	Cause LossCause
	Held  time.Duration // 0 for a lock that was kept: see [WithRetention]
	Err   *LostError
}

// Release is an acquisition that ended by an Unlock.
type Release struct {
	Lock    string
	Kind    Kind
	Owner   string
	Token   int64
	Outcome Outcome // [OutcomeReleased], [OutcomeUnavailable] if the release goes on in the background, or [OutcomeLost]
	Held    time.Duration

	HandedOff bool // its acquisition was [OutcomeHandedOff]
}
