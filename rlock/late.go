package rlock

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/internal/janitor"
	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
)

// leftover is what attempts to acquire may have left on the server.
type leftover struct {
	some  bool // something to release
	maybe bool // one of them may still arrive
}

// lateAnswers is what answers have told that came when their caller had left.
type lateAnswers struct {
	leftover
	over bool // nothing is sent for the grant any more
}

// late gets the answer to an attempt to acquire whose caller has left.
func (g *grant) late(a kind.Answer, err error) {
	if a.Owner != "" { // another owner than g's: what became of g says nothing about it
		g.lock.newGrant(a.Owner).sweep()
		return
	}
	o, _ := classify(err)
	if o == request.NotExecuted || err == nil && !a.Acquired && !a.Leftover {
		return
	}
	maybe := o == request.Unknown && err != request.ErrUnread
	if g.keep(maybe) { // a waiter that took the attempt over may have the lock by now
		g.lock.askAgain(g.owner)
		return
	}
	left := g.lock.newGrant(g.owner)
	left.answerLost, left.leftState = true, true
	left.clear(leftover{some: true, maybe: maybe})
}

// keep notes that an attempt has left something on the server, which is released with the
// grant. It returns false if the grant has been released or lost already.
func (g *grant) keep(maybe bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left.some, g.left.maybe = true, g.left.maybe || maybe
	return !g.left.over && g.state != lost
}

// likely reports whether the server is likely to have something of the grant, the lock or a
// ticket: it has said so, or an answer was lost.
func (g *grant) likely() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.entry != nil || !g.place.here.IsZero() || g.answerLost || g.left.some
}

// sweep makes the janitor release soon what the grant may have left on the server. A ticket
// may outlive the lease; a grant to it would block others for the claim. A grant that was
// joined leaves nothing: its owner is that of the holder.
func (g *grant) sweep() {
	if g.lock.joined {
		return
	}
	until := g.expires()
	if claimed := time.Now().Add(longestClaim); g.leftState && until.Before(claimed) {
		until = claimed
	}
	g.lock.client.janitor.Sweep(g.toSweep(), until)
}

// sweepAgain makes the janitor release it later as well, when an attempt that got no answer
// has been executed or never will be.
func (g *grant) sweepAgain() { g.lock.client.janitor.SweepAgain(g.toSweep()) }

// toSweep is what the janitor has to know of the grant.
func (g *grant) toSweep() janitor.Leftover {
	return janitor.Leftover{
		Owner: g.owner, Key: g.lock.key, Lease: g.lock.lease, Likely: g.likely(), Release: g.requestSweep,
		Server: g.lock.client.scripts.Server(g.lock.slot),
	}
}

// requestSweep makes one attempt to release, by the janitor's own pipelines.
func (g *grant) requestSweep(ctx context.Context) error {
	l := g.lock
	if !l.gathers {
		_, err := attempt(ctx, l, l.bound(), nil, g.requestRelease, nil)
		return err
	}
	call := l.client.sweeps.Call(request.Options{Key: l.slot, Bound: l.bound()})
	defer call.Put()
	_, err := g.requestRelease(ctx, call)
	return err
}

// sweep releases what an owner of a kind may have left or, if late is set, what a request
// that got no answer may still make.
func (c *Client) sweep(k kind.Kind, owner string, lease time.Duration, late bool) {
	l := &Lock{client: c, lockOptions: lockOptions{lease: lease}}
	l.use(k)
	l.newGrant(owner).clear(leftover{some: !late, maybe: late})
}
