package rlock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-rlock/rlock/watchdog"
)

// grant is one acquisition: from the server's yes until the release or the loss. It has its lease from the first
// moment, and is given to one call, or to several readers, before anybody takes it.
type grant struct {
	lock         *Lock // as it was asked for
	owner        string
	from         *candidate
	token        int64
	sent         time.Time     // a moment before the request
	initialLease time.Duration // length of the lease until the first renewal
	run          run

	entry *watchdog.Entry[*grant]

	first Hold        // of the first to take the grant: a field saves an allocation
	used  atomic.Bool // first is in use

	residue atomic.Uint32 // a set of the bits of residue: see leaves and left

	// exclusives counts the holds that exclude other owners: all but those of readers. Written with mu
	// held, read without.
	exclusives atomic.Int32

	mu        sync.Mutex // guards the rest, and the state of the holds
	state     state
	loss      *LostError    // of a lost grant, else nil
	began     time.Time     // when somebody took the grant; zero before
	holds     []*Hold       // the live holds
	room      [1]*Hold      // of holds, until there are more
	followers int           // calls that were given the grant, or will be, and have no hold yet
	told      *told         // the request about the count that is under way, else nil
	longest   time.Duration // the longest lease asked for
}

type state int

const (
	owned    state = iota
	released       // given up, or the last hold was unlocked
	lost           // ended against the holder's will
)

var (
	errLate        = errors.New("the answer came when the lease was as good as over")
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

// init makes g a grant of the owner to one call of l, not watched yet.
func (g *grant) init(l *Lock, o *candidate, sent time.Time, lease time.Duration, token int64, r run) *grant {
	g.lock, g.owner, g.from, g.token, g.run = l, o.name, o, token, r
	g.sent, g.initialLease, g.longest, g.followers = sent, lease, l.terms.lease, 1
	g.holds = g.room[:0]
	if !l.terms.shared {
		g.exclusives.Store(1) // the hold that is to come
	}
	return g
}

// until is the end of the trusted window, for a renewal: one may begin before candidate.grant or passOn has set the entry, both of
// which hold mu meanwhile.
func (g *grant) until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.entry.Until()
}

// tooLate is the error of a call that got an answer, but no grant, from candidate.grant.
func (l *Lock) tooLate(err error) error {
	if errors.Is(err, watchdog.ErrClosed) {
		return l.isClosed()
	}
	return &lockError{l.name, ErrUnavailable, errLate}
}

// take makes a hold for a call that was given the grant, of its lock by; counts says that it is an acquisition. After an
// error, the call forgoes the grant.
func (g *grant) take(ctx context.Context, by *Lock, counts bool) (context.Context, *Hold, error) {
	h := &g.first
	if !g.used.CompareAndSwap(false, true) { // a further reader
		h = new(Hold)
	}
	held, hold := g.derive(ctx, h, by, nil)
	g.check() // the lease may have ended, if this process stood still
	g.mu.Lock()
	if g.state == lost { // it is not released as long as a call may take it
		loss := g.loss
		g.mu.Unlock()
		hold.cancel(loss)
		return ctx, nil, loss
	}
	if g.began.IsZero() {
		g.began = time.Now()
	}
	g.followers--
	hold.counts = counts
	g.put(hold) // init has counted it among the exclusives
	g.mu.Unlock()
	if g.lock.terms.limits != (limits{}) {
		g.limit(g.began)
	}
	c := g.lock.client
	if g.lock.recorded {
		c.records.taken(g)
	}
	if c.closed.Load() { // too late for Close to see this hold
		g.interrupt(ErrClosed)
	}
	return held, hold, nil
}

// forgo notes that a call does not take the grant that it was given. The last to leave passes it on, or releases
// it, or the rest of a lost grant: the Unlocks of earlier holds did not, as this call was expected.
func (g *grant) forgo() {
	g.mu.Lock()
	g.followers--
	last, before, used := len(g.holds)+g.followers == 0, g.state, !g.began.IsZero()
	if last && before == owned {
		g.state = released
	}
	g.mu.Unlock()
	switch {
	case last && before == owned:
		if !g.handOff() {
			g.lock.client.background(func() { _ = g.release(context.Background()) })
		}
	case last && before == lost && used:
		g.lock.client.background(func() { g.releaseRest(context.Background()) })
	}
}

// lose ends an owned grant against the holder's will.
func (g *grant) lose(err error) {
	g.mu.Lock() // wait until the grant is complete
	entry := g.entry
	g.mu.Unlock()
	err = g.lock.lossReason(err, entry.Asks() == 0) // without mu: methods of err may be the application's
	g.mu.Lock()
	first, acquisitions, idle := g.state == owned, 0, len(g.holds) == 0
	if first {
		g.state, acquisitions = lost, g.acquisitions()
		g.loss = &LostError{g.lock.name, g.owner, g.token, err}
	}
	loss := g.loss
	g.mu.Unlock()
	if loss != nil {
		g.interrupt(loss) // by every caller: all may rely on the end when lose returns
	}
	if first {
		g.entry.Stop()
		g.from.ends()
		g.sweepPassed()
		switch {
		case !idle:
			g.reportLost(loss, acquisitions)
		case err != errGone && err != errRemoved && err != ErrClosed: // nobody has taken it, so no context depended on it
			g.orphan().sweep() // there will be no Unlock, and an unanswered renewal may have extended the lease
		}
		g.finish()
	}
}

// acquisitions ends those of the live holds, and returns their number: 1, or more of sharing readers. mu is held.
func (g *grant) acquisitions() (n int) {
	for _, h := range g.holds {
		if first := h.first(); first.counts {
			first.counts = false
			n++
		}
	}
	return n
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
}

// Exclusive reports whether the grant excludes further owners.
func (g *grant) Exclusive() bool { return g.exclusives.Load() > 0 }

// lossOrNil returns the loss of a lost grant, as an error.
func (g *grant) lossOrNil() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.loss != nil {
		return g.loss
	}
	return nil
}

// add adds a nested hold. The caller then sets the count on the server.
func (g *grant) add(h *Hold) error {
	g.check()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.state {
	case lost:
		return g.loss
	case released:
		return errReleased
	}
	if !h.lock.terms.shared && !g.Exclusive() {
		return &lockError{g.lock.name, ErrUpgrade, nil}
	}
	if h.parent != nil {
		for h.parent.over() {
			if h.parent = h.parent.parent; h.parent == nil { // all were unlocked since the caller looked, and another reader has the grant
				return errReleased
			}
		}
		h.parent.children++
	}
	if g.put(h); !h.lock.terms.shared {
		g.exclusives.Add(1)
	}
	g.longest = max(g.longest, h.lock.terms.lease)
	return nil
}

// remove takes out a hold, and ends the contexts without a live hold below. left is the number of holds
// left. If the acquisition ends with this hold, whoever unlocks it tells that: see Hold.ended.
func (g *grant) remove(h *Hold) (left int, err error) {
	g.mu.Lock()
	if h.unlocked {
		left = len(g.holds)
		g.mu.Unlock()
		return left, &lockError{g.lock.name, ErrNotHeld, nil}
	}
	h.unlocked = true
	last := len(g.holds) - 1 // a grant may have very many holds: those of readers
	g.holds[h.at] = g.holds[last]
	g.holds[h.at].at = h.at
	g.holds = slices.Delete(g.holds, last, last+1)
	first := h.first()
	first.under--
	if !h.lock.terms.shared {
		g.exclusives.Add(-1)
	}
	top := h // the first not over
	for top != nil && top.over() {
		if top = top.parent; top != nil {
			top.children--
		}
	}
	left = len(g.holds) + g.followers
	if g.state == lost {
		err = g.loss
	} else {
		if first.under == 0 {
			h.ends, first.counts = first.counts, false
		}
		if left == 0 {
			g.state = released
		}
	}
	g.mu.Unlock()
	for p := h; p != top; p = p.parent {
		p.cancel((*unlocked)(p))
	}
	return left, err
}

// over reports whether no live hold needs the hold's context any more. grant.mu is held.
func (h *Hold) over() bool { return h.unlocked && h.children == 0 }

// first returns the outermost hold of the grant around h.
func (h *Hold) first() *Hold {
	for h.parent != nil {
		h = h.parent
	}
	return h
}
