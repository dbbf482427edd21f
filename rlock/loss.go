package rlock

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/watchdog"
)

// errFixedOver is the reason for the loss of an unrenewed lease.
var errFixedOver = errors.New("the fixed lease is over")

// lossReason is the holder's error for an error of the watchdog.
func (l *Lock) lossReason(err error, fixed bool) error {
	refused := errors.Is(err, watchdog.ErrRefused) || err == errGone
	switch {
	case err == errRemoved:
		return err
	case refused && l.joined:
		return errHolderEnded
	case refused:
		return errGone
	case errors.Is(err, watchdog.ErrClosed):
		return ErrClosed
	case err == ErrHeldTooLong, err == ErrNoProgress:
		return &overLimit{err, l.terms.limits}
	case l.joined:
		return fmt.Errorf("it was not confirmed in time: its holder does not renew it, Redis was silent, or this process stood still (%w)", err)
	case fixed:
		return fmt.Errorf("%w (%w)", errFixedOver, err)
	}
	why := "Redis was silent"
	if request.Unsent(err) {
		why = "there was no connection to Redis"
	}
	return fmt.Errorf("it was not renewed in time: %s, or this process stood still (%w)", why, err)
}

// check compares the clocks and reports whether the grant is still trusted. If not, the contexts
// have ended when check returns, even if the watchdog has not run yet.
func (g *grant) check() bool {
	if g.entry.Check() {
		return true
	}
	if err := g.entry.Err(); err != nil {
		g.lose(err)
	}
	return false
}

// interrupt ends the contexts of all live holds, and of the holds around.
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
