package verify

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// part is what a client does in a row of aloneFaults.
type part int

const (
	anyPart  part = iota // whatever is drawn, as in other rows
	holds                // the lock, until it is told to leave, and does nothing more
	queues               // for it meanwhile
	stayAway             // it is one too many
)

// part gives two histories of three a course: while the fault strikes, a client of one party
// has the lock, and one of each other party waits for it. None asks any more afterwards, as
// each request would repair what the fault has done to others.
func (j *job) part(history, number int) part {
	switch {
	case !j.Alone || history%3 == 0:
		return anyPart
	case number == 0:
		return holds
	case number < parties:
		return queues
	}
	return stayAway
}

// play makes the steps of the client's part.
func (c *client) play() {
	j := &c.p.job
	s := draw(c.r, j, c.agenda)
	s.how, s.rival, s.fixed, s.shared = waiting, false, false, s.shared && c.part == queues
	if j.Lock != multi {
		s.locks = []int{0}
	}
	switch c.part {
	case holds:
		s.pause, s.hold, s.stays = 0, min(s.hold, 100*ms), true
		c.do(s)
	case queues:
		s.pause += 100 * ms // a holder with a whole lease is there by then
		s.must = true
		c.do(s)
		c.rest()
	}
}

// courses are those of the grants of all locks, by what is one lock to those who wait.
type courses map[string][]span

// coursesOf has a course of each lock; of a multi lock, of which a waiter may have a
// part for a while, of each history.
func coursesOf(all []*history, v variety) courses {
	c := make(courses)
	for _, h := range all {
		for _, t := range h.turns {
			name := c.name(h.lock, v)
			c[name] = append(c[name], span{t.ret, max(t.ret, t.left)})
		}
	}
	for _, spans := range c {
		slices.SortFunc(spans, inOrderOfCalls)
	}
	return c
}

func (courses) name(lock string, v variety) string {
	if v == multi {
		return lock[:strings.LastIndexByte(lock, '/')]
	}
	return lock
}

// idle returns how long w waited at most, from the end of the fault, while nobody evidently
// had the lock, whatever its key says; less the time in which a process stood still.
func (c courses) idle(w wait, v variety, struck span, stalls []span) (longest time.Duration) {
	busy := append(slices.Clone(c[c.name(w.locks[0], v)]), struck, span{w.ret, open})
	slices.SortFunc(busy, inOrderOfCalls)
	since := w.call
	for _, s := range busy {
		if until := min(s.call, w.ret); since < until {
			longest = max(longest, time.Duration(until-since-covered(stalls, span{since, until})))
		}
		since = max(since, s.ret)
	}
	return longest
}

// covered returns how much of a time is in any of some, which are in order.
func covered(some []span, s span) (sum int64) {
	for _, t := range some {
		if from, until := max(t.call, s.call), min(t.ret, s.ret); from < until {
			sum += until - from
			s.call = until
		}
	}
	return sum
}

// inOrderOfCalls sorts times by their beginnings.
func inOrderOfCalls(a, b span) int { return cmp.Compare(a.call, b.call) }

// apart takes the times when a process stood still out of the events of locks.
func apart(all []event) (events []event, stalls []span) {
	for _, e := range all {
		if e.Kind == opStall {
			stalls = append(stalls, span{e.At, e.Seen})
		} else {
			events = append(events, e)
		}
	}
	return events, stalls
}
