package rlock

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-rlock/rlock/watchdog"
)

// lose ends an owned grant against the holder's will.
func (g *grant) lose(err error) {
	g.mu.Lock() // until the grant is complete
	entry := g.entry
	g.mu.Unlock()
	err = g.lock.lossReason(err, entry.Asks() == 0) // without it: methods of err may be the application's
	g.mu.Lock()
	first, acquisitions, idle := g.state == owned, g.current, len(g.holds) == 0
	if first {
		g.state, g.current = lost, 0
		g.loss = &LostError{g.lock.name, g.owner, g.token, err}
	}
	loss := g.loss
	g.mu.Unlock()
	if loss != nil {
		g.interrupt(loss) // by whoever comes first: each may rely on it
	}
	if first {
		g.entry.Stop()
		g.sweepPassed()
		switch {
		case !idle:
			g.reportLost(loss, acquisitions)
		case err != errGone && err != ErrClosed: // parked, or not taken yet: nothing depended on it
			g.sweep() // no Unlock will: a renewal that was not answered may have extended the lease
		}
		g.finish()
	}
}

// errFixedOver is why a lease was lost that nobody renewed.
var errFixedOver = errors.New("the fixed lease is over")

// lossReason is what the holder is told for an error of the watchdog.
func (l *Lock) lossReason(err error, fixed bool) error {
	refused := errors.Is(err, watchdog.ErrRefused) || err == errGone
	switch {
	case refused && l.joined:
		return errHolderEnded
	case refused:
		return errGone
	case errors.Is(err, watchdog.ErrClosed):
		return ErrClosed
	case l.joined:
		return fmt.Errorf("it was not confirmed in time: its holder does not renew it, Redis was silent, or this process stood still (%w)", err)
	case fixed:
		return fmt.Errorf("%w (%w)", errFixedOver, err)
	}
	return fmt.Errorf("it was not renewed in time: Redis was silent, or this process stood still (%w)", err)
}

// check compares the clocks and tells whether the grant is still trusted. If it
// is not, its contexts have ended: the watchdog may know before it has told.
func (g *grant) check() bool {
	if g.entry.Check() {
		return true
	}
	if err := g.entry.Err(); err != nil {
		g.lose(err)
	}
	return false
}

// interrupt ends the contexts of all live holds, and of those above them.
func (g *grant) interrupt(cause error) {
	g.mu.Lock()
	holds := slices.Clone(g.holds)
	g.mu.Unlock()
	for _, h := range holds {
		for ; h != nil; h = h.parent {
			h.cancel(cause)
		}
	}
}

// sweepPassed takes out the tickets of those to whom the lock was passed on one by one,
// if the release does not: the server may take one of them for the next.
func (g *grant) sweepPassed() {
	for _, owner := range g.run.passed {
		left := g.lock.newGrant(owner)
		left.leftState = true
		left.sweep()
	}
}
