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
	if left(l.last()) <= l.grace {
		return errNotRenewed
	}
	return nil
}

// last is the time of the latest possible KILL.
func (l *leash) last() time.Time { return l.until().Add(-l.margin) }

// killAt is the time of the KILL after a TERM that is sent now.
func (l *leash) killAt() time.Time {
	if at := time.Now().Add(l.grace); at.Before(l.last()) {
		return at
	}
	return l.last()
}

// next is when lost may next change, unless the held context ends before.
func (l *leash) next() time.Duration { return left(l.last()) - l.grace }

// left returns the time until t by the clock that is further on: the monotonic
// one stands still while the machine is suspended.
func left(t time.Time) time.Duration {
	now := time.Now()
	return min(t.Sub(now), t.Round(0).Sub(now.Round(0)))
}
