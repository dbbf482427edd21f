package watchdog

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrRefused is returned by a [RenewFunc] for a lease that is gone for good,
	// and is why it was lost.
	ErrRefused = errors.New("watchdog: lease refused")

	// ErrLapsed is why a lease was lost whose trusted window was about to close;
	// it is wrapped together with the error of the last renewal, if there was one.
	ErrLapsed = errors.New("watchdog: the lease is over")

	// ErrClosed is why a lease was lost that was held when the scheduler closed.
	ErrClosed = errors.New("watchdog: closed")
)

// Lease is what [Scheduler.Add] needs to know of a lease.
type Lease[K comparable] struct {
	Key      K             // what is renewed; need not be unique
	Duration time.Duration // length of the lease; less than 0 means 0
	Renew    time.Duration // what each renewal asks for; 0 or less means Duration
	Sent     time.Time     // time.Now() just before the request that took the lease was sent
	Fixed    bool          // never renewed: lost at the end of its window

	// OnLost, if not nil, is called once if the lease is lost, with an error
	// that wraps ErrRefused, ErrLapsed or ErrClosed. The scheduler's goroutine
	// may be the caller, so it must not block. No mutex is held meanwhile.
	OnLost func(error)
}

// Renewal is one lease to be renewed for Duration from now.
type Renewal[K comparable] struct {
	Key      K
	Duration time.Duration
}

// Left is the result of a [RenewFunc] for a lease that others extend: it was found
// held, and when the server looked, so much of it was left. The window moves
// accordingly. The longest that was left so far counts as the length of the lease, by which
// it is looked at again, and given up in time; but no more than Renew.
// Code that does not know it takes it for an unknown outcome, which extends nothing.
type Left time.Duration

// Error says what is left.
func (l Left) Error() string { return "watchdog: " + time.Duration(l).String() + " of the lease left" }

// RenewFunc renews leases and returns one result for each, in the same order:
// nil if renewed, [Left] if it was only looked at, ErrRefused (as errors.Is sees it) if
// the lease is gone, any other error if the outcome is unknown, upon which it is tried
// again.
//
// It is called from several goroutines, for one lease also while an earlier
// call hangs, and should return soon after ctx has ended. It must not change
// due. A panic is not recovered: it would pass for a server that is away.
type RenewFunc[K comparable] func(ctx context.Context, due []Renewal[K]) []error
