package rlock

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/watchdog"
)

// grant is one outermost acquisition: an owner, from its first attempt to its
// last release.
type grant struct {
	lock *Lock

	// Guarded by queues.mu while the attempt is in the queue. Later only the goroutine ending the grant
	// writes here.
	owner        string
	token        int64
	sent         time.Time     // a moment before the request
	initialLease time.Duration // length of the lease until the first renewal
	run          run

	entry *watchdog.Entry[*grant] // nil until the grant is held; does not change then
	first Hold                    // the first hold: a field saves an allocation; the zero value if nobody has taken the grant

	residue atomic.Uint32 // a set of the bits of residue: see leaves and left

	// exclusives counts the holds that exclude other owners: all but those of readers. Written with mu
	// held, read without.
	exclusives atomic.Int32

	mu        sync.Mutex // guards the rest, and the state of the holds
	state     state
	loss      *LostError // of a lost grant, else nil
	began     time.Time  // when somebody took the grant; zero while parked
	holds     []*Hold    // the live holds
	room      [1]*Hold   // of holds, until there are more
	followers int        // readers that were given the grant, and have no hold yet
	counting  *counting  // nil as long as the grant has had a single hold: the acquisition has told the server
}

type state int

const (
	asking   state = iota // not acquired yet
	owned                 // acquired, and held
	released              // given up, or the last hold was unlocked
	lost                  // ended against the holder's will
)

var (
	errLate        = errors.New("the answer came when the lease was as good as over")
	errQueue       = errors.New("the lock can only be had by waiting in the queue")
	errTerms       = errors.New("the lease is not renewed as this reader wants it")
	errReleased    = errors.New("the last hold was unlocked meanwhile")
	errGone        = errors.New("the server knows of no such holder: the lock expired, or was removed or taken over")
	errHolderEnded = errors.New("the holder has unlocked it, or lost it") // of what was joined
)

// newOwner returns a new name, never used before: `<client id>:<n>`, with mark behind the id.
func (c *Client) newOwner(mark string) string {
	var room [48]byte // saves an allocation
	name := append(append(append(room[:0], c.id...), mark...), ':')
	return string(strconv.AppendUint(name, c.given.Add(1), 10))
}

// newAttempt returns a grant with a new owner. The owner of a polling lock has a mark: the release is
// announced in Redisson's way, so waiters must treat the owner as foreign.
func (l *Lock) newAttempt() *grant {
	mark := ""
	if l.terms.polls {
		mark = "-poll"
	}
	return l.newGrant(l.client.newOwner(mark))
}

func (l *Lock) newGrant(owner string) *grant {
	g := &grant{lock: l, owner: owner}
	g.holds = g.room[:0]
	return g
}

// spareTokens is the number of further fencing tokens asked for, for the next holders in this client. A
// kept lock may have many holders, so the grant asks for as many tokens as the server reserves ahead of
// the clock (lead in lua/token.lua). Otherwise the grant asks only while somebody waits, for no more than
// the budget's time allows: a hand-off takes at least a microsecond.
func (l *Lock) spareTokens(othersWait bool) int64 {
	switch {
	case !l.terms.fenced:
		return 0
	case l.terms.retention > 0:
		return maxHandoffs
	case !othersWait || l.terms.handoff.most <= 0:
		return 0
	}
	return min(int64(l.terms.handoff.most), max(l.terms.handoff.longest.Microseconds(), 1))
}

// acquire asks the server.
func (g *grant) acquire(ctx context.Context, p request.Policy, o kind.Options) request.Answer[lua.Reply] {
	owner := g.owner // the field may change while an abandoned attempt still reads the owner
	p.Leaves = true
	a := send(ctx, g.lock, p, func(ctx context.Context, r lua.Runner) (lua.Reply, error) {
		return g.lock.wire.Acquire(ctx, r, owner, g.lock.terms.lease, o)
	}, g.late)
	note(g, a)
	g.token, g.run.spare = a.Value.Token, a.Value.Spare
	if a.Value.Owner != "" {
		g.owner = a.Value.Owner
	}
	if sent := a.Value.Sent; !sent.IsZero() {
		g.sent = sent
	}
	if a.Value.Leftover || a.Doubt && o.Ticket.Claim > 0 {
		g.leaves(someTicket)
	}
	return a
}

// note notes how a request for the grant has ended.
func note[T any](g *grant, a request.Answer[T]) {
	g.sent, g.initialLease, g.run = a.Sent, g.lock.terms.lease, run{began: a.Sent}
	if a.Doubt {
		g.leaves(inDoubt)
	}
	if a.Lost {
		g.leaves(unanswered)
	}
	if a.Open {
		g.leaves(underWay)
	}
}

// start makes an acquired grant owned, with a first hold of the lock by. The grant may have been asked for
// by another Lock, as waiters take over each other's attempts. The error: no time is left to hold the
// lock, or the client is closed.
func (g *grant) start(ctx context.Context, by *Lock) (context.Context, *Hold, error) {
	if g.entry != nil { // handed off, or another reader's
		return g.adopt(ctx, by)
	}
	c, l := g.lock.client, g.lock
	held, hold := g.derive(ctx, &g.first, by, nil)
	g.mu.Lock() // lose waits until the grant is complete
	entry, err := c.dog.Add(watchdog.Lease[*grant]{Key: g, Duration: g.initialLease, Renew: l.terms.lease, Sent: g.sent, Fixed: l.terms.fixed, OnLost: g.lose})
	if err == nil {
		g.entry, g.state, g.began = entry, owned, time.Now()
		g.put(hold)
		c.active.Add(1)
	}
	g.mu.Unlock()
	switch {
	case errors.Is(err, watchdog.ErrClosed):
		hold.cancel(ErrClosed)
		return ctx, nil, l.isClosed()
	case err != nil:
		hold.cancel(errLate)
		return ctx, nil, &lockError{l.name, ErrUnavailable, errLate}
	}
	if l.longUnnoticed() {
		c.records.Notice()
	}
	before, parked := l.queues.held(g)
	for _, other := range before {
		other.correct() // the request finds out the loss
	}
	if parked != nil { // without a hold, correct would make no request
		parked.drop()
	}
	if g.lossOrNil() != nil { // lost already: lose has told the queue before held has
		l.queues.ended(g)
	}
	if c.opts.Identity.Prompt {
		c.records.Hurry()
	}
	if c.closed.Load() { // too late for Close to have seen it
		g.interrupt(ErrClosed)
	}
	return held, hold, nil
}

// longUnnoticed reports whether a hold may be long, for the record of the client, before the first renewal
// tells.
func (l *Lock) longUnnoticed() bool { return l.terms.fixed || l.terms.lease/3 > longHold }

// derive makes the new h a hold of l, and does not add h to the grant yet. mu must not be held: deriving
// a context asks the parent context for its end, and so may find this very grant lost.
func (g *grant) derive(ctx context.Context, h *Hold, l *Lock, parent *Hold) (context.Context, *Hold) {
	h.grant, h.lock, h.parent = g, l, parent
	h.outer, _ = ctx.Value(holdKey{}).(*Hold)
	ctx, h.cancel = context.WithCancelCause(ctx)
	h.scope = heldContext{ctx, h}
	return &h.scope, h
}

// put adds a hold. mu is held.
func (g *grant) put(h *Hold) {
	h.at = len(g.holds)
	g.holds = append(g.holds, h)
	h.first().under++
	if !h.lock.terms.shared {
		g.exclusives.Add(1)
	}
}

// Exclusive reports whether the grant excludes further owners.
func (g *grant) Exclusive() bool { return g.exclusives.Load() > 0 }

// until returns the end of the trusted window. Unlike entry, it may be used before start has
// returned.
func (g *grant) until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.entry.Until()
}

// lossOrNil returns the loss of a lost grant, as an error.
func (g *grant) lossOrNil() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.loss != nil {
		return g.loss
	}
	return nil
}
