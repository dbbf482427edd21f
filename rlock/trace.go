package rlock

import (
	"context"
	"time"
)

// Trace has functions for the events of a client's locks: for spans, metrics, progress lines and
// tests. Unset functions cost nothing. The client calls them without any mutex held, possibly
// several at once. The goroutine that locks or unlocks calls Start, Acquired and Released, and
// waits for the return. A goroutine for reports, also the writer of the log, calls Waiting,
// Renewed, NotRenewed and Lost a little later, in the order of events: no lock depends on this
// goroutine, but while a function or the Logger does not return, the goroutine tells nothing
// else. Up to 8,192 reports wait, and the log says how many more were dropped.
// [Client.Close] waits for the reports, so a Trace function must not call Close. A panic of a
// function is logged and otherwise ignored. Start, Acquired and Released must not end their
// goroutine, as FailNow of a test does: the call of Lock would not return the hold to anybody.
//
// A multi lock is one lock here: of the members, only refusals, renewals and losses are told.
type Trace struct {
	// Start: a call wants a lock. The returned context, derived from ctx, is the context of
	// requests, Waiting and Acquired; the context of a hold does not descend from it.
	Start func(ctx context.Context, a Attempt) context.Context
	// Waiting: a request of a waiting call was refused.
	Waiting func(ctx context.Context, r Refusal)
	// Acquired: a call has ended, with or without the lock, as the outcome says. Each Start
	// has one Acquired.
	Acquired func(ctx context.Context, a Acquisition)
	// Renewed: the server has renewed a lease.
	Renewed func(r Renewal)
	// NotRenewed: an attempt to renew a lease had no answer in time, or an error without
	// meaning for the lease. The renewal is tried again until the trusted window ends.
	NotRenewed func(f FailedRenewal)
	// Lost: a grant ended against the will of its holder.
	Lost func(l Loss)
	// Released: an acquisition has ended by an Unlock. ctx is the context of the Unlock,
	// without the end of that context.
	Released func(ctx context.Context, r Release)
}

// Attempt is a call that wants a lock.
type Attempt struct {
	Lock string // the name
	Kind Kind
}

// Refusal is an answer of the server to a call that waits: somebody else holds the lock.
type Refusal struct {
	Lock   string
	Kind   Kind
	Holder string        // as in [NotAcquiredError]
	TTL    time.Duration // the rest of the holder's lease, negative without an end
	At     time.Time
}

// Acquisition is the end of a call for a lock.
type Acquisition struct {
	Lock      string
	Kind      Kind
	Outcome   Outcome
	Owner     string        // as [Hold.Owner]; "" without the lock
	Token     int64         // as [Hold.Token]; 0 without the lock
	Contended bool          // the call had to wait for somebody
	Waited    time.Duration // from the call until it had the lock, or gave up
	Tries     int           // requests of the queued call, one for a free lock; 0 for a TryLock, and for a reader without a place in the queue
	Wakeups   Wakeups       // the causes of the call's wake-ups
	Err       error         // nil if the call has the lock
}

// Renewal is a lease that was renewed.
type Renewal struct {
	Lock   string
	Kind   Kind
	Owner  string
	Token  int64
	Until  time.Time     // the trusted window ends then, as soon as the watchdog has noted it
	Margin time.Duration // the rest of the window before: margins shrink before a lease is lost
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
