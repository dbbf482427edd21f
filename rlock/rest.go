package rlock

import "time"

// restTime is how long a request for a fair lock rests at most.
const restTime = 2 * time.Millisecond

// rest keeps a request for a fair lock back while goroutines of this client pass
// that lock on in memory: until the last of them has released it, but not for longer
// than restTime. Those who have just had the lock, and ask again, then do so at the
// same time, stand in the queue one behind the other, and will pass it on in memory
// once more. One by one they would come to stand among the others, and every
// hand-over would take a release, a message and a ticket. Others are served the
// sooner for it.
func (gs *gates) rest(r *request) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gate := gs.byKey[r.fair.protocol.key()]
	if gate == nil || len(gate.holders) == 0 || r.rested {
		return false
	}
	newest := gate.holders[len(gate.holders)-1] // also if it is being released
	if !newest.lock.apart || newest.chain.links == 0 && !newest.chain.within(newest.lock, time.Time{}) {
		return false
	}
	r.rests, r.rested = true, true
	if gate.resting = append(gate.resting, r); len(gate.resting) == 1 {
		gate.alarm = time.AfterFunc(restTime, func() {
			gs.mu.Lock()
			defer gs.mu.Unlock()
			gate.wakeUp()
		})
	}
	return true
}

// wakeUp has those requests sent that rest. gates.mu is held.
func (g *gate) wakeUp() {
	if len(g.resting) > 0 {
		g.alarm.Stop()
		g.resting[0].fair.client.scripts.resume(g.resting)
		g.resting = nil
	}
}
