package rlock

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"
)

// gates are the in-process queues of a client, by lock key. A gate exists while
// somebody queues at it or holds its lock.
type gates struct {
	closing <-chan struct{} // the client's
	mu      sync.Mutex      // guards byKey and everything in the gates
	byKey   map[string]*gate
}

// gate is the queue of those goroutines of a client that want the same lock.
// Its head contends on the server, on behalf of all.
type gate struct {
	key     string
	queue   list.List // of *seat; the front contends
	waiter  ear       // joined by the first head that is refused, left with the last seat
	holders []*grant  // grants of this client, as far as it knows; one unless they are shared

	// What the heads have learnt: the newest refusal or, if there was no answer
	// since, from when on and the newest error.
	refusal *NotAcquiredError
	since   time.Time
	trouble error
}

// seat is a place in a gate's queue.
type seat struct {
	gates *gates
	gate  *gate
	place *list.Element
	turn  chan struct{} // closed when the seat becomes the head; nil if it was at once
	since time.Time     // when it was taken
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
	if g.queue.Len() == 0 && len(g.holders) == 0 {
		delete(gs.byKey, g.key)
	}
}

// enter takes the last place in the queue and waits until it is the first one.
// The seat must be left in any case; the error says why it never came to that.
// A lock whose waiters queue on the server has a gate for each.
func (gs *gates) enter(ctx context.Context, l *Lock) (*seat, error) {
	s := &seat{gates: gs, since: time.Now()}
	gs.mu.Lock()
	if l.apart {
		s.gate = &gate{}
	} else {
		s.gate = gs.of(l.protocol.key())
	}
	s.place = s.gate.queue.PushBack(s)
	if s.place.Prev() != nil {
		s.turn = make(chan struct{})
	}
	gs.mu.Unlock()
	if s.turn == nil {
		return s, nil
	}
	select {
	case <-s.turn:
		return s, nil
	case <-gs.closing:
		return s, &lockError{l.name, ErrClosed, nil}
	case <-ctx.Done():
		if _, trouble := s.outage(); trouble != nil {
			return s, l.givenUp(ctx, trouble)
		}
		err := &NotAcquiredError{Name: l.name, Err: ended(ctx)}
		if refusal := s.refusal(); refusal != nil {
			err.TTL = refusal.TTL
		}
		return s, err
	}
}

// leave gives the place up. The next in the queue, if this was its head, takes
// over: it tries at once, so that no wake-up is lost with a head that leaves.
func (s *seat) leave() {
	gs, g := s.gates, s.gate
	var idle ear
	gs.mu.Lock()
	head := g.queue.Front() == s.place
	g.queue.Remove(s.place)
	if next := g.queue.Front(); next == nil {
		idle, g.waiter, g.refusal, g.since, g.trouble = g.waiter, nil, nil, time.Time{}, nil
		gs.tidy(g)
	} else if head {
		close(next.Value.(*seat).turn)
	}
	gs.mu.Unlock()
	if idle != nil {
		idle.Leave()
	}
}

// waiter returns the waiter for wake-ups that an earlier head has left to this
// one, if there is one.
func (s *seat) waiter() ear {
	s.gates.mu.Lock()
	defer s.gates.mu.Unlock()
	return s.gate.waiter
}

// listen gives the gate its waiter. Only the head calls it, once.
func (s *seat) listen(w ear) ear {
	s.gates.mu.Lock()
	s.gate.waiter = w
	s.gates.mu.Unlock()
	return w
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

// refused notes the head's newest refusal, for those behind it.
func (s *seat) refused(err *NotAcquiredError) {
	s.gates.mu.Lock()
	s.gate.refusal = err
	s.gates.mu.Unlock()
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

// held notes that a grant of this client began. It returns those that the client
// believed in until then and that exclude it.
func (gs *gates) held(g *grant) (before []*grant) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gate := gs.of(g.lock.protocol.key())
	for _, other := range gate.holders {
		if g.exclusive() || other.exclusive() {
			before = append(before, other)
		}
	}
	gate.holders = append(gate.holders, g)
	return before
}

// ended notes that a grant of this client is over.
func (gs *gates) ended(g *grant) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gate := gs.byKey[g.lock.protocol.key()]; gate != nil {
		gate.holders = slices.DeleteFunc(gate.holders, func(other *grant) bool { return other == g })
		gs.tidy(gate)
	}
}

// holder returns the client's grant that excludes all others from the lock, if it
// knows of one.
func (gs *gates) holder(l *Lock) *grant {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gate := gs.byKey[l.protocol.key()]; gate != nil {
		for _, g := range slices.Backward(gate.holders) {
			if g.exclusive() {
				return g
			}
		}
	}
	return nil
}

// busy tells whether goroutines of this client queue for the lock.
func (gs *gates) busy(l *Lock) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gate := gs.byKey[l.protocol.key()]
	return gate != nil && gate.queue.Len() > 0
}

// all returns all grants of the client.
func (gs *gates) all() (all []*grant) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, gate := range gs.byKey {
		all = append(all, gate.holders...)
	}
	return all
}
