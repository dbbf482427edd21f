package watchdog

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrRefused means that the server has reported that the holder no longer holds the lease. A [RenewFunc]
	// returns ErrRefused for such a lease, and ErrRefused is then the reason of the loss.
	ErrRefused = errors.New("watchdog: lease refused")

	// ErrLapsed is the reason of a loss shortly before the end of the trusted window. If the last renewal
	// failed, the error also wraps the error of that renewal.
	ErrLapsed = errors.New("watchdog: the lease is over")

	// ErrClosed is the reason of a loss because the scheduler was closed.
	ErrClosed = errors.New("watchdog: closed")
)

// Lease describes a lease that you pass to [Scheduler.Add].
type Lease[K comparable] struct {
	Key      K             // identifies the lease for the RenewFunc; several leases can have the same key
	Duration time.Duration // length of the lease; a negative length counts as 0
	Renew    time.Duration // the length that each renewal requests; 0 or less means Duration
	Sent     time.Time     // time.Now() just before the request that acquired the lease was sent
	Fixed    bool          // the lease is never renewed, and is lost at the end of its window

	// OnLost is called once if the lease is lost, unless OnLost is nil. The error that it receives wraps
	// ErrRefused, ErrLapsed or ErrClosed, or is the cause of [Entry.Limit]. The goroutine of the scheduler can call
	// it, so OnLost must not block. The scheduler holds no mutex during the call.
	OnLost func(error)
}

// Renewal is one lease that a [RenewFunc] must renew. Duration is the length of the lease, measured from the
// renewal. Before is the length that the lease has until then. It is different from Duration if the renewal
// is the first one and Renew in [Lease] is different from its Duration.
type Renewal[K comparable] struct {
	Key      K
	Duration time.Duration
	Before   time.Duration
}

// Left is the time that is left of a lease. A [RenewFunc] returns it if another process extends the lease, and
// the server still has the lease. The trusted window is then extended to match. The longest Left so far, but no
// more than Renew of the [Lease], is used as the length of the lease, from which the times of the next request
// and of the loss are computed. Left is an error value, so code that does not know Left treats it as an unknown
// outcome, and does not extend the lease.
type Left time.Duration

// Error returns a text with the rest of the lease.
func (l Left) Error() string { return "watchdog: " + time.Duration(l).String() + " of the lease left" }

// RenewFunc renews leases and returns one result for each, in the order of due. The result is nil for a renewed
// lease, [Left] if the request has only checked the lease, and an error that matches ErrRefused for a lost
// lease. Any other error means that the outcome is not known, and the renewal is then repeated.
//
// Several goroutines call a RenewFunc. It can be called for a lease while an earlier call for the same lease is
// still in progress. A RenewFunc should return soon after ctx has ended, and must not change due. The scheduler
// does not recover a panic of a RenewFunc, because otherwise the panic would look like a server that does not
// respond.
type RenewFunc[K comparable] func(ctx context.Context, due []Renewal[K]) []error
