package rlock

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/internal/janitor"
	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
)

// sweep has what the grant may have left on the server released soon. A ticket may
// outlive the lease, and whoever is granted the lock by it blocks others for the claim.
func (g *grant) sweep() {
	until := g.expires()
	if claimed := time.Now().Add(longestClaim); g.leftState && until.Before(claimed) {
		until = claimed
	}
	g.lock.client.janitor.Sweep(g.toSweep(), until)
}

// sweepAgain has it released after a third of the lease, when an attempt that got no
// answer has arrived or never will.
func (g *grant) sweepAgain() { g.lock.client.janitor.SweepAgain(g.toSweep()) }

// toSweep is what the janitor has to know of the grant.
func (g *grant) toSweep() janitor.Leftover {
	return janitor.Leftover{Owner: g.owner, Lease: g.lock.lease, Likely: g.likely(), Release: g.requestSweep}
}

// requestSweep makes one attempt to release, in the pipelines of the janitor.
func (g *grant) requestSweep(ctx context.Context) error {
	l := g.lock
	if !l.gathers() {
		_, err := attempt(ctx, l, l.bound(), nil, g.requestRelease, nil)
		return err
	}
	call := l.client.sweeps.Call(ctx, request.Terms{Key: l.redisKey(), Bound: l.bound()})
	defer call.Put()
	_, err := g.requestRelease(call)
	return err
}

// sweep releases what an owner of a kind may have left.
func (c *Client) sweep(k kind.Kind, owner string, lease time.Duration) {
	l := &Lock{client: c, terms: terms{lease: lease}}
	l.use(k)
	l.newGrant(owner).sweep()
}
