package rlock

import "iter"

// waiters are those of a queue, in the order in which they have come. They are a list, as there
// may be very many: one that leaves is not searched for. Each is an element of it, so that to
// wait takes no allocation more. queues.mu guards it, and the links of the waiters.
type waiters struct {
	first, last *waiter
	n           int
}

// neighbours are who stands directly before and behind a waiter; nil at the ends.
type neighbours struct{ before, behind *waiter }

// push puts a waiter behind all others.
func (ws *waiters) push(w *waiter) {
	w.before, w.behind = ws.last, nil
	if ws.last == nil {
		ws.first = w
	} else {
		ws.last.behind = w
	}
	ws.last = w
	ws.n++
}

// remove takes a waiter out.
func (ws *waiters) remove(w *waiter) {
	if w.before == nil {
		ws.first = w.behind
	} else {
		w.before.behind = w.behind
	}
	if w.behind == nil {
		ws.last = w.before
	} else {
		w.behind.before = w.before
	}
	w.neighbours = neighbours{}
	ws.n--
}

// all goes through the waiters, from the first on. None may leave meanwhile.
func (ws *waiters) all() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for w := ws.first; w != nil && yield(w); w = w.behind {
		}
	}
}
