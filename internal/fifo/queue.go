// Package fifo is the queue in which the goroutines of a process wait for one lock: first come,
// first served. A [Queue] knows who waits, and which grants of the lock the process has. A grant is
// handed from the goroutine that gives it up to one that waits. How a lock is acquired, and from whom,
// is not known here.
//
// A [Waiter] is in one of three states.
//
//	              ┌──────── the first in the queue left, or the grant of this process ended
//	              ▼
//	blocked ──► asking ──► queued ──► has the lock, or gives up
//	              ▲           │
//	              └───────────┘ something has happened, or enough time has passed
//
// It begins as asking if nobody is there, otherwise as blocked. It can be handed a grant in every
// state but asking, because then its own request may be granted.
//
// A mutex of the caller guards a queue with all its waiters: it is held for each method. None of
// them blocks, and none calls anything but [Grant].Exclusive.
package fifo

import (
	"iter"
	"slices"
)

// Grant is what a process has of a lock. Its zero value stands for none.
type Grant interface {
	comparable
	// Exclusive reports whether it excludes all other grants of the lock.
	Exclusive() bool
}

// Queue is the waiters for one lock, each of which a W embeds, and the grants of it that the process
// has. The zero value is empty.
type Queue[W any, G Grant] struct {
	first, last *Waiter[W, G]

	// Grants are what the process has of the lock, as far as it knows, the newest last: one, unless
	// they are shared.
	Grants []G
}

// Enter puts a waiter, which self embeds, behind all others. It is to ask if there is no other,
// and the process has no grant.
func (q *Queue[W, G]) Enter(w *Waiter[W, G], self *W) {
	if q.first == nil && len(q.Grants) == 0 {
		w.State = Asking
	}
	w.self, w.before, w.behind = self, q.last, nil
	if q.last == nil {
		q.first = w
	} else {
		q.last.behind = w
	}
	q.last = w
}

// Leave takes a waiter out. There may be very many, so they are a linked list, from which one is
// removed without a search. Each is an element itself, which saves an allocation.
func (q *Queue[W, G]) Leave(w *Waiter[W, G]) {
	if w.before == nil {
		q.first = w.behind
	} else {
		w.before.behind = w.behind
	}
	if w.behind == nil {
		q.last = w.before
	} else {
		w.behind.before = w.before
	}
	w.before, w.behind = nil, nil
}

// First returns the waiter that came before all others, nil if there is none.
func (q *Queue[W, G]) First() *W {
	if q.first == nil {
		return nil
	}
	return q.first.self
}

// Several reports whether more than one waits.
func (q *Queue[W, G]) Several() bool { return q.first != q.last }

// All iterates over the waiters from the first on. None may leave meanwhile.
func (q *Queue[W, G]) All() iter.Seq[*W] {
	return func(yield func(*W) bool) {
		for w := q.first; w != nil && yield(w.self); w = w.behind {
		}
	}
}

// WakeAll wakes all waiters.
func (q *Queue[W, G]) WakeAll() {
	for w := q.first; w != nil; w = w.behind {
		w.Wake()
	}
}

// Holder returns the newest grant that excludes all others, the zero value if there is none.
func (q *Queue[W, G]) Holder() (none G) {
	for _, g := range slices.Backward(q.Grants) {
		if g.Exclusive() {
			return g
		}
	}
	return none
}

// Replace puts a grant in the place of the one before it.
func (q *Queue[W, G]) Replace(before, successor G) {
	if i := slices.Index(q.Grants, before); i >= 0 {
		q.Grants[i] = successor
	} else {
		q.Grants = append(q.Grants, successor)
	}
}

// End takes out a grant that is over.
func (q *Queue[W, G]) End(g G) {
	if i := slices.Index(q.Grants, g); i >= 0 {
		q.Grants = slices.Delete(q.Grants, i, i+1)
	}
}

// Emptied returns an empty queue that has the room of q, to be used again.
func (q *Queue[W, G]) Emptied() Queue[W, G] { return Queue[W, G]{Grants: q.Grants[:0]} }
