package rlock

import (
	"container/list"
	"context"
	"sync"

	"github.com/go-rlock/rlock/pubsub"
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
	queue   list.List      // of *seat; the front contends
	waiter  *pubsub.Waiter // joined by the first head that is refused, left with the last seat
	holder  *grant         // the grant of this client, as far as it knows
	trouble error          // the head's last attempt, if it got no answer
}

// seat is a place in a gate's queue.
type seat struct {
	gates *gates
	gate  *gate
	place *list.Element
	turn  chan struct{} // closed when the seat becomes the head; nil if it was at once
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
	if g.queue.Len() == 0 && g.holder == nil {
		delete(gs.byKey, g.key)
	}
}

// enter takes the last place in the queue and waits until it is the first one.
// The seat must be left in any case; the error says why it never came to that.
func (gs *gates) enter(ctx context.Context, l *Lock) (*seat, error) {
	s := &seat{gates: gs}
	gs.mu.Lock()
	s.gate = gs.of(l.protocol.key())
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
		gs.mu.Lock()
		trouble := s.gate.trouble
		gs.mu.Unlock()
		if trouble != nil {
			return s, l.givenUp(ctx, trouble)
		}
		return s, &NotAcquiredError{Name: l.name, Err: ended(ctx)}
	}
}

// leave gives the place up. The next in the queue, if this was its head, takes
// over: it tries at once, so that no wake-up is lost with a head that leaves.
func (s *seat) leave() {
	gs, g := s.gates, s.gate
	var idle *pubsub.Waiter
	gs.mu.Lock()
	head := g.queue.Front() == s.place
	g.queue.Remove(s.place)
	if next := g.queue.Front(); next == nil {
		idle, g.waiter, g.trouble = g.waiter, nil, nil
		gs.tidy(g)
	} else if head {
		close(next.Value.(*seat).turn)
	}
	gs.mu.Unlock()
	if idle != nil {
		idle.Leave()
	}
}

// listen returns the gate's waiter for wake-ups. Only the head calls it.
func (s *seat) listen(hub *pubsub.Hub, channel string) *pubsub.Waiter {
	s.gates.mu.Lock()
	defer s.gates.mu.Unlock()
	if s.gate.waiter == nil {
		s.gate.waiter = hub.Join(channel)
	}
	return s.gate.waiter
}

// told notes how the head's attempts go, for those behind it.
func (s *seat) told(err error) {
	s.gates.mu.Lock()
	s.gate.trouble = err
	s.gates.mu.Unlock()
}

// held notes that a grant of this client began.
func (gs *gates) held(g *grant) {
	gs.mu.Lock()
	gs.of(g.lock.protocol.key()).holder = g
	gs.mu.Unlock()
}

// ended notes that a grant of this client is over.
func (gs *gates) ended(g *grant) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gate := gs.byKey[g.lock.protocol.key()]; gate != nil && gate.holder == g {
		gate.holder = nil
		gs.tidy(gate)
	}
}

// holder returns the client's grant of the lock, if it knows of one.
func (gs *gates) holder(l *Lock) *grant {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gate := gs.byKey[l.protocol.key()]; gate != nil {
		return gate.holder
	}
	return nil
}

// holders returns all grants of the client.
func (gs *gates) holders() (all []*grant) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, gate := range gs.byKey {
		if gate.holder != nil {
			all = append(all, gate.holder)
		}
	}
	return all
}
