package rlock

import (
	"context"
	"errors"
	"time"
)

// nest adds a hold to the grant of in, a hold found in ctx.
func (w *waiter) nest(ctx context.Context, in *Hold) (context.Context, *Hold, error) {
	l, g := w.lock, in.grant
	if l.terms.fenced && g.token == 0 {
		return ctx, nil, &lockError{l.name, ErrInvalidOption, errors.New("the lock is held here already, without fencing: make the outer lock WithFencing as well")}
	}
	if l.terms.replicas.n > g.lock.terms.replicas.n {
		return ctx, nil, &lockError{l.name, ErrInvalidOption, errors.New("the lock is held here already, with fewer replicas: make the outer lock WithReplicas of as many")}
	}
	held, hold := g.derive(ctx, new(Hold), l, in)
	if err := g.add(hold); err != nil {
		hold.cancel(err)
		return ctx, nil, err
	}
	answered := false
	defer func() {
		if !answered { // a panic: see send
			g.retract(hold)
		}
	}()
	err := g.recount(w.ctx, w.retries())
	if answered = true; err != nil {
		g.retract(hold)
		if ownershipEnded(ctx) { // the outer hold was unlocked meanwhile
			err = tooLate(l.name, ctx)
		}
		return ctx, nil, err
	}
	return held, hold, nil
}

// retract takes back a nested hold after a failed request about the count.
func (g *grant) retract(h *Hold) {
	left, err := g.remove(h)
	ctx := context.Background()
	switch {
	case errors.Is(err, ErrLeaseLost) && left == 0: // the Unlocks of the earlier holds have left the rest to this Unlock
		g.lock.client.background(func() { g.releaseRest(ctx) })
	case err != nil:
	case left > 0:
		h.ended(ctx, time.Now(), nil) // if the outer hold was unlocked meanwhile
		g.tell(ctx, false)
	default: // all further holds were unlocked meanwhile
		g.lock.client.background(func() { h.ended(ctx, time.Time{}, g.release(ctx)) })
	}
}
