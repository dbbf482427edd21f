package rlock

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/internal/janitor"
	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// residue is a set of things a grant may leave behind: on the server, on the way there, or with further
// processes. The values are bits.
type residue uint32

const (
	someTicket    residue = 1 << iota // a refused attempt may have left a ticket, for a release to remove
	hadTicket                         // a refused attempt has had a ticket, and the server may still know the ticket
	lateAnswer                        // an abandoned attempt has left something on the server, for the next release of the grant to end
	inDoubt                           // an attempt to acquire may have been executed, or may still be, without an answer
	unanswered                        // an attempt to acquire got no answer, not even a refusal
	underWay                          // a caller left an attempt to acquire under way: grant.late gets the answer
	countUnderWay                     // a request about the hold count may still be executed
	proofGiven                        // a proof was given out, so further processes may rely on the owner
	sealed                            // nothing is sent for the grant any more: the receiver of a late answer follows up
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
	ticket  bool       // there may be a ticket of the owner, and tickets outlive the lease
	likely  bool       // the server has said so, or an answer was lost
}

// leftBy is the orphan of an owner without a grant.
func (l *Lock) leftBy(owner string) orphan {
	return orphan{lock: l, owner: owner, expires: time.Now().Add(l.terms.lease)}
}

// withTicket adds the owner's ticket.
func (r orphan) withTicket() orphan {
	r.ticket, r.ending.Tickets = true, []string{r.owner}
	return r
}

// orphan is the owner of the grant with its residue. The server is likely to have the lock or a ticket
// after saying so, or after the loss of an answer.
func (g *grant) orphan() orphan {
	g.mu.Lock()
	likely := g.entry != nil || g.left(hadTicket|unanswered|lateAnswer)
	g.mu.Unlock()
	return orphan{g.lock, g.owner, g.alsoEnds(), g.expires(), g.left(someTicket), likely}
}

// ticketSweep is for how long at least the client tries to take out a ticket.
const ticketSweep = 6 * time.Second

// sweep makes the janitor release r soon. A grant to a ticket would block others for the claim.
// A joined grant leaves nothing: the owner is the holder's.
func (r orphan) sweep() {
	if r.lock.joined() {
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

// sweepAgain makes the janitor release r later as well, when an unanswered attempt has been executed or
// never will be.
func (r orphan) sweepAgain() {
	if !r.sweepShares(true) {
		r.lock.client.janitor.SweepAgain(r.job())
	}
}

// sweepShares makes the client of each server of a quorum lock release a share. It returns false for any
// other kind.
func (r orphan) sweepShares(late bool) bool {
	q, ok := r.lock.wire.(*kind.Quorum)
	if ok {
		q.Sweep(r.owner, late, r.likely)
	}
	return ok
}

// clear makes the janitor release the orphan: now, later, or both.
func (r orphan) clear(now, later bool) {
	if now {
		r.sweep()
	}
	if later {
		r.sweepAgain()
	}
}

// clear does so for the grant. Most often nothing is left.
func (g *grant) clear(now, later bool) {
	if now || later {
		g.orphan().clear(now, later)
	}
}

// job is the orphan as the janitor knows orphans.
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
	if !l.gathers(false) {
		_, err := attempt(ctx, l, l.bound(), nil, release, nil)
		return err
	}
	call := l.client.sweeps.Call(request.Options{Key: l.slot, Bound: l.bound()})
	defer call.Put()
	_, err := release(ctx, call)
	return err
}

// sweep releases the residue of an owner of a kind or, if late is set, of an unanswered request, perhaps
// still to be executed.
func (c *Client) sweep(k kind.Kind, owner string, lease time.Duration, late, likely bool) {
	l := &Lock{client: c, terms: terms{lease: lease}}
	l.use(k)
	left := l.leftBy(owner)
	left.likely = likely
	left.clear(!late, late)
}

// late gets the answer to an abandoned attempt to acquire.
func (g *grant) late(a lua.Reply, err error) {
	if a.Owner != "" { // not g's owner: the state of g says nothing about the orphan
		g.lock.leftBy(a.Owner).sweep()
		return
	}
	o, _ := g.lock.client.classify(err)
	if o == request.NotExecuted || err == nil && !a.Acquired && !a.Leftover {
		return
	}
	doubt := o == request.Unknown && err != request.ErrUnread
	if g.keep(doubt) { // a waiter with the attempt may have the lock by now
		g.lock.askAgain(g.owner)
		return
	}
	left := g.lock.leftBy(g.owner).withTicket()
	left.likely = true
	left.clear(true, doubt)
}

// keep notes residue of an attempt on the server, to be released with the grant. It returns false if the
// grant has been released or lost already.
func (g *grant) keep(doubt bool) bool {
	g.mu.Lock() // with sealed and lost: the setters of both read earlier notes
	defer g.mu.Unlock()
	if g.left(sealed) || g.state == lost {
		return false
	}
	g.leaves(lateAnswer)
	if doubt {
		g.leaves(inDoubt)
	}
	return true
}
