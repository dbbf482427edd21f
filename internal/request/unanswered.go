package request

import (
	"slices"
	"time"
)

const (
	grace     = 50 * time.Millisecond  // to stop waiting for a connection
	lookPause = 100 * time.Millisecond // between two looks at a silent server's successor
)

// leave ends the wait of a caller, and returns the error of the call. The call may end at the same
// moment; then leave returns the outcome.
func (g *Group) leave(c *Call) error {
	g.mu.Lock()
	switch {
	case c.state == queued:
		defer g.mu.Unlock()
		c.in.remove(c)
		c.state = over
		return ErrNotSent
	case c.state == sent && c.batch.trailer == nil:
		defer g.mu.Unlock()
		c.state = left
		c.batch.left++
		c.batch.cancelUnawaited()
		return ErrAbandoned
	}
	g.mu.Unlock()
	<-c.done
	return c.end()
}

// cancelUnawaited cancels a batch after all callers have left. A sent batch goes on. No copies are sent
// for a caller who has left. Group.mu is held.
func (b *batch) cancelUnawaited() {
	if b.left == len(b.calls) {
		b.wait.cancel()
	}
	if b.copying != nil && (b.copying.call == nil || b.copying.call.state != sent) {
		b.copying.stop()
	}
}

// ring ends overdue calls and batches.
func (g *Group) ring() {
	now := time.Now()
	g.mu.Lock()
	g.alarm.next = time.Time{}
	elsewhere := func(*Call) bool { return false }
	if slices.ContainsFunc(g.open, func(b *batch) bool { return b.silent(now) }) {
		g.Reload() // the client's map may be out of date
		elsewhere = func(c *Call) bool { return g.replaced(c.opts.Key) }
	}
	g.expire(&g.ready, now, elsewhere)
	g.expire(&g.held, now, elsewhere)
	var gone []*Call
	g.open = slices.DeleteFunc(g.open, func(b *batch) bool {
		if b.ended || b.abandoned {
			return false
		}
		gone = append(gone, b.check(now, elsewhere)...)
		g.copy(b, now)
		switch {
		case !b.abandoned:
			g.alarm.set(b.earliest())
			return false
		case b.trailer != nil:
			g.hung++
			return false
		}
		g.pace.abandoned(b)
		return true
	})
	g.start()
	g.mu.Unlock()
	for _, c := range gone {
		if c.opts.Late != nil {
			c.opts.Late(ErrNoAnswer)
		}
	}
}

// expire ends the calls of a queue not sent in time, and the calls for another server by now. mu is
// held.
func (g *Group) expire(q *calls, now time.Time, elsewhere func(*Call) bool) {
	for c := q.first; c != nil; {
		next := c.next
		switch {
		case !now.Before(c.deadline):
			q.remove(c)
			c.complete(over, ErrCrowded)
		case elsewhere(c):
			q.remove(c)
			c.complete(over, ErrReplaced)
		default:
			g.alarm.set(c.deadline)
		}
		c = next
	}
}

// silent reports whether a batch has had no answer for so long that another server may have taken
// over. Group.mu is held.
func (b *batch) silent(now time.Time) bool {
	return !b.ended && !b.abandoned && !b.look.IsZero() && !now.Before(b.look)
}

// check ends the overdue calls of a batch, and the calls for another server by now. gone are the calls
// of an abandoned batch whose callers had left before. A batch still waiting for a connection is
// cancelled first, when overdue, or when the callers soon need to know whether the batch was sent.
// Group.mu is held.
func (b *batch) check(now time.Time, elsewhere func(*Call) bool) (gone []*Call) {
	if b.silent(now) {
		b.look = now.Add(lookPause)
	} else {
		elsewhere = func(*Call) bool { return false }
	}
	overdue := !now.Before(b.deadline) || !b.cancelled && !b.note.sent() && !now.Before(b.earliestNeed())
	if overdue && !b.cancelled {
		b.cancelled = true
		b.wait.cancel()
		if !b.note.sent() { // the batch still waits for a connection, and ends soon
			b.deadline, overdue = now.Add(grace), false
		}
	}
	b.abandoned = overdue
	for _, c := range b.waiting() {
		switch {
		case c.state == left && overdue:
			gone = append(gone, c)
		case overdue && b.trailer != nil: // the sender brings the answer, or the error
		case c.state == sent && (overdue || !now.Before(c.deadline) || elsewhere(c)):
			c.complete(left, ErrNoAnswer)
			b.left++
			b.late++
		}
	}
	b.cancelUnawaited()
	return gone
}

// earliestNeed is when all callers still there need to know whether the calls were sent; the deadline
// of the batch if all callers have left. Group.mu is held.
func (b *batch) earliestNeed() time.Time {
	at := b.deadline
	if b.left < len(b.calls) {
		at = time.Time{}
	}
	for _, c := range b.waiting() {
		if c.state != sent {
			continue
		}
		if need := c.deadline.Add(-min(grace, c.opts.Bound/8)); need.After(at) {
			at = need
		}
	}
	return at
}

// earliest is the first deadline of a batch. Group.mu is held.
func (b *batch) earliest() time.Time {
	at := b.deadline
	if !b.cancelled && !b.note.sent() {
		if need := b.earliestNeed(); need.Before(at) {
			at = need
		}
	}
	for _, t := range []time.Time{b.look, b.copyAt} {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	for _, c := range b.waiting() {
		if c.state == sent && c.deadline.Before(at) {
			at = c.deadline
		}
	}
	return at
}
