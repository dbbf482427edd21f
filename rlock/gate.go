package rlock

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// gates are in-process queues of a client, by lock key. A gate exists while
// somebody queues at it or holds its lock, and a little longer if it listens for
// wake-ups. A client has several of them, so that locks with different names seldom
// wait for the same mutex.
type gates struct {
	mu     sync.Mutex // guards what follows and everything in the gates and seats
	byKey  map[string]*gate
	apart  map[string]*seat // of those who queue on the server, by owner
	spare  []*gate          // to be used again: a gate of a free lock lives for two calls
	kept   []*gate          // listen on although nobody queues
	keeper *time.Timer      // runs keep while there are any
}

// gate is the queue of those goroutines of a client that want the same lock.
// Its head contends on the server, on behalf of all.
type gate struct {
	key     string
	queue   []*seat   // the first contends
	waiter  ear       // joined by the first head that has to wait
	kept    bool      // in gates.kept
	idle    time.Time // since when nobody queues
	holders []*grant  // grants of this client, as far as it knows; one unless they are shared
	turns   turns
	inquiry *inquiry // of a reader; nil if none asks

	resting []*request  // for a fair lock, until the client's own grant is over
	alarm   *time.Timer // ends their rest; set while there are any

	// owing says that a wake-up was not answered with a try yet. Whoever took it
	// may have left since.
	owing bool

	// What the heads have learnt: the newest refusal or, if there was no answer
	// since, from when on and the newest error.
	refusal *NotAcquiredError
	since   time.Time
	trouble error
}

// gateIdle is how long a gate goes on listening after its last seat has gone:
// not so short that a hot lock subscribes again and again, nor so long that
// others wait for a listener who wants nothing.
const gateIdle = 200 * time.Millisecond

// maxSpare is how many gates are kept for further use, by each of a client's gates.
const maxSpare = 32

// gatesOf returns those that have the gate of a key.
func (c *Client) gatesOf(key string) *gates {
	return &c.gates[maphash.String(c.seed, key)%uint64(len(c.gates))]
}

// of returns the gate of a key. mu is held.
func (gs *gates) of(key string) *gate {
	g := gs.byKey[key]
	if g == nil {
		if gs.byKey == nil {
			gs.byKey = make(map[string]*gate)
		}
		if last := len(gs.spare) - 1; last >= 0 {
			g, gs.spare = gs.spare[last], gs.spare[:last]
		} else {
			g = new(gate)
		}
		g.key = key
		gs.byKey[key] = g
	}
	return g
}

// tidy forgets a gate that nobody needs. mu is held.
func (gs *gates) tidy(g *gate) {
	if len(g.queue) > 0 || len(g.holders) > 0 || g.waiter != nil || g.kept || g.inquiry != nil {
		return
	}
	delete(gs.byKey, g.key)
	if len(gs.spare) < maxSpare {
		*g = gate{queue: g.queue, holders: g.holders}
		if cap(g.queue) > 64 {
			g.queue = nil
		}
		gs.spare = append(gs.spare, g)
	}
}

// retain lets a gate listen on for a while. mu is held.
func (gs *gates) retain(g *gate) {
	g.idle = time.Now()
	if !g.kept {
		g.kept, gs.kept = true, append(gs.kept, g)
	}
	if gs.keeper == nil {
		gs.keeper = time.AfterFunc(gateIdle, gs.keep)
	}
}

// rouse wakes everybody who queues.
func (gs *gates) rouse() {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, g := range gs.byKey {
		for _, s := range g.queue {
			s.rouse()
		}
	}
}

// keep has those gates stop listening that were idle for long enough.
func (gs *gates) keep() {
	var left []ear
	gs.mu.Lock()
	now := time.Now()
	gs.kept = slices.DeleteFunc(gs.kept, func(g *gate) bool {
		switch {
		case len(g.queue) > 0:
		case now.Sub(g.idle) < gateIdle:
			return false
		default:
			if g.waiter != nil {
				left = append(left, g.waiter)
			}
			g.waiter, g.turns = nil, turns{}
			defer gs.tidy(g)
		}
		g.kept = false
		return true
	})
	if gs.keeper = nil; len(gs.kept) > 0 {
		gs.keeper = time.AfterFunc(gateIdle/2, gs.keep)
	}
	gs.mu.Unlock()
	for _, w := range left {
		w.Leave()
	}
}
