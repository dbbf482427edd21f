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
	lock  *Lock
	owner string

	// queues.mu guards these while the attempt is in the queue. Later only whoever ends the grant writes to them.
	acquisition
	span
	run   run
	empty bool // it is released, and nobody has held it
	entry *watchdog.Entry[*grant]

	counting
	mu sync.Mutex // guards what follows, and the holds' own state
	holdSet
	ending
	left lateAnswers
}

// span is when a grant was held.
type span struct {
	began time.Time // zero as long as the grant is parked; written with mu held, or before anybody can hold it
	ended time.Time // when it was passed on; zero if it was not
}

// ending is how far a grant is, and why it was lost. grant.mu guards it.
type ending struct {
	state state
	loss  *LostError
}

// acquisition is what is known of the requests to acquire.
type acquisition struct {
	token          int64
	sent           time.Time     // before the attempt that acquired it went out
	initialLease   time.Duration // length of the lease until its first renewal
	acquireUnknown bool          // an attempt may have been executed without our knowing, or may still be
	answerLost     bool          // an attempt got no answer, not even a refusal
	attemptOpen    bool          // an attempt was left under way
	leftState      bool          // a refused attempt may have left something that a release takes back
	place          moment        // of the newest ticket, zero if there was none
}

// holdSet is the live holds of a grant. grant.mu guards it.
type holdSet struct {
	holds     []*Hold
	room      [1]*Hold      // of holds, until there are more
	first     Hold          // the first of them
	followers int           // readers for whom the grant is kept, and who have no hold yet
	longest   time.Duration // lease asked for so far
	current   int           // acquisitions that have not ended: one, or one for each reader

	// exclusives counts the holds that exclude other owners. Written with mu held, read
	// without.
	exclusives atomic.Int32
}

type state int

const (
	asking   state = iota // not acquired yet
	owned                 // acquired; holds is not empty
	released              // given up, or its last hold was unlocked
	lost                  // ended against the holder's will
)

var (
	errLate     = errors.New("the answer came when the lease was as good as over")
	errQueue    = errors.New("the lock can only be had by waiting in the queue")
	errTerms    = errors.New("the lease is not renewed as this reader wants it")
	errReleased = errors.New("the last hold was unlocked meanwhile")
	errGone     = errors.New("the server knows of no such holder: the lock expired, or was removed or taken over")
)

// owners names the grants of a client: `<client id>:<n>`.
type owners struct {
	id    string
	given atomic.Uint64
}

// next returns a name that was never used, with mark behind the client's.
func (o *owners) next(mark string) string {
	var room [48]byte // spares one of two allocations
	name := append(append(append(room[:0], o.id...), mark...), ':')
	return string(strconv.AppendUint(name, o.given.Add(1), 10))
}

// newAttempt returns a grant with an owner of its own. That of one that polls has a mark:
// its release is announced as Redisson does, so those who wait must take it for a foreign
// owner.
func (l *Lock) newAttempt() *grant { return l.newGrant(l.client.next(l.mark)) }

func (l *Lock) newGrant(owner string) *grant {
	g := &grant{lock: l, owner: owner}
	g.longest = l.lease
	g.holds = g.room[:0]
	return g
}

// acquire asks the server.
func (g *grant) acquire(ctx context.Context, p request.Policy, o kind.Options) answer[kind.Answer] {
	owner := g.owner // an attempt that hangs may look at it when it has changed
	p.Leaves = true
	a := send(ctx, g.lock, p, func(ctx context.Context, r lua.Runner) (kind.Answer, error) {
		return g.lock.wire.Acquire(ctx, r, owner, g.lock.lease, o)
	}, g.late)
	g.sent, g.token = a.Sent, a.Value.Token
	if a.Value.Owner != "" {
		g.owner = a.Value.Owner
	}
	if sent := a.Value.Sent; !sent.IsZero() {
		g.sent = sent
	}
	g.initialLease = g.lock.lease
	g.run = run{began: a.Sent, spare: a.Value.Spare}
	g.acquireUnknown, g.answerLost = g.acquireUnknown || a.Doubt, g.answerLost || a.Lost
	g.attemptOpen = g.attemptOpen || a.Open
	g.leftState = g.leftState || a.Value.Leftover || a.Doubt && o.Ticket.Claim > 0
	return a
}

// start makes an acquired grant an owned one, with its first hold, which is by's: the
// attempt may have been another's, who has left it to that one. The error
// says that there is no time left to hold it, or that the client is closed.
func (g *grant) start(ctx context.Context, by *Lock) (context.Context, *Hold, error) {
	if g.run.count > 0 {
		return g.adopt(ctx, by)
	}
	held, hold, err := g.own(ctx, by)
	if err != nil {
		return ctx, nil, err
	}
	c, l := g.lock.client, g.lock
	if l.longUnnoticed() {
		c.records.Notice()
	}
	before, parked := l.queues.held(g)
	for _, other := range before {
		other.correct() // finds out that it is lost
	}
	if parked != nil { // that would not
		parked.drop()
	}
	if l.retains != nil {
		l.queues.listen(g)
	}
	if g.lossOrNil() != nil { // already, and the queue was told too early
		l.queues.ended(g)
	}
	if c.closed.Load() { // too late for Close to see it
		g.interrupt(ErrClosed)
	}
	return held, hold, nil
}

// own makes an acquired grant an owned one. The client does not know of it yet.
func (g *grant) own(ctx context.Context, by *Lock) (context.Context, *Hold, error) {
	c, l := g.lock.client, g.lock
	held, hold := g.derive(ctx, &g.first, by, nil)
	g.mu.Lock() // OnLost waits until the grant is complete
	entry, err := c.dog.Add(watchdog.Lease[*grant]{Key: g, Duration: g.initialLease, Renew: l.lease, Sent: g.sent, Fixed: l.fixed, OnLost: g.lose})
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
	return held, hold, nil
}

// longUnnoticed tells whether a hold may be a long one before anything notices it, which
// the first renewal does.
func (l *Lock) longUnnoticed() bool { return l.fixed || l.lease/3 > longHold }

// derive makes h, which is new, a hold of l that is not added yet. mu must not be held: to derive
// a context asks the one above whether it is over, which may lose this very grant.
func (g *grant) derive(ctx context.Context, h *Hold, l *Lock, parent *Hold) (context.Context, *Hold) {
	h.grant, h.parent = g, parent
	h.outer, _ = ctx.Value(holdKey{}).(*Hold)
	h.needs = needs{lease: l.lease, fixed: l.fixed, shared: l.shared, purpose: l.purpose}
	h.counts = parent == nil && !l.part
	ctx, h.cancel = context.WithCancelCause(ctx)
	h.scope = heldContext{ctx, h}
	return &h.scope, h
}

// put adds a hold. mu is held.
func (g *grant) put(h *Hold) {
	g.holds = append(g.holds, h)
	if h.counts {
		g.current++
	}
	if !h.shared {
		g.exclusives.Add(1)
	}
}

// exclusive tells whether the grant excludes other owners.
func (g *grant) exclusive() bool { return g.exclusives.Load() > 0 }

// until returns the end of the trusted window. Unlike entry, it may be used
// before start has returned.
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
