package rlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	chain   chain
	sent    time.Time     // before the attempt that acquired it went out
	armed   time.Duration // length of the lease until its first renewal
	doubted bool          // an attempt to acquire got no answer and may still arrive
	queued  bool          // a refused attempt has left something that a release takes back
	began   time.Time
	entry   *watchdog.Entry[*grant]

	// exclusives counts the live holds that exclude other owners. Written with mu
	// held, read without.
	exclusives atomic.Int32
	unsure     atomic.Bool // a request that sets the count may still arrive

	// turn is held around each request that sets the hold count. Capacity 1: a mutex
	// whose wait ends with a context. Made with the first such request; guarded by mu.
	turn chan struct{}

	mu         sync.Mutex // guards what follows, and the holds' own state
	state      state
	holds      []*Hold  // live ones
	room       [1]*Hold // of holds, until there are more
	first      Hold     // the first of them
	guests     int      // readers for whom it is kept, and who have no hold yet
	loss       *LostError
	longest    time.Duration // lease asked for so far
	correcting bool          // a correction is on its way that has not looked yet
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
	errReleased = errors.New("the last hold was unlocked meanwhile")
	errGone     = errors.New("the server knows of no such holder: the lock expired, or was removed or taken over")
)

func (l *Lock) newGrant(owner string) *grant {
	g := &grant{lock: l, owner: owner, longest: l.lease}
	g.holds = g.room[:0]
	return g
}

func (g *grant) patience(total time.Duration) patience {
	return patience{attempt: g.lock.bound(), total: total}
}

// acquire asks the server, with patience.
func (g *grant) acquire(ctx context.Context, p patience) answer[reply] {
	owner := g.owner // an attempt that hangs may look at it when it has changed
	var a answer[reply]
	called := false
	if l, ok := g.lock.protocol.(caller); ok {
		a.value, called = l.called(owner)
	}
	if !called {
		a = send(ctx, g.lock, p, func(ctx context.Context) (reply, error) {
			return g.lock.protocol.acquire(ctx, owner, g.lock.lease, terms{!p.once, g.chain.spare})
		}, g.late)
	}
	g.sent, g.token, g.owner = a.sent, a.value.Token, cmp.Or(a.value.owner, owner)
	if sent := a.value.sent; !sent.IsZero() {
		g.sent = sent
	}
	g.armed = cmp.Or(a.value.armed, g.lock.lease)
	g.chain.began, g.chain.next = a.sent, a.value.next
	g.doubted = g.doubted || a.doubt
	g.queued = g.queued || a.value.queued
	return a
}

// late gets the answer to an attempt to acquire that nobody waits for any more.
func (g *grant) late(r reply, err error) {
	if r.owner != "" { // what became of g says nothing about it
		g.lock.client.janitor.sweep(g.lock.newGrant(r.owner))
		return
	}
	o, _ := classify(err)
	g.mu.Lock()
	over := g.state == released || g.state == lost
	g.mu.Unlock()
	if over && o != notExecuted && (err != nil || r.Acquired || r.queued) {
		g.lock.client.janitor.sweep(g)
	}
}

// start makes an acquired grant an owned one, with its first hold. The error
// says that there is no time left to hold it, or that the client is closed.
func (g *grant) start(ctx context.Context) (context.Context, *Hold, error) {
	if g.chain.links > 0 {
		return g.adopt(ctx)
	}
	c, l := g.lock.client, g.lock
	held, hold := g.derive(ctx, &g.first, l, nil)
	g.mu.Lock() // OnLost waits until the grant is complete
	entry, err := c.dog.Add(watchdog.Lease[*grant]{Key: g, Duration: g.armed, Renew: l.lease, Sent: g.sent, Fixed: l.fixed, OnLost: g.lose})
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
	for _, before := range l.gates.held(g) {
		before.correct() // finds out that it is lost
	}
	if g.lossOrNil() != nil { // already, and the gate was told too early
		l.gates.ended(g)
	}
	if c.closed.Load() { // too late for Close to see it
		g.interrupt(ErrClosed)
	}
	return held, hold, nil
}

// abandon gives an attempt up. What it may have acquired is released.
func (g *grant) abandon(acquired bool) {
	g.mu.Lock()
	g.state = released
	g.mu.Unlock()
	if acquired || g.doubted || g.queued {
		g.lock.client.janitor.sweep(g)
	}
	if g.doubted {
		g.lock.client.janitor.sweepAgain(g)
	}
}

// release frees the lock after the last hold is gone.
func (g *grant) release(ctx context.Context) error {
	c := g.lock.client
	defer g.finish()
	g.entry.Stop()
	own := g.lock.gates.freeing(g)
	a := send(ctx, g.lock, g.patience(min(time.Until(g.expires()), c.opts.UnlockTimeout)), g.requestRelease, nil)
	if g.doubted {
		c.janitor.sweepAgain(g)
	}
	switch {
	case errors.Is(a.err, lua.ErrNotOwner) && !a.doubt:
		// Had an attempt been in doubt, it would have been that one.
		err := &LostError{g.lock.name, g.token, errGone}
		g.sweepHeirs()
		c.reportLost(err)
		return err
	case a.err != nil && !errors.Is(a.err, lua.ErrNotOwner):
		c.janitor.sweep(g)
		g.sweepHeirs()
		return a.err
	}
	g.lock.gates.freed(g, a.value.Receivers-own, a.sent)
	if refusal := a.value.PublishErr; refusal != nil && g.lock.polling == nil {
		c.warnPublish.Do(func() {
			c.opts.Logger.Warn("rlock: the server refuses to announce releases; waiters elsewhere only notice them when the lease ends: allow PUBLISH on the unlock channels",
				"lock", g.lock.name, "err", refusal)
		})
	}
	g.reportReleased()
	return nil
}

// releaseRest releases what a lost grant may still have: the lease on the server
// outlives the trust in it by the guard and the drift.
func (g *grant) releaseRest(ctx context.Context) {
	c := g.lock.client
	if rest := time.Until(g.expires()); rest > 0 && !errors.Is(g.lossOrNil(), errGone) {
		if a := send(ctx, g.lock, g.patience(min(rest, c.opts.UnlockTimeout)), g.requestRelease, nil); a.err != nil && !errors.Is(a.err, lua.ErrNotOwner) {
			c.janitor.sweep(g)
		}
	}
	if g.doubted {
		c.janitor.sweepAgain(g)
	}
}

func (g *grant) requestRelease(ctx context.Context) (lua.Released, error) {
	return g.lock.protocol.release(ctx, g.owner, g.chain.heirs)
}

// until returns the end of the trusted window. Unlike entry, it may be used
// before start has returned.
func (g *grant) until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.entry.Until()
}

// pending tells whether there is nothing to hold yet.
func (g *grant) pending() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state == asking
}

// expires returns when the lease has ended on the server at the latest: drift
// after the trusted window, and drift again as clocks may differ either way.
func (g *grant) expires() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.entry == nil {
		return time.Now().Add(g.lock.lease)
	}
	return g.entry.Until().Add(g.longest/50 + 4*time.Millisecond)
}

// lose ends an owned grant against the holder's will.
func (g *grant) lose(err error) {
	switch {
	case errors.Is(err, watchdog.ErrRefused), err == errGone:
		err = errGone
	case errors.Is(err, watchdog.ErrClosed):
		err = ErrClosed
	case g.lock.fixed:
		err = fmt.Errorf("the fixed lease of %v is over (%w)", g.lock.lease, err)
	default:
		err = fmt.Errorf("it was not renewed in time: Redis was silent, or this process stood still (%w)", err)
	}
	g.mu.Lock()
	first := g.state == owned
	if first {
		g.state = lost
		g.loss = &LostError{g.lock.name, g.token, err}
	}
	loss := g.loss
	g.mu.Unlock()
	if loss != nil {
		g.interrupt(loss) // by whoever comes first: each may rely on it
	}
	if first {
		g.entry.Stop()
		g.sweepHeirs()
		g.lock.client.reportLost(loss)
		g.finish()
	}
}

// sweepHeirs takes out the tickets of the heirs one by one, if the release does not:
// the server may take one of them for the next.
func (g *grant) sweepHeirs() {
	for _, heir := range g.chain.heirs {
		g.lock.client.janitor.sweep(g.lock.newGrant(heir))
	}
}

// interrupt ends the contexts of all live holds, and of those above them.
func (g *grant) interrupt(cause error) {
	g.mu.Lock()
	holds := slices.Clone(g.holds)
	g.mu.Unlock()
	for _, h := range holds {
		for ; h != nil; h = h.parent {
			h.cancel(cause)
		}
	}
}

// finish is the end of a grant that was owned.
func (g *grant) finish() {
	g.lock.gates.ended(g)
	g.lock.client.done()
}

// check compares the clocks and tells whether the grant is still trusted. If it
// is not, its contexts have ended: the watchdog may know before it has told.
func (g *grant) check() bool {
	if g.entry.Check() {
		return true
	}
	if err := g.entry.Err(); err != nil {
		g.lose(err)
	}
	return false
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
