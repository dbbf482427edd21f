package rlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// release frees the lock after the end of the last hold. The kind of a joined lock sends nothing.
func (g *grant) release(ctx context.Context) error {
	c := g.lock.client
	defer g.finish()
	g.entry.Stop()
	g.from.releases()
	sent := false
	defer func() {
		if !sent { // a panic: see send
			g.orphan().sweep()
		}
	}()
	a := send(ctx, g.lock, g.retry(min(time.Until(g.expires()), c.opts.UnlockTimeout)), g.requestRelease, nil)
	sent = true
	if a.Doubt { // the lost answer may have had a message to waiters of this client
		g.lock.withQueue((*queue).askFirst)
	}
	if g.from.ends()&ownerLate != 0 {
		g.orphan().sweep()
	}
	if g.from.doubt {
		g.orphan().sweepLater()
	}
	switch {
	case errors.Is(a.Err, lua.ErrNotOwner) && !a.Doubt:
		// Lost before the release. (After an attempt in doubt, that attempt may have released the lock.)
		loss := &LostError{g.lock.name, g.owner, g.token, errGone}
		if !g.began.IsZero() { // somebody has held the lock, and nobody can take it any more
			g.reportLost(loss, 0) // the hold ends with that: see Hold.ended
		}
		return loss
	case a.Err != nil && !errors.Is(a.Err, lua.ErrNotOwner):
		g.orphan().sweep()
		return a.Err
	}
	if refusal := a.Value.PublishErr; refusal != nil && !g.lock.terms.polls { // whoever polls expects a refusal
		c.warnPublish.Do(func() {
			c.log.Warn("rlock: the server refuses to announce releases; who waits elsewhere notices them when it asks again: allow it, see rlock doctor",
				"lock", g.lock.name, "error", refusal)
		})
	}
	return nil
}

// retry is the policy of a request repeated for total, also without a waiting caller.
func (g *grant) retry(total time.Duration) request.Policy {
	p := g.lock.policy
	p.Total, p.Stop = total, nil
	return p
}

// expires returns when the lease should have ended on the server: drift after the trusted
// window, and drift again as clocks may differ either way. The lease of a request executed
// late ends later by as much; only how long a release is repeated depends on this time.
func (g *grant) expires() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.entry.Until().Add(g.longest/50 + 4*time.Millisecond)
}

// releaseRest releases what a lost grant may still have on the server: the lease there
// outlives the trusted window by the guard and the drift, and has no end if somebody has
// removed the TTL of the key.
func (g *grant) releaseRest(ctx context.Context) {
	// Of a quorum lock only a majority of the servers has said so.
	if !errors.Is(g.lossOrNil(), errGone) || g.lock.kind == quorumKind {
		p := g.retry(min(time.Until(g.expires()), g.lock.client.opts.UnlockTimeout)) // no attempt after the end of the lease
		if a := send(ctx, g.lock, p, g.requestRelease, nil); a.Err != nil && !errors.Is(a.Err, lua.ErrNotOwner) {
			g.orphan().sweep()
		}
	}
	if g.from.doubt {
		g.orphan().sweepLater()
	}
}

func (g *grant) requestRelease(ctx context.Context, s lua.Runner) (lua.Released, error) {
	return g.lock.requestRelease(ctx, s, g.owner, g.alsoEnds())
}

func (l *Lock) requestRelease(ctx context.Context, s lua.Runner, owner string, e lua.Ending) (lua.Released, error) {
	return l.freed(l.wire.Release(ctx, s, owner, e))
}

// freed passes on the message of a request for freeing the lock, or a part, to the waiters of this
// client.
func (l *Lock) freed(r lua.Released, err error) (lua.Released, error) {
	if r.Message != "" {
		l.hear(r.Message)
	}
	if r.PublishErr != nil {
		l.withQueue((*queue).cannotTell)
	}
	return r, err
}

// alsoEnds is the rest to end with a release of the grant: tickets, and reserved tokens.
func (g *grant) alsoEnds() lua.Ending {
	e := lua.Ending{Tickets: g.run.passed, Used: g.token, Reserved: g.token + g.run.spare}
	if g.from.ticket && g.from.doubt { // otherwise the granting script has removed the ticket
		e.Tickets = append(slices.Clip(e.Tickets), g.owner)
	}
	return e
}

// finish is the end of an owned grant.
func (g *grant) finish() {
	g.lock.queues.ended(g)
	g.lock.client.done()
}
