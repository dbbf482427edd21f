package rlock

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/internal/janitor"
	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// residue is a set of things a grant may leave behind, besides those that its owner has left before: on the way to the
// server, or with further processes. The values are bits.
type residue uint32

const (
	countUnderWay residue = 1 << iota // a request about the hold count may still be executed
	proofGiven                        // a proof was given out, so further processes may rely on the owner
)

// leaves adds to the residue of the grant.
func (g *grant) leaves(r residue) { g.residue.Or(uint32(r)) }

// left reports whether the grant may leave any of r behind.
func (g *grant) left(r residue) bool { return residue(g.residue.Load())&r != 0 }

// orphan is an owner without a holder, but perhaps with something on the server: the lock, a ticket, or
// both. The janitor releases the orphan.
type orphan struct {
	lock    *Lock
	owner   string
	ending  lua.Ending // of the release
	expires time.Time  // when the lease should have ended on the server
	ticket  bool       // there may be tickets to take out, and tickets outlive the lease
	likely  bool       // the server has said so, or an answer was lost
}

// leftBy is the orphan of an owner without a grant.
func (l *Lock) leftBy(owner string, likely bool) orphan {
	return orphan{lock: l, owner: owner, expires: time.Now().Add(l.terms.lease), likely: likely}
}

// withTokens adds tokens that were taken for the owner and not used: the newest, and those reserved behind it.
func (r orphan) withTokens(newest, reserved int64) orphan {
	r.ending.Used, r.ending.Reserved = newest, newest+reserved
	return r
}

// withTicket adds the owner's ticket.
func (r orphan) withTicket() orphan {
	r.ticket, r.ending.Tickets = true, []string{r.owner}
	return r
}

// orphan is the owner of the grant with its residue.
func (g *grant) orphan() orphan {
	ending := g.alsoEnds()
	return orphan{g.lock, g.owner, ending, g.expires(), len(ending.Tickets) > 0, true}
}

// ticketSweep is for how long at least the client tries to take out a ticket.
const ticketSweep = 6 * time.Second

// sweep makes the janitor release r soon. A grant to a ticket would block others for the claim. A joined grant leaves
// nothing: the owner is the holder's. The client of each server of a quorum lock releases a share.
func (r orphan) sweep() {
	if quorum, ok := r.lock.wire.(*kind.Quorum); ok {
		quorum.Sweep(r.owner, false, r.likely)
		return
	}
	until := r.expires
	if least := time.Now().Add(ticketSweep); r.ticket && until.Before(least) {
		until = least
	}
	if !r.lock.joined {
		r.lock.client.janitor.Sweep(r.job(), until)
	}
}

// sweepLater makes the janitor release r when an unanswered attempt has been executed, or never will be.
func (r orphan) sweepLater() {
	if quorum, ok := r.lock.wire.(*kind.Quorum); ok {
		quorum.Sweep(r.owner, true, r.likely)
		return
	}
	r.lock.client.janitor.SweepAgain(r.job())
}

func (r orphan) job() janitor.Leftover {
	l := r.lock
	return janitor.Leftover{
		Owner: r.owner, Lease: l.terms.lease, Likely: r.likely, Release: r.request,
		Server: l.client.scripts.Server(l.slot),
	}
}

// request makes one attempt to release, by the janitor's own pipelines, and again for each
// stale connection.
func (r orphan) request(ctx context.Context) error {
	var stale request.Stale
	for {
		if err := r.requestOnce(ctx); !stale.Again(r.lock.client.server.RDB, err) {
			return err
		}
	}
}

func (r orphan) requestOnce(ctx context.Context) error {
	l := r.lock
	release := func(ctx context.Context, s lua.Runner) (lua.Released, error) {
		return l.requestRelease(ctx, s, r.owner, r.ending)
	}
	if !l.gathers.rest {
		_, err := attempt(ctx, l, l.bound, nil, release, nil)
		return err
	}
	call := l.client.sweeps.Call(request.Options{Key: l.slot, Bound: l.bound})
	defer call.Put()
	_, err := release(ctx, call)
	return err
}

// sweep releases the residue of an owner of a kind or, if late is set, of an unanswered request, perhaps
// still to be executed.
func (c *Client) sweep(k kind.Kind, owner string, lease time.Duration, late, likely bool) {
	l := &Lock{client: c, terms: terms{lease: lease}}
	l.use(k)
	if left := l.leftBy(owner, likely); late {
		left.sweepLater()
	} else {
		left.sweep()
	}
}
