package rlock

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Defaults of [WithHandoff].
const (
	DefaultHandoffs    = 1024
	DefaultHandoffTime = 2 * time.Millisecond
)

// maxHandoffs is the most that [WithHandoff] allows.
const maxHandoffs = 1 << 20

// WithHandoff bounds how often, and for how long, the goroutines of a client pass
// a renewed lock on among themselves, in memory and without a round trip, before
// it is released on the server and other processes get their turn. One hand-off
// is always allowed, however long the holder took; zero of either bound means
// its default, and at most 1,048,576 are allowed. A fenced lock goes back to the server
// after 10,000, as its tokens have to be reserved ahead of the server's clock. Goroutines
// whose lock has other options than the holder's are not given its grant.
func WithHandoff(most int, longest time.Duration) LockOption {
	return func(l *Lock) {
		l.handoff = handoff{most, longest}
		switch {
		case most < 0 || longest < 0:
			l.refuse(fmt.Errorf("WithHandoff: %d within %v: neither may be negative", most, longest))
		case most > maxHandoffs:
			l.refuse(fmt.Errorf("WithHandoff: %d is too many: at most %d", most, maxHandoffs))
		}
	}
}

// WithoutHandoff has every last Unlock release the lock on the server.
func WithoutHandoff() LockOption {
	return func(l *Lock) { l.handoff = handoff{most: -1} }
}

// handoff is the budget of a lock for hand-offs in a row.
type handoff struct {
	most    int // negative: none
	longest time.Duration
}

func (h handoff) withDefaults(fixed bool) handoff {
	if h.most < 0 || fixed {
		return handoff{}
	}
	return handoff{cmp.Or(h.most, DefaultHandoffs), cmp.Or(h.longest, DefaultHandoffTime)}
}

// spareTokens is how many tokens a grant asks for beside its own, for the
// holders that it is passed on to. Of a lock that is kept these may be many: it asks for more
// than the server reserves ahead of its clock (lead in lua/token.lua). Otherwise they are some
// of those who wait: no more than can be used in the time that the budget allows, as a
// hand-off takes a microsecond at least.
func (l *Lock) spareTokens(waiting int) int64 {
	switch {
	case !l.fenced:
		return 0
	case l.retains != nil:
		return maxHandoffs
	case waiting == 0 || l.handoff.most <= 0:
		return 0
	}
	return min(int64(l.handoff.most), max(l.handoff.longest.Microseconds(), 1))
}

// run is what grants have in common that were passed on, one to the next: the owner
// on the server.
type run struct {
	count int       // hand-offs so far
	began time.Time // when the server was asked, or a message was read
	spare int64     // tokens reserved and not used yet

	// Of a fair lock: owners who come next in the server's queue, and those to whom the
	// lock was passed on, whose tickets the release takes out.
	next, passed []string
}

// handOff passes the grant, whose last hold was unlocked, on to the next goroutine in the
// queue, or parks it for whoever comes, if the lock is kept. It does not if a request about
// the old holder might still reach the server, or be answered.
func (g *grant) handOff() bool {
	l := g.lock
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	q := l.queues.byKey[l.key]
	if q == nil || q.waiters.n == 0 && q.kept == nil || l.client.closed.Load() { // nobody is there to have it
		return false
	}
	now := time.Now()
	inBudget, keeps := l.order.passes(g, now), q.kept.allows(g)
	if !inBudget && !keeps || !g.passable() {
		return false
	}
	switch next, r := l.order.next(q, g); {
	case next != nil:
		next.given = g.passOn(q, next.lock, r, now)
		if next.given != nil {
			next.wakeUp()
		}
		return next.given != nil
	case keeps && q.waiters.n == 0:
		return g.park(q, now)
	}
	return false
}

// park passes the grant on to whoever comes, and keeps it until then. queues.mu is held.
func (g *grant) park(q *queue, now time.Time) bool {
	successor := g.passOn(q, g.lock, g.run, now)
	if successor == nil {
		return false
	}
	q.kept.parked, q.kept.since, successor.began = successor, now, time.Time{}
	return true
}

// passable tells whether the grant may have another holder: it has a token for that one,
// and nothing is under way about the old one.
func (g *grant) passable() bool {
	return (!g.lock.fenced || g.run.spare > 0) && !g.unsettled()
}

// passOn ends the grant and returns one for the next holder, which is of the lock l: with
// the same owner and what is left of the lease. There is none if the window is half over,
// so that a run of short holds does not keep the loss of the lease from being noticed; nor if
// the lease has other terms than the lock, those of a nested hold that was the last.
// queues.mu is held.
func (g *grant) passOn(q *queue, l *Lock, r run, now time.Time) *grant {
	successor := l.newGrant(g.owner)
	successor.sent, successor.token, successor.run, successor.state, successor.began, successor.initialLease = g.sent, g.token, r, owned, now, g.initialLease
	successor.run.count++
	if !l.shared {
		successor.exclusives.Store(1) // of the hold that is to come
	}
	if l.fenced {
		successor.token++
		successor.run.spare--
	}
	successor.mu.Lock() // OnLost waits until the grant is complete
	defer successor.mu.Unlock()
	entry, ok := g.entry.Pass(successor, successor.lose, now, g.initialLease/2, g.lock.lease)
	if !ok {
		return nil
	}
	successor.entry = entry
	q.replace(g, successor)
	g.ended = now
	return successor
}

// unsettled tells whether a request about the grant may still arrive, or its answer may
// come. Its last hold is unlocked, so that none begins any more.
func (g *grant) unsettled() bool {
	if g.acquireUnknown || g.attemptOpen || g.countUnknown.Load() || g.proven.Load() {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.correcting || len(g.turn) > 0
}

// takes tells whether the waiter can be given a grant of l. queues.mu is held.
func (w *waiter) takes(l *Lock) bool {
	return w.state != waitAsking && w.given == nil && w.got == nil && w.lock.alike(l)
}

// adopt adds the first hold, which is by's, to a grant that was passed on.
func (g *grant) adopt(ctx context.Context, by *Lock) (context.Context, *Hold, error) {
	held, hold := g.derive(ctx, &g.first, by, nil)
	g.check() // this process may have stood still
	g.mu.Lock()
	loss := g.loss
	if loss == nil {
		if g.began.IsZero() {
			g.began = time.Now()
		}
		g.holds = append(g.holds, hold)
		if hold.counts {
			g.current++
		}
	}
	g.mu.Unlock()
	if loss != nil {
		hold.cancel(loss)
		return ctx, nil, loss
	}
	if g.lock.client.closed.Load() { // too late for Close to see it
		g.interrupt(ErrClosed)
	}
	return held, hold, nil
}

// pass gives away a grant that nobody took.
func (g *grant) pass() {
	if g.giveUp() && !g.handOff() {
		g.releaseEmpty()
	}
}

// drop releases such a grant, whoever waits here.
func (g *grant) drop() {
	if g.giveUp() {
		g.releaseEmpty()
	}
}

// giveUp is the end of a grant that nobody took. It reports false if that was lost.
func (g *grant) giveUp() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state != owned {
		return false
	}
	g.state = released
	return true
}

func (g *grant) releaseEmpty() {
	g.empty = true
	g.lock.client.background(func() { _ = g.release(context.Background()) })
}
