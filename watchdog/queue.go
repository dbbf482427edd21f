package watchdog

import (
	"math/rand/v2"
	"time"
)

// queue is a heap of entries, with the most urgent entry at the top. An entry knows its index, to
// be moved and removed.
type queue[K comparable] []*Entry[K]

// spread is a random time between a sixth and a third of d: leases of that length, taken
// together, do not come due together.
func spread(d time.Duration) time.Duration {
	return d/6 + rand.N(d/6+1)
}

// The methods below are called with the scheduler's mutex held.

// reorder moves e, an entry of the queue, to its place: by the time of its next attempt or of its
// loss, the earlier of the two by the clock further on. reorder wakes the loop if the timer of
// the loop would be too late for e. The reading now must not be older than the reading that the
// queue is ordered by: the clocks may have parted in between.
func (e *Entry[K]) reorder(now time.Time) {
	wait := e.rest(now)
	if !e.fixed {
		wait = min(wait, remaining(now, e.next))
	}
	e.at = now.Add(wait)
	s := e.scheduler
	s.queue.fix(e.index)
	if e.at.Before(s.wakeAt) {
		s.wakeAt = e.at
		s.signal()
	}
}

// fix moves the entry at i up past all later entries, or else down past all earlier entries. Each
// passed entry moves by one place.
func (q queue[K]) fix(i int) {
	e := q[i]
	for i > 0 {
		above := (i - 1) / 2
		if !e.at.Before(q[above].at) {
			break
		}
		q[i] = q[above]
		q[i].index = i
		i = above
	}
	for {
		below := 2*i + 1
		if right := below + 1; right < len(q) && q[right].at.Before(q[below].at) {
			below = right
		}
		if below >= len(q) || !q[below].at.Before(e.at) {
			break
		}
		q[i] = q[below]
		q[i].index = i
		i = below
	}
	q[i], e.index = e, i
}

// remove takes the entry at i out. The last entry fills the gap, and moves on from there.
func (q *queue[K]) remove(i int) {
	last := len(*q) - 1
	filler := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	if i < last {
		(*q)[i] = filler
		q.fix(i)
	}
}
