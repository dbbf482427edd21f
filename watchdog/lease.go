package watchdog

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrRefused is returned by a [RenewFunc] for a lease gone for good, and is the reason of
	// the loss.
	ErrRefused = errors.New("watchdog: lease refused")

	// ErrLapsed is the reason of a loss shortly before the end of the trusted window; with the
	// error of the last renewal, if any, in one wrapping error.
	ErrLapsed = errors.New("watchdog: the lease is over")

	// ErrClosed is the reason of a loss by the closing of the scheduler.
	ErrClosed = errors.New("watchdog: closed")
)

// Lease describes a lease for [Scheduler.Add].
type Lease[K comparable] struct {
	Key      K             // names the lease for the RenewFunc; need not be unique
	Duration time.Duration // length of the lease; less than 0 means 0
	Renew    time.Duration // the length asked for by each renewal; 0 or less means Duration
	Sent     time.Time     // time.Now() just before the sending of the request that took the lease
	Fixed    bool          // never renewed: lost at the end of the window

	// OnLost, if not nil, is called once if the lease is lost, with an error wrapping
	// ErrRefused, ErrLapsed or ErrClosed. The scheduler's goroutine may be the caller, so
	// OnLost must not block. No mutex is held meanwhile.
	OnLost func(error)
}

// Renewal is one lease to be renewed for Duration from now.
type Renewal[K comparable] struct {
	Key      K
	Duration time.Duration
}

// Left is the result of a [RenewFunc] for a lease extended by others: the server found the
// lease held, with so much left. The window moves accordingly. The longest remainder so
// far, but no more than Renew, counts as the length of the lease: this sets the times of
// the next look and of giving up. Code without knowledge of Left reads an unknown outcome, and
// extends nothing.
type Left time.Duration

// Error says how much is left.
func (l Left) Error() string { return "watchdog: " + time.Duration(l).String() + " of the lease left" }

// RenewFunc renews leases and returns one result for each, in the same order: nil for a
// renewed lease, [Left] after a mere look, ErrRefused (as errors.Is sees the error) for a lost
// lease, any other error for an unknown outcome: then the renewal is tried again.
//
// Several goroutines call a RenewFunc, for one lease also while an earlier call hangs. A
// RenewFunc should return soon after ctx has ended, and must not change due. A panic is not
// recovered: a recovered panic would look like a silent server.
type RenewFunc[K comparable] func(ctx context.Context, due []Renewal[K]) []error
