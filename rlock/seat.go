package rlock

import (
	"context"
	"slices"
	"time"
)

// seat is a place in a gate's queue.
type seat struct {
	gates *gates
	gate  *gate
	lock  *Lock
	since time.Time // when the call began

	// wake tells that the seat has become the head, was given a grant, or should
	// look at the client's own grant again; or that the client has closed. Capacity 1;
	// sent to with gates.mu held.
	wake   chan struct{}   // made when it is needed
	roused bool            // before that
	ring   <-chan struct{} // of the gate's waiter, while it is not the head; nil if there was none
	owes   bool            // a wake-up, until its attempt is answered

	open  bool   // waits, and can be given a grant
	given *grant // not taken yet
	got   *grant // what it leaves with
	owner string // who listens, if it has a gate of its own
}

// enter takes the last place in the queue. It must be left in any case. A lock
// whose waiters queue on the server has a gate for each.
func (gs *gates) enter(l *Lock, began time.Time) *seat {
	s := &seat{gates: gs, lock: l, since: began}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if l.apart {
		s.gate = &gate{}
	} else {
		s.gate = gs.of(l.protocol.key())
	}
	s.gate.queue = append(s.gate.queue, s)
	if s.gate.queue[0] != s {
		s.wake, s.open = make(chan struct{}, 1), true
		if w := s.gate.waiter; w != nil {
			s.ring = w.C()
		}
	}
	if l.client.closed.Load() { // too late for Close to see it
		s.rouse()
	}
	return s
}

// await waits until the seat is the first one, or is given a grant. The error says
// why it never came to that.
func (s *seat) await(ctx context.Context) error {
	if s.wake == nil {
		return nil
	}
	for {
		select { // few cases: each takes memory while it waits
		case <-s.wake:
			if s.lock.client.closed.Load() {
				return s.lock.isClosed()
			}
			return nil
		case <-s.ring:
			s.gates.forward(s.gate)
		case <-ctx.Done():
			return s.givenUp(ctx)
		}
	}
}

// forward tells the head of a wake-up that another seat took. While a grant goes
// from one seat to the next there is no head that waits for it.
func (gs *gates) forward(g *gate) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	heard, foreign := g.turns.hear(g.waiter, time.Now())
	if heard == 0 {
		g.turns.echoes = 0
	}
	g.owing = g.owing || heard == 0 || foreign > 0 && len(g.holders) > 0
	if len(g.queue) > 0 {
		g.queue[0].rouse()
	}
}

// givenUp is the error of a seat that never became the head.
func (s *seat) givenUp(ctx context.Context) error {
	s.gates.mu.Lock()
	refusal, trouble := s.gate.refusal, s.gate.trouble
	s.gates.mu.Unlock()
	if trouble != nil {
		return s.lock.givenUp(ctx, trouble)
	}
	err := &NotAcquiredError{Name: s.lock.name, Err: ended(ctx)}
	if refusal != nil {
		err.TTL = refusal.TTL
	}
	return err
}

// leave gives the place up. The next in the queue, if this was its head, takes
// over: it tries at once, so that no wake-up is lost with a head that leaves. If
// this one leaves with a grant that nobody shares, its end will be told to the
// next, which may sleep until then: so a grant that is passed on wakes one
// goroutine, not two. A grant that was given but not taken is passed on.
func (s *seat) leave() {
	gs, g := s.gates, s.gate
	var idle ear
	gs.mu.Lock()
	place, given := slices.Index(g.queue, s), s.given
	g.queue = slices.Delete(g.queue, place, place+1)
	s.open, s.given = false, nil
	g.owing = g.owing || s.owes
	switch {
	case len(g.queue) > 0:
		if next := g.queue[0]; place == 0 && (next.ring == nil || g.owing || s.lock.shared || !slices.Contains(g.holders, s.got)) {
			next.rouse()
		}
	default:
		g.refusal, g.since, g.trouble = nil, time.Time{}, nil
		switch {
		case s.lock.apart:
			idle = g.waiter
			delete(gs.apart, s.owner)
		case g.waiter != nil:
			gs.retain(g)
		default:
			gs.tidy(g)
		}
	}
	gs.mu.Unlock()
	if idle != nil {
		idle.Leave()
	}
	if given != nil {
		given.pass()
	}
}

// rouse wakes the seat. gates.mu is held.
func (s *seat) rouse() {
	if s.wake == nil {
		s.roused = true
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// listen returns the gate's waiter, nil if it has none, and whether it was made
// just now. Only the head calls it.
func (s *seat) listen(owner string) (w ear, joined bool) {
	if s.lock.polling != nil {
		return nil, false
	}
	gs, g := s.gates, s.gate
	gs.mu.Lock()
	w = g.waiter
	gs.mu.Unlock()
	if w != nil && s.owner != "" && s.owner != owner { // who waits under a new name
		w.Leave()
		w = nil
	}
	if w != nil {
		return w, false
	}
	if w = s.lock.protocol.listen(owner); w == nil {
		return nil, false
	}
	gs.mu.Lock()
	g.waiter = w
	g.turns.listen(w)
	if s.lock.apart {
		if gs.apart == nil {
			gs.apart = make(map[string]*seat)
		}
		delete(gs.apart, s.owner)
		s.owner, gs.apart[owner] = owner, s
	}
	gs.mu.Unlock()
	return w, true
}

// outlook tells the head what to do now: to try, or to wait for so long. woken
// says that its waiter was; mine is the client's own grant, if it still counts,
// and is made to find out whether it does if somebody else has released the lock.
func (s *seat) outlook(woken bool, mine *grant) (pause time.Duration, try bool) {
	gs, t := s.gates, &s.gate.turns
	gs.mu.Lock()
	defer gs.mu.Unlock()
	now := time.Now()
	heard, foreign := t.hear(s.gate.waiter, now)
	doubt := woken && heard == 0
	s.gate.owing = s.gate.owing || doubt || mine != nil && foreign > 0
	if doubt {
		t.echoes = 0
	}
	if mine != nil && foreign > 0 {
		mine.correct()
	}
	switch {
	case s.gate.owing:
	case mine != nil: // its end will be told
		pause = min(mine.until().Sub(now), maxPause)
	default:
		pause = t.rest(now)
	}
	if try = pause <= 0; try { // what comes from now on needs another attempt
		s.owes, s.gate.owing = s.gate.owing, false
	} else {
		s.hark()
	}
	s.open = !try
	return pause, try
}

// refused notes the head's newest refusal, to an attempt sent at sent, also for
// those behind it, and has the seat wait on: for so long.
func (s *seat) refused(err *NotAcquiredError, sent time.Time) (pause time.Duration) {
	pause = untilExpiry(err.TTL)
	s.gates.mu.Lock()
	defer s.gates.mu.Unlock()
	s.gate.refusal, s.owes = err, false
	s.gate.turns.refused(sent, time.Now().Add(pause))
	s.hark()
	if s.gate.owing {
		s.rouse()
	}
	s.open = true
	return pause
}

// hark makes the seat's wake-up possible. gates.mu is held.
func (s *seat) hark() {
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
		if s.roused {
			s.rouse()
		}
	}
}

// told notes how the head's attempts go, for those behind it.
func (s *seat) told(err error) {
	s.gates.mu.Lock()
	defer s.gates.mu.Unlock()
	switch g := s.gate; {
	case err == nil:
		g.since = time.Time{}
	case g.since.IsZero():
		g.since, g.refusal = time.Now(), nil
	}
	s.gate.trouble = err
}

// view is what can be known at a seat.
type view struct {
	given   *grant            // taken with the look
	mine    *grant            // the client's own, that excludes others
	refusal *NotAcquiredError // the newest, unless there was trouble after it
	spare   int64             // tokens to reserve

	// Since when, but not before the seat was taken, the heads have had no answer,
	// and the newest error. So everybody in the queue gives up after the same time,
	// not one after the other.
	since   time.Time
	trouble error
}

func (s *seat) look() view {
	s.gates.mu.Lock()
	defer s.gates.mu.Unlock()
	g := s.gate
	v := view{
		given: s.take(), mine: g.holder(), refusal: g.refusal, spare: s.spareTokens(),
		since: g.since, trouble: g.trouble,
	}
	if !v.since.IsZero() && v.since.Before(s.since) {
		v.since = s.since
	}
	return v
}

// drain takes a wake-up that tells nothing new.
func drain(w ear) {
	select {
	case <-w.C():
	default:
	}
}
