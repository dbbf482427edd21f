package main

import (
	"context"
	"errors"
	"time"
)

// leash is what the lease leaves to a command: when it must be told to end, and
// when it must be dead.
type leash struct {
	held   context.Context  // ends when the lock is lost
	until  func() time.Time // end of the trusted window; renewals move it
	grace  time.Duration    // from TERM to KILL
	margin time.Duration    // from KILL to the end of the trusted window

	// A lock that was waited for is held for a moment at first, until the first renewal. That may be
	// less than grace and margin of the whole lease, which are shares of the moment then.
	first                   time.Time // the end of the trusted window when the lock was acquired
	firstGrace, firstMargin time.Duration
}

func newLeash(held context.Context, until func() time.Time, grace, lease time.Duration) leash {
	first := until()
	window := left(first)
	return leash{held, until, grace, margin(lease), first, min(grace, window/2), min(margin(lease), margin(window))}
}

// margin is the time between KILL and the end of the trusted window of a lease:
// for this process to be scheduled, and for the kernel to end the others.
func margin(lease time.Duration) time.Duration { return lease / 50 }

var errNotRenewed = errors.New("the lease is about to end and was not renewed")

// lost tells why the command must end, nil if it need not yet. TERM must not
// wait for the held context if the grace is longer than what is left then.
func (l *leash) lost() error {
	if l.held.Err() != nil {
		return context.Cause(l.held)
	}
	if l.next() <= 0 {
		return errNotRenewed
	}
	return nil
}

// last is the time of the latest possible KILL, and grace how long before that TERM is due.
func (l *leash) last() (at time.Time, grace time.Duration) {
	until := l.until()
	if until.Equal(l.first) {
		return until.Add(-l.firstMargin), l.firstGrace
	}
	return until.Add(-l.margin), l.grace
}

// killAt is the time of the KILL after a TERM that is sent now.
func (l *leash) killAt() time.Time {
	last, grace := l.last()
	if at := time.Now().Add(grace); at.Before(last) {
		return at
	}
	return last
}

// next is when lost may next change, unless the held context ends before.
func (l *leash) next() time.Duration {
	last, grace := l.last()
	return left(last) - grace
}

// left returns the time until t by the clock that is further on: the monotonic
// one stands still while the machine is suspended.
func left(t time.Time) time.Duration {
	now := time.Now()
	return min(t.Sub(now), t.Round(0).Sub(now.Round(0)))
}
