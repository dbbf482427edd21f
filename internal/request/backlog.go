package request

// backlog is the calls of a group that were not sent yet. Group.mu guards it.
type backlog struct {
	ready calls // are sent next
	hold  bool  // calls that may leave something behind are not sent
	held  calls // these
}

// calls is a queue of calls, from which each can be taken out.
type calls struct {
	first, last *Call
	n           int
}

// link is where in a queue a call is.
type link struct {
	in         *calls
	prev, next *Call
}

func (q *calls) push(c *Call) {
	c.link = link{in: q, prev: q.last}
	if q.last == nil {
		q.first = c
	} else {
		q.last.next = c
	}
	q.last = c
	q.n++
}

func (q *calls) remove(c *Call) {
	prev, next := c.prev, c.next
	if prev == nil {
		q.first = next
	} else {
		prev.next = next
	}
	if next == nil {
		q.last = prev
	} else {
		next.prev = prev
	}
	c.link = link{}
	q.n--
}
