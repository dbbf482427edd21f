package rlock

import "time"

const (
	// reaction is how long others may take to answer a message with an attempt,
	// at least. It is more than a round trip on a busy machine.
	reaction = 5 * time.Millisecond
	// slow is what a reaction is taken to last at most, however far the server.
	slow = 10 * reaction
	// idleRecheck is how long listeners that have let a turn pass are taken to
	// want none.
	idleRecheck = 20 * time.Millisecond
)

// turns lets everybody else go first. A woken crowd is no fair lottery: PUBLISH
// serves subscribers in a fixed order, and who has just released is nearer to the
// lock than all of them. So a client that has released while others listen does
// not contend again before each of them had a turn, which it hears, or all were
// silent for longer than their reaction takes. Then it tries once: if the lock
// is free, nobody wanted it, and for a while it counts on fewer.
//
// gates.mu guards it.
type turns struct {
	echoes int64 // own messages still to be heard
	seen   int64 // of all messages heard, those accounted for

	owed    int64         // turns that others have not had yet
	quiet   time.Duration // longest silence while others want a turn
	last    time.Time     // newest release or turn; or the start of a release under way
	tried   bool          // in the silence since then, and refused
	expiry  time.Time     // of the holder who was the reason
	freeing bool          // a release is under way

	others  int64     // listeners at the last release
	idle    int64     // of these, how many wanted nothing
	checked time.Time // when idle was last started anew
}

// hearing is an ear that counts the messages.
type hearing interface {
	Live() bool
	Heard() int64
}

// listen starts to count what w hears.
func (t *turns) listen(w ear) {
	if w, ok := w.(hearing); ok {
		t.echoes, t.seen = 0, w.Heard()
	}
}

// hear accounts for the messages heard since the last call, and tells how many of
// them were not this client's own.
func (t *turns) hear(w ear, now time.Time) (heard, foreign int64) {
	counter, ok := w.(hearing)
	if !ok {
		return 0, 0
	}
	heard = counter.Heard() - t.seen
	t.seen += heard
	own := min(heard, t.echoes)
	t.echoes -= own
	if foreign = heard - own; foreign > 0 && !t.freeing {
		t.owed = max(t.owed-foreign, 0)
		t.last, t.tried = now, false
	}
	return heard, foreign
}

// rest returns how long the client should leave the lock to others, for all it
// knows. A release under way is waited for, but not much longer than it takes.
func (t *turns) rest(now time.Time) time.Duration {
	switch {
	case t.freeing:
		return slow - now.Sub(t.last)
	case t.owed == 0:
		return 0
	case t.tried: // somebody has it, and will be heard
		return t.expiry.Sub(now)
	}
	return t.quiet - now.Sub(t.last)
}

// acquired notes that this client has the lock: the others left it.
func (t *turns) acquired() {
	t.idle, t.owed = t.idle+t.owed, 0
}

// refused notes that an attempt was refused, by a holder whose lease ends at
// expiry. One that was sent before the newest release or turn may have been
// refused by a holder who is gone, and says nothing.
func (t *turns) refused(sent, expiry time.Time) {
	if !t.freeing && sent.After(t.last) {
		t.tried, t.expiry = true, expiry
	}
}

// freed notes a release that so many others have heard, and that took rtt.
func (t *turns) freed(others int64, rtt time.Duration, now time.Time) {
	if others != t.others || now.Sub(t.checked) > idleRecheck {
		t.idle, t.checked = 0, now
	}
	t.others, t.owed = others, max(others-t.idle, 0)
	t.freeing, t.tried, t.last = false, false, now
	t.quiet = max(reaction, min(3*rtt, slow))
}

// freeing notes that the release of g is about to be sent, and returns how many
// of those that will hear it are this client itself.
func (gs *gates) freeing(g *grant) (own int64) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gate := gs.byKey[g.lock.protocol.key()]
	if gate == nil || !g.lock.inTurn {
		return 0
	}
	now := time.Now()
	gate.turns.hear(gate.waiter, now)
	gate.turns.freeing, gate.turns.last = true, now
	if w, ok := gate.waiter.(hearing); ok && w.Live() {
		gate.turns.echoes += g.lock.client.family.echoes()
		own = 1
	}
	return own
}

// freed notes the end of that release, sent at sent: others have heard it.
func (gs *gates) freed(g *grant, others int64, sent time.Time) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gate := gs.byKey[g.lock.protocol.key()]
	if gate == nil || !g.lock.inTurn {
		return
	}
	if others < 0 { // nobody heard it, nor did this client
		gate.turns.echoes = 0
	}
	now := time.Now()
	gate.turns.freed(max(others, 0), now.Sub(sent), now)
	if gate.turns.owed > 0 && len(gate.queue) == 0 {
		gs.retain(gate) // whoever comes next has to know
	}
}
