package rlock

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/internal/janitor"
	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// remains is what an owner may have left on the server: the lock, a ticket, or both. The janitor
// releases it.
type remains struct {
	lock    *Lock
	owner   string
	ending  lua.Ending // of the release
	expires time.Time  // when the lease should have ended on the server
	ticket  bool       // there may be a ticket of the owner, which may outlive the lease
	likely  bool       // the server has said that it has something, or an answer was lost
}

// leftBy is what an owner has left of which nothing more is known.
func (l *Lock) leftBy(owner string) remains {
	return remains{lock: l, owner: owner, expires: time.Now().Add(l.terms.lease)}
}

// withTicket adds the owner's ticket.
func (r remains) withTicket() remains {
	r.ticket, r.ending.Tickets = true, []string{r.owner}
	return r
}

// remains is what the grant may have left.
func (g *grant) remains() remains {
	return remains{g.lock, g.owner, g.alsoEnds(), g.expires(), g.leftTicket, g.likely()}
}

// likely reports whether the server is likely to have something of the grant, the lock or a
// ticket: it has said so, or an answer was lost.
func (g *grant) likely() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.entry != nil || !g.queuedAt.here.IsZero() || g.attempts.Lost || g.left.some
}

// ticketSweep is for how long at least the client tries to take out a ticket.
const ticketSweep = 6 * time.Second

// sweep makes the janitor release r soon. A grant to a ticket would block others for the claim.
// A grant that was joined leaves nothing: its owner is that of the holder.
func (r remains) sweep() {
	if r.lock.joined {
		return
	}
	if r.sweepShares(false) {
		return
	}
	until := r.expires
	if least := time.Now().Add(ticketSweep); r.ticket && until.Before(least) {
		until = least
	}
	r.lock.client.janitor.Sweep(r.job(), until)
}

// sweepAgain makes the janitor release it later as well, when an attempt that got no answer
// has been executed or never will be.
func (r remains) sweepAgain() {
	if !r.sweepShares(true) {
		r.lock.client.janitor.SweepAgain(r.job())
	}
}

// sweepShares makes the client of each server of a quorum lock release its share. It returns false
// for any other lock.
func (r remains) sweepShares(late bool) bool {
	q, ok := r.lock.wire.(*kind.Quorum)
	if ok {
		q.Sweep(r.owner, late, r.likely)
	}
	return ok
}

// clear makes the janitor release what is left: soon, later, or both.
func (r remains) clear(left leftover) {
	if left.some {
		r.sweep()
	}
	if left.doubt {
		r.sweepAgain()
	}
}

// clear does so for the grant, of which most often nothing is left.
func (g *grant) clear(left leftover) {
	if left != (leftover{}) {
		g.remains().clear(left)
	}
}

// job is what the janitor has to know.
func (r remains) job() janitor.Leftover {
	l := r.lock
	return janitor.Leftover{
		Owner: r.owner, Key: l.key, Lease: l.terms.lease, Likely: r.likely, Release: r.request,
		Server: l.client.scripts.Server(l.slot),
	}
}

// request makes one attempt to release, by the janitor's own pipelines, and another one for each
// stale connection.
func (r remains) request(ctx context.Context) error {
	var stale request.Stale
	for {
		if err := r.requestOnce(ctx); !stale.Again(r.lock.client.server.RDB, err) {
			return err
		}
	}
}

func (r remains) requestOnce(ctx context.Context) error {
	l := r.lock
	release := func(ctx context.Context, s lua.Runner) (lua.Released, error) {
		return l.requestRelease(ctx, s, r.owner, r.ending)
	}
	if !l.gathers(false) {
		_, err := attempt(ctx, l, l.bound(), nil, release, nil)
		return err
	}
	call := l.client.sweeps.Call(request.Options{Key: l.slot, Bound: l.bound()})
	defer call.Put()
	_, err := release(ctx, call)
	return err
}

// sweep releases what an owner of a kind may have left or, if late is set, what a request
// that got no answer may still make.
func (c *Client) sweep(k kind.Kind, owner string, lease time.Duration, late, likely bool) {
	l := &Lock{client: c, terms: terms{lease: lease}}
	l.use(k)
	left := l.leftBy(owner)
	left.likely = likely
	left.clear(leftover{some: !late, doubt: late})
}
