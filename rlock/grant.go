package rlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	// Set before the grant is shared.
	acquisition
	run   run
	began time.Time
	entry *watchdog.Entry[*grant]

	counting
	mu sync.Mutex // guards what follows, and the holds' own state
	holdSet
	state state
	loss  *LostError
	left  leftover // by attempts whose outcome came when nobody waited for it
	gone  bool     // nothing is sent for it any more
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
	errReleased = errors.New("the last hold was unlocked meanwhile")
	errGone     = errors.New("the server knows of no such holder: the lock expired, or was removed or taken over")
)

func (l *Lock) newGrant(owner string) *grant {
	g := &grant{lock: l, owner: owner}
	g.longest = l.lease
	g.holds = g.room[:0]
	return g
}

// retry is the policy of a request that has to be finished, for as long as total.
func (g *grant) retry(total time.Duration) request.Policy {
	return request.Policy{Attempt: g.lock.bound(), Total: total}
}

// acquire asks the server.
func (g *grant) acquire(ctx context.Context, p request.Policy, o kind.Options) answer[kind.Answer] {
	owner := g.owner // an attempt that hangs may look at it when it has changed
	a := send(ctx, g.lock, p, func(ctx context.Context) (kind.Answer, error) {
		return g.lock.wire.Acquire(ctx, owner, g.lock.lease, o)
	}, g.late)
	g.sent, g.token = a.sent, a.value.Token
	if a.value.Owner != "" {
		g.owner = a.value.Owner
	}
	if sent := a.value.Sent; !sent.IsZero() {
		g.sent = sent
	}
	g.initialLease = g.lock.lease
	g.run = run{began: a.sent, spare: a.value.Spare}
	g.acquireUnknown, g.answerLost = g.acquireUnknown || a.doubt, g.answerLost || a.lost
	g.attemptOpen = g.attemptOpen || a.open
	g.leftState = g.leftState || a.value.Leftover
	return a
}

// late gets the answer to an attempt to acquire that nobody waits for any more.
func (g *grant) late(a kind.Answer, err error) {
	if a.Owner != "" { // what became of g says nothing about it
		g.lock.newGrant(a.Owner).sweep()
		return
	}
	o, _ := classify(err)
	if o == notExecuted || err == nil && !a.Acquired && !a.Leftover {
		return
	}
	maybe := o == unknown && err != request.ErrUnread
	switch {
	case !g.keep(maybe):
		g.clear(leftover{some: true, maybe: maybe})
	case g.lock.tickets: // whoever has inherited the owner may have the lock by now
		g.lock.askAgain(g.owner)
	}
}

// keep notes that an attempt has left something, to be released with the grant. It
// reports false if nobody is going to: a release that is under way still will.
func (g *grant) keep(maybe bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left.some, g.left.maybe = true, g.left.maybe || maybe
	return !g.gone && g.state != lost
}

// leftover is what attempts may have left on the server.
type leftover struct {
	some  bool // something to release
	maybe bool // one of them may still arrive
}

// clear has it released.
func (g *grant) clear(remains leftover) {
	if remains.some {
		g.sweep()
	}
	if remains.maybe {
		g.sweepAgain()
	}
}

// likely tells whether it is likely that the server has something of the grant, the lock
// or a place in its queue: it has said so, or an answer was lost.
func (g *grant) likely() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.entry != nil || !g.place.here.IsZero() || g.answerLost || g.left.some
}

// start makes an acquired grant an owned one, with its first hold. The error
// says that there is no time left to hold it, or that the client is closed.
func (g *grant) start(ctx context.Context) (context.Context, *Hold, error) {
	if g.run.count > 0 {
		return g.adopt(ctx)
	}
	c, l := g.lock.client, g.lock
	held, hold := g.derive(ctx, &g.first, l, nil)
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
	for _, before := range l.queues.held(g) {
		before.correct() // finds out that it is lost
	}
	if g.lossOrNil() != nil { // already, and the gate was told too early
		l.queues.ended(g)
	}
	if c.closed.Load() { // too late for Close to see it
		g.interrupt(ErrClosed)
	}
	return held, hold, nil
}

// abandon gives an attempt up. What it may have acquired is released.
func (g *grant) abandon(acquired bool) {
	g.mu.Lock()
	g.state, g.gone = released, true
	remains := g.left
	g.mu.Unlock()
	g.clear(leftover{some: remains.some || acquired || g.acquireUnknown || g.leftState, maybe: remains.maybe || g.acquireUnknown})
}

// release frees the lock after the last hold is gone.
func (g *grant) release(ctx context.Context) (err error) {
	c := g.lock.client
	defer func() {
		g.finish()
		if err == nil {
			g.reportReleased() // when nobody waits for it
		}
	}()
	g.entry.Stop()
	before := g.takeLeft(false) // the request of a waiter before this one, say
	a := send(ctx, g.lock, g.retry(min(time.Until(g.expires()), c.opts.UnlockTimeout)), g.requestRelease, nil)
	meanwhile := g.takeLeft(true)
	g.clear(leftover{some: meanwhile.some, maybe: before.maybe || meanwhile.maybe || g.acquireUnknown})
	switch {
	case errors.Is(a.err, lua.ErrNotOwner) && !a.doubt:
		// Had an attempt been in doubt, it would have been that one.
		err := &LostError{g.lock.name, g.token, errGone}
		g.sweepPassed()
		c.reportLost(err)
		return err
	case a.err != nil && !errors.Is(a.err, lua.ErrNotOwner):
		g.sweep()
		g.sweepPassed()
		return a.err
	}
	if refusal := a.value.PublishErr; refusal != nil && g.lock.polling == nil {
		c.warnings.publish.Do(func() {
			c.log.Warn("rlock: the server refuses to announce releases; who waits elsewhere notices them when it asks again: allow PUBLISH on redisson_lock__channel:* and rlock_channel:*",
				"lock", g.lock.name, "error", refusal)
		})
	}
	return nil
}

// takeLeft returns what late attempts have left since it was called before. last says
// that nothing is sent for the grant any more.
func (g *grant) takeLeft(last bool) leftover {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := g.left
	g.left, g.gone = leftover{}, last
	return left
}

// releaseRest releases what a lost grant may still have: the lease on the server
// outlives the trust in it by the guard and the drift, and has no end if somebody has
// removed the TTL of the key.
func (g *grant) releaseRest(ctx context.Context) {
	if !errors.Is(g.lossOrNil(), errGone) {
		p := g.retry(min(time.Until(g.expires()), g.lock.client.opts.UnlockTimeout)) // no attempt if that is over
		if a := send(ctx, g.lock, p, g.requestRelease, nil); a.err != nil && !errors.Is(a.err, lua.ErrNotOwner) {
			g.sweep()
		}
	}
	g.mu.Lock()
	maybe := g.acquireUnknown || g.left.maybe
	g.mu.Unlock()
	if maybe {
		g.sweepAgain()
	}
}

func (g *grant) requestRelease(ctx context.Context) (lua.Released, error) {
	e := lua.Ending{Tickets: g.run.passed, Used: g.token, Reserved: g.token + g.run.spare}
	g.mu.Lock()
	acquired := g.entry != nil
	g.mu.Unlock()
	if g.leftState && (!acquired || g.acquireUnknown) { // otherwise whoever granted it has taken the ticket out
		e.Tickets = append(slices.Clip(e.Tickets), g.owner)
	}
	r, err := g.lock.wire.Release(ctx, g.owner, e)
	if r.Message != "" {
		g.lock.hear(r.Message)
	}
	return r, err
}

// until returns the end of the trusted window. Unlike entry, it may be used
// before start has returned.
func (g *grant) until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.entry.Until()
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
		g.sweepPassed()
		g.lock.client.reportLost(loss)
		g.finish()
	}
}

// sweepPassed takes out the tickets of those to whom the lock was passed on one by one,
// if the release does not: the server may take one of them for the next.
func (g *grant) sweepPassed() {
	for _, owner := range g.run.passed {
		left := g.lock.newGrant(owner)
		left.leftState = true
		left.sweep()
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
	g.lock.queues.ended(g)
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
