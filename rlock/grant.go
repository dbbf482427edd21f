package rlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/watchdog"
)

// grant is one outermost acquisition: an owner, from its first attempt to its
// last release.
type grant struct {
	lock  *Lock
	owner string

	// Set before the grant is shared.
	token   int64
	sent    time.Time // before the attempt that acquired it went out
	doubted bool      // an attempt to acquire got no answer and may still arrive
	began   time.Time
	entry   *watchdog.Entry[*grant]

	// turn is held around each request that sets the hold count. Capacity 1: a
	// mutex whose wait ends with a context.
	turn chan struct{}

	mu    sync.Mutex // guards what follows, and the holds' own state
	state state
	holds []*Hold // live ones
	loss  *LostError
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
	errReleased = errors.New("the last hold was unlocked meanwhile")
	errGone     = errors.New("the server knows of no such holder: the lock expired, or was removed or taken over")
)

func (l *Lock) newGrant() *grant {
	return &grant{lock: l, owner: l.client.owner(), turn: make(chan struct{}, 1)}
}

func (g *grant) patience(total time.Duration) patience {
	return patience{attempt: g.lock.bound(), total: total}
}

// acquire asks the server, with patience.
func (g *grant) acquire(ctx context.Context, p patience) answer[lua.Reply] {
	a := send(ctx, g.lock, p, func(ctx context.Context) (lua.Reply, error) {
		return g.lock.protocol.acquire(ctx, g.owner, g.lock.lease)
	}, g.late)
	g.sent, g.token = a.sent, a.value.Token
	g.doubted = g.doubted || a.doubt
	return a
}

// late gets the answer to an attempt to acquire that nobody waits for any more.
func (g *grant) late(reply lua.Reply, err error) {
	o, _ := classify(err)
	g.mu.Lock()
	over := g.state == released
	g.mu.Unlock()
	if over && o != notExecuted && (err != nil || reply.Acquired) {
		g.lock.client.janitor.sweep(g)
	}
}

// start makes an acquired grant a held one, with its first hold. The error says
// that there is no time left to hold it.
func (g *grant) start(ctx context.Context) (context.Context, *Hold, error) {
	c, l := g.lock.client, g.lock
	held, hold := g.newHold(ctx, l, nil)
	g.mu.Lock() // OnLost waits until the grant is complete
	defer g.mu.Unlock()
	entry, err := c.dog.Add(watchdog.Lease[*grant]{Key: g, Duration: l.lease, Sent: g.sent, Fixed: l.fixed, OnLost: g.lose})
	if err != nil {
		hold.cancel(errLate)
		return ctx, nil, &lockError{l.name, ErrUnavailable, errLate}
	}
	g.entry, g.holds, g.state = entry, []*Hold{hold}, owned
	g.began = time.Now()
	c.active.Add(1)
	c.gates.held(g)
	if c.closed.Load() { // too late for Close to see it
		hold.cancel(ErrClosed)
	}
	return held, hold, nil
}

// abandon gives an attempt up. What it may have acquired is released.
func (g *grant) abandon(acquired bool) {
	g.mu.Lock()
	g.state = released
	g.mu.Unlock()
	if acquired || g.doubted {
		g.lock.client.janitor.sweep(g)
	}
	if g.doubted {
		g.lock.client.janitor.sweepAgain(g)
	}
}

// newHold returns a hold that is not added yet. mu must not be held: to derive a
// context asks the one above whether it is over, which may lose this very grant.
func (g *grant) newHold(ctx context.Context, l *Lock, parent *Hold) (context.Context, *Hold) {
	h := &Hold{grant: g, outer: innermost(ctx), parent: parent, lease: l.lease, fixed: l.fixed}
	ctx, h.cancel = context.WithCancelCause(ctx)
	return heldContext{ctx, h}, h
}

// add adds a nested hold, of which the server does not know yet.
func (g *grant) add(h *Hold) error {
	g.check()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.state {
	case lost:
		h.cancel(g.loss)
		return g.loss
	case released:
		h.cancel(ErrUnlocked)
		return errReleased
	}
	g.holds = append(g.holds, h)
	h.parent.children++
	return nil
}

// remove takes a hold out and ends the contexts that nothing live is under any
// more. It returns how many holds are left.
func (g *grant) remove(h *Hold) (left int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.unlocked {
		return len(g.holds), &lockError{g.lock.name, ErrNotHeld, nil}
	}
	h.unlocked = true
	g.holds = slices.DeleteFunc(g.holds, func(other *Hold) bool { return other == h })
	for p := h; p != nil && p.unlocked && p.children == 0; p = p.parent {
		p.cancel(ErrUnlocked)
		if p.parent != nil {
			p.parent.children--
		}
	}
	if g.state == lost {
		return len(g.holds), g.loss
	}
	if len(g.holds) == 0 {
		g.state = released
	}
	return len(g.holds), nil
}

// agree makes the hold count on the server that of the live holds, and the lease
// the longest that they ask for.
func (g *grant) agree(ctx context.Context, p patience) error {
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return &lockError{g.lock.name, ErrUnavailable, ended(ctx)}
	}
	g.mu.Lock()
	if g.state != owned {
		defer g.mu.Unlock()
		return g.why()
	}
	n, lease, fixed := len(g.holds), time.Duration(0), true
	for _, h := range g.holds {
		lease, fixed = max(lease, h.lease), fixed && h.fixed
	}
	g.mu.Unlock()
	p.total = min(p.total, time.Until(g.entry.Until()))
	a := send(ctx, g.lock, p, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, g.lock.protocol.count(ctx, g.owner, lease, n)
	}, func(struct{}, error) { g.correct() })
	switch {
	case a.err == nil:
		g.entry.Rearm(a.sent, lease, fixed)
		g.check()
	case errors.Is(a.err, lua.ErrNotOwner):
		g.lose(errGone)
	default:
		return a.err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why()
}

// correct agrees in the background, after a request whose caller had left may
// have set a count that is not true any more.
func (g *grant) correct() {
	g.lock.client.background(func() { _ = g.agree(context.Background(), g.patience(g.lock.lease)) })
}

// retract takes back a nested hold that the server may not know of.
func (g *grant) retract(h *Hold) {
	switch left, err := g.remove(h); {
	case err != nil:
	case left > 0:
		g.correct()
	default: // the others were unlocked meanwhile
		g.lock.client.background(func() { _ = g.conclude(context.Background()) })
	}
}

// conclude frees the lock after the last hold is gone.
func (g *grant) conclude(ctx context.Context) error {
	c := g.lock.client
	defer g.finish()
	g.entry.Stop()
	a := send(ctx, g.lock, g.patience(g.lock.lease), g.release, nil)
	if g.doubted {
		c.janitor.sweepAgain(g)
	}
	switch {
	case errors.Is(a.err, lua.ErrNotOwner) && !a.doubt:
		// Had an attempt been in doubt, it would have been that one.
		err := &LostError{g.lock.name, g.token, errGone}
		c.reportLost(err)
		return err
	case a.err != nil && !errors.Is(a.err, lua.ErrNotOwner):
		c.janitor.sweep(g)
		return a.err
	}
	if refusal := a.value.PublishErr; refusal != nil {
		c.warnPublish.Do(func() {
			c.opts.Logger.Warn("rlock: the server refuses to announce releases; waiters elsewhere only notice them when the lease ends: allow PUBLISH on the unlock channels",
				"channel", g.lock.protocol.channel(), "err", refusal)
		})
	}
	if f := c.opts.Trace.Released; f != nil {
		c.observe(func() { f(g.lock.name, time.Since(g.began)) })
	}
	return nil
}

// releaseRest releases what a lost grant may still have: the lease on the server
// outlives the trust in it by the guard and the drift.
func (g *grant) releaseRest(ctx context.Context) {
	rest := time.Until(g.entry.Until().Add(g.lock.lease / 50))
	if rest > 0 && !errors.Is(g.loss, errGone) {
		send(ctx, g.lock, g.patience(rest), g.release, nil)
	}
}

// lose ends a held grant against the holder's will.
func (g *grant) lose(err error) {
	switch {
	case errors.Is(err, watchdog.ErrRefused):
		err = errGone
	case errors.Is(err, watchdog.ErrClosed):
		err = ErrClosed
	}
	g.mu.Lock()
	if g.state != owned {
		g.mu.Unlock()
		return
	}
	g.state = lost
	g.loss = &LostError{g.lock.name, g.token, err}
	g.mu.Unlock()
	g.entry.Stop()
	g.interrupt(g.loss)
	g.lock.client.reportLost(g.loss)
	g.finish()
}

// interrupt ends the contexts of all live holds.
func (g *grant) interrupt(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.holds {
		for ; h != nil; h = h.parent {
			h.cancel(cause)
		}
	}
}

// finish is the end of a grant that was held.
func (g *grant) finish() {
	g.lock.client.gates.ended(g)
	g.lock.client.done()
}

// check compares the clocks and tells whether the grant is still trusted.
func (g *grant) check() bool { return g.entry.Check() }

// count returns how many holds are live.
func (g *grant) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.holds)
}

// why returns the loss of a lost grant. mu is held.
func (g *grant) why() error {
	if g.loss != nil {
		return g.loss
	}
	return nil
}
