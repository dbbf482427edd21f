package rlock

import "slices"

// held notes that a grant of this client began. It returns those that the client
// believed in until then and that exclude it, and of them the one that is parked, which is
// not any more.
func (qs *queues) held(g *grant) (before []*grant, parked *grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of(g.lock.key)
	for _, other := range q.holders {
		if g.exclusive() || other.exclusive() {
			before = append(before, other)
		}
	}
	q.holders = append(q.holders, g)
	if k := q.kept; k != nil && k.parked != nil {
		parked = k.stop()
	}
	return before, parked
}

// replace puts an heir in the place of a grant. mu is held.
func (q *queue) replace(before, heir *grant) {
	if i := slices.Index(q.holders, before); i >= 0 {
		q.holders[i] = heir
	} else {
		q.holders = append(q.holders, heir)
	}
}

// ended notes that a grant of this client is over, and has the head look again.
func (qs *queues) ended(g *grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[g.lock.key]; q != nil {
		q.holders = slices.DeleteFunc(q.holders, func(other *grant) bool { return other == g })
		if first := q.first(); first != nil && !g.lock.shared { // the last reader of all is told by the server
			first.wakeUp()
		}
		if q.kept != nil && q.kept.owner == g.owner {
			q.kept.end()
			q.kept = nil
		}
		qs.tidy(q)
	}
}

// yielded has the first waiter ask: a writer of this client has become a reader, which
// excludes no readers. The others follow when that one has the lock. They may have
// relied on this client for that, and listen to nothing.
func (qs *queues) yielded(g *grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[g.lock.key]; q != nil && q.first() != nil {
		q.first().mustAsk()
	}
}

// holder returns the client's grant that excludes all others from the lock, if it
// knows of one.
func (qs *queues) holder(l *Lock) *grant {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[l.key]; q != nil {
		return q.holder()
	}
	return nil
}

func (q *queue) holder() *grant {
	for _, holder := range slices.Backward(q.holders) {
		if holder.exclusive() {
			return holder
		}
	}
	return nil
}

// busy tells whether goroutines of this client queue for the lock.
func (qs *queues) busy(l *Lock) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[l.key]
	return q != nil && len(q.waiters) > 0
}

// all returns all grants of the client.
func (qs *queues) all() (all []*grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.byKey {
		all = append(all, q.holders...)
	}
	return all
}
