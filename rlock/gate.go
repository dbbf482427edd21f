package rlock

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"
)

// gates are the in-process queues of a client, by lock key. A gate exists while
// somebody queues at it or holds its lock, and a little longer if it listens for
// wake-ups.
type gates struct {
	closing <-chan struct{} // the client's
	mu      sync.Mutex      // guards what follows and everything in the gates and seats
	byKey   map[string]*gate
	kept    []*gate     // listen on although nobody queues
	keeper  *time.Timer // runs keep while there are any
}

// gate is the queue of those goroutines of a client that want the same lock.
// Its head contends on the server, on behalf of all.
type gate struct {
	key     string
	queue   list.List // of *seat; the front contends
	waiter  ear       // joined by the first head that has to wait
	kept    bool      // in gates.kept
	idle    time.Time // since when nobody queues
	holders []*grant  // grants of this client, as far as it knows; one unless they are shared
	turns   turns

	// owing says that a wake-up was not answered with a try yet. Whoever took it
	// may have left since.
	owing bool

	// What the heads have learnt: the newest refusal or, if there was no answer
	// since, from when on and the newest error.
	refusal *NotAcquiredError
	since   time.Time
	trouble error
}

// gateIdle is how long a gate goes on listening after its last seat has gone:
// not so short that a hot lock subscribes again and again, nor so long that
// others wait for a listener who wants nothing.
const gateIdle = 200 * time.Millisecond

// seat is a place in a gate's queue.
type seat struct {
	gates *gates
	gate  *gate
	lock  *Lock
	place *list.Element
	since time.Time // when it was taken

	// wake tells that the seat has become the head, was given a grant, or should
	// look at the client's own grant again. Capacity 1; sent to with gates.mu held.
	wake  chan struct{}
	open  bool   // waits, and can be given a grant
	given *grant // not taken yet
	alert bool   // hears wake-ups also while it is not the head
	got   *grant // what it leaves with
}

// of returns the gate of a key. mu is held.
func (gs *gates) of(key string) *gate {
	g := gs.byKey[key]
	if g == nil {
		if gs.byKey == nil {
			gs.byKey = make(map[string]*gate)
		}
		g = &gate{key: key}
		gs.byKey[key] = g
	}
	return g
}

// tidy forgets a gate that nobody needs. mu is held.
func (gs *gates) tidy(g *gate) {
	if g.queue.Len() == 0 && len(g.holders) == 0 && g.waiter == nil && !g.kept {
		delete(gs.byKey, g.key)
	}
}

// enter takes the last place in the queue and waits until it is the first one, or
// is given a grant. The seat must be left in any case; the error says why it never
// came to that. A lock whose waiters queue on the server has a gate for each.
func (gs *gates) enter(ctx context.Context, l *Lock, now time.Time) (*seat, error) {
	s := &seat{gates: gs, lock: l, since: now}
	gs.mu.Lock()
	if l.apart {
		s.gate = &gate{}
	} else {
		s.gate = gs.of(l.protocol.key())
	}
	s.place = s.gate.queue.PushBack(s)
	first := s.place.Prev() == nil
	var woken <-chan struct{}
	if !first {
		s.wake, s.open = make(chan struct{}, 1), true
		if w := s.gate.waiter; w != nil {
			woken, s.alert = w.C(), true
		}
	}
	gs.mu.Unlock()
	for !first {
		select {
		case <-s.wake:
			return s, nil
		case <-woken:
			gs.forward(s.gate)
		case <-gs.closing:
			return s, &lockError{l.name, ErrClosed, nil}
		case <-ctx.Done():
			return s, s.givenUp(ctx)
		}
	}
	return s, nil
}

// forward tells the head of a wake-up that another seat took. While a grant goes
// from one seat to the next there is no head that waits for it.
func (gs *gates) forward(g *gate) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	heard, foreign := g.turns.hear(g.waiter, time.Now())
	g.owing = g.owing || heard == 0 || foreign > 0
	if head := g.queue.Front(); head != nil {
		head.Value.(*seat).rouse()
	}
}

// givenUp is the error of a seat that never became the head.
func (s *seat) givenUp(ctx context.Context) error {
	if _, trouble := s.outage(); trouble != nil {
		return s.lock.givenUp(ctx, trouble)
	}
	err := &NotAcquiredError{Name: s.lock.name, Err: ended(ctx)}
	if refusal := s.refusal(); refusal != nil {
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
	head := g.queue.Front() == s.place
	g.queue.Remove(s.place)
	next, given := g.queue.Front(), s.given
	s.open, s.given = false, nil
	switch {
	case next != nil:
		if n := next.Value.(*seat); head && (!n.alert || g.owing || s.lock.shared || !slices.Contains(g.holders, s.got)) {
			n.rouse()
		}
	default:
		g.refusal, g.since, g.trouble = nil, time.Time{}, nil
		switch {
		case s.lock.apart:
			idle = g.waiter
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
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// retain lets a gate listen on for a while. mu is held.
func (gs *gates) retain(g *gate) {
	g.idle = time.Now()
	if !g.kept {
		g.kept, gs.kept = true, append(gs.kept, g)
	}
	if gs.keeper == nil {
		gs.keeper = time.AfterFunc(gateIdle, gs.keep)
	}
}

// keep has those gates stop listening that were idle for long enough.
func (gs *gates) keep() {
	var left []ear
	gs.mu.Lock()
	now := time.Now()
	gs.kept = slices.DeleteFunc(gs.kept, func(g *gate) bool {
		switch {
		case g.queue.Len() > 0:
		case now.Sub(g.idle) < gateIdle:
			return false
		default:
			if g.waiter != nil {
				left = append(left, g.waiter)
			}
			g.waiter, g.turns, g.kept = nil, turns{}, false
			gs.tidy(g)
		}
		g.kept = false
		return true
	})
	if gs.keeper = nil; len(gs.kept) > 0 {
		gs.keeper = time.AfterFunc(gateIdle/2, gs.keep)
	}
	gs.mu.Unlock()
	for _, w := range left {
		w.Leave()
	}
}

// listen returns the gate's waiter, and whether it was made just now. Only the
// head calls it.
func (s *seat) listen(owner string) (w ear, joined bool) {
	gs, g := s.gates, s.gate
	gs.mu.Lock()
	w = g.waiter
	gs.mu.Unlock()
	if w != nil {
		return w, false
	}
	if w = s.lock.protocol.listen(owner); w == nil {
		return nil, false
	}
	gs.mu.Lock()
	g.waiter = w
	g.turns.listen(w)
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
	case mine == nil:
		pause = t.rest(now)
	}
	if try = pause <= 0; !try || len(s.gate.holders) > 0 {
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
	s.gate.refusal, s.gate.owing = err, false
	s.gate.turns.refused(sent, time.Now().Add(pause))
	s.hark()
	s.open = true
	return pause
}

// hark makes the seat's wake-up possible. gates.mu is held.
func (s *seat) hark() {
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
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

// refusal returns the newest refusal, unless there was trouble after it.
func (s *seat) refusal() *NotAcquiredError {
	s.gates.mu.Lock()
	defer s.gates.mu.Unlock()
	return s.gate.refusal
}

// outage returns since when, but not before the seat was taken, the heads have
// had no answer, and the newest error. So everybody in the queue gives up after
// the same time, not one after the other.
func (s *seat) outage() (since time.Time, trouble error) {
	s.gates.mu.Lock()
	defer s.gates.mu.Unlock()
	if since = s.gate.since; !since.IsZero() && since.Before(s.since) {
		since = s.since
	}
	return since, s.gate.trouble
}

// drain takes a wake-up that tells nothing new.
func drain(w ear) {
	select {
	case <-w.C():
	default:
	}
}
