package rlock

import "slices"

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
	gate.turns.acquired()
	return before
}

// replace puts an heir in the place of a grant. mu is held.
func (g *gate) replace(before, heir *grant) {
	if i := slices.Index(g.holders, before); i >= 0 {
		g.holders[i] = heir
	} else {
		g.holders = append(g.holders, heir)
	}
}

// ended notes that a grant of this client is over, and has the head look again.
func (gs *gates) ended(g *grant) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gate := gs.byKey[g.lock.protocol.key()]; gate != nil {
		if gate.turns.freeing { // it is not known that anything was announced
			gate.turns.freeing, gate.turns.echoes = false, 0
		}
		gate.holders = slices.DeleteFunc(gate.holders, func(other *grant) bool { return other == g })
		if len(gate.queue) > 0 && !g.lock.shared { // the last reader of all is told by the server
			gate.queue[0].rouse()
		}
		gate.wakeUp()
		gs.tidy(gate)
	}
}

// holder returns the client's grant that excludes all others from the lock, if it
// knows of one.
func (gs *gates) holder(l *Lock) *grant {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gate := gs.byKey[l.protocol.key()]; gate != nil {
		return gate.holder()
	}
	return nil
}

func (g *gate) holder() *grant {
	for _, holder := range slices.Backward(g.holders) {
		if holder.exclusive() {
			return holder
		}
	}
	return nil
}

// busy tells whether goroutines of this client queue for the lock.
func (gs *gates) busy(l *Lock) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gate := gs.byKey[l.protocol.key()]
	return gate != nil && len(gate.queue) > 0
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
