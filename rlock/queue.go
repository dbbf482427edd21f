package rlock

import (
	"hash/maphash"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
)

// queueSet holds all queues of a client, sharded by key.
type queueSet struct {
	shards [16]queues
	seed   maphash.Seed // of the hash that chooses a shard
}

// of returns the shard of a key.
func (s *queueSet) of(key string) *queues {
	return &s.shards[maphash.String(s.seed, key)%uint64(len(s.shards))]
}

// close closes all shards.
func (s *queueSet) close() (held, parked []*grant) {
	for i := range s.shards {
		h, p := s.shards[i].close()
		held, parked = append(held, h...), append(parked, p...)
	}
	return held, parked
}

// The mutexes are locked in this order, and never the other way round:
//
//	queues.mu ──► grant.mu ──► that of the watchdog
//	queues.mu ──► that of the hub of subscriptions
//
// A grant that is lost tells its queue (queues.ended), so grant.check and grant.lose are called with
// none of them held. No function unlocks the mutex of its caller. TestMutexOrder reads the code for
// both.

// queues are the in-process queues of a client, by lock key. A queue exists while a goroutine waits
// there, or this client holds the lock. A client has several shards, so that locks with different names
// seldom contend for the same mutex.
type queues struct {
	mu    sync.Mutex // guards what follows, and everything in the queues and their waiters
	byKey map[string]*queue
	spare []*queue // for reuse: the queue of a free lock lives for two calls only: saves 2 of 33 allocations (BenchmarkLock)

	counters counters // not guarded by mu
}

// maxSpare is how many queues each shard keeps for reuse.
const maxSpare = 32

// queue is where the goroutines of a client wait for one lock: first come, first served. The first waiter
// of a lane asks the server on behalf of the lane; for a fair lock each waiter asks for itself.
//
// The queue is no package of its own. It hands out grants, and a waiter's next step depends on the lock
// and on the server's answers: a package would export seventeen names, and hide forty lines.
type queue struct {
	key     string
	writers lane     // the waiters for a lock that excludes all others
	readers lane     // of a read/write lock
	waiting int      // how many waiters have no grant yet
	grants  []*grant // the client's known grants of the lock, the newest last: a single grant, unless readers share

	// The tickets of the waiters on the server, and the sources of changes there.
	tickets map[string]*waiter // by the ticket's owner
	signal  kind.Subscription  // made when the first waiter is refused
	unlocks kind.Subscription  // Redisson's unlock channel, while a foreign owner holds the lock

	news news // of the server

	kept *kept // nil unless a grant of this client may be kept
}

// lane has the waiters of one side, first come, first served. They are linked by waiter.before and
// waiter.behind: there may be very many, and any may leave.
type lane struct{ first, last *waiter }

// empty reports whether there is no waiter. queues.mu is held.
func (q *queue) empty() bool { return q.writers.first == nil && q.readers.first == nil }

// firsts are the first waiters of both lanes. queues.mu is held.
func (q *queue) firsts() []*waiter {
	return slices.DeleteFunc([]*waiter{q.writers.first, q.readers.first}, func(w *waiter) bool { return w == nil })
}

// waiters are those of both lanes. queues.mu is held.
func (q *queue) waiters() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for _, w := range q.firsts() {
			for ; w != nil; w = w.behind {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// of returns the queue of a key. mu is held.
func (qs *queues) of(key string) *queue {
	q := qs.byKey[key]
	if q == nil {
		if qs.byKey == nil {
			qs.byKey = make(map[string]*queue)
		}
		if last := len(qs.spare) - 1; last >= 0 {
			q, qs.spare = qs.spare[last], qs.spare[:last]
		} else {
			q = new(queue)
		}
		q.key = key
		qs.byKey[key] = q
	}
	return q
}

// tidy drops the waiters' part of the queue if there are no waiters, and the queue if nobody needs it. mu
// is held.
func (qs *queues) tidy(q *queue) {
	if !q.empty() {
		return
	}
	for _, s := range []kind.Subscription{q.signal, q.unlocks} {
		if s != nil {
			s.Close()
		}
	}
	q.signal, q.unlocks, q.tickets, q.news = nil, nil, nil, news{}
	if len(q.grants) > 0 {
		return
	}
	delete(qs.byKey, q.key)
	if len(qs.spare) < maxSpare {
		*q = queue{grants: q.grants[:0]}
		qs.spare = append(qs.spare, q)
	}
}

// enter takes the last place in the queue; leave must follow in any case. asks is true if the client has
// no other waiter and no grant: the new waiter then asks the server at once.
func (qs *queues) enter(l *Lock, began time.Time) (w *waiter, asks bool) {
	w = &waiter{lock: l, since: began}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of(l.key)
	w.queue = q
	lane := w.lane()
	if asks = lane.first == nil && (l.terms.shared || len(q.grants) == 0); asks {
		w.state = waiterAsking
	}
	if w.before = lane.last; w.before == nil {
		lane.first = w
	} else {
		w.before.behind = w
	}
	lane.last = w
	q.waiting++
	q.news.served = q.news.served || len(q.grants) > 0
	if q.kept != nil {
		mine, other := q.takeParked(l)
		if mine != nil {
			w.give(mine)
		}
		if other != nil {
			l.client.background(other.pass)
		}
	}
	return w, asks
}

// held records a new grant, and listens to recalls if the grant may be kept. before are this client's
// earlier grants that the new grant proves lost: the server would not have granted both. parked is the
// earlier parked grant, now unparked.
func (qs *queues) held(g *grant) (before []*grant, parked *grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of(g.lock.key)
	for _, other := range q.grants {
		if !g.lock.joined() && (g.Exclusive() || other.Exclusive()) { // several may join a hold
			before = append(before, other)
		}
	}
	q.grants = append(q.grants, g)
	if g.lock.terms.shared {
		q.share(g)
	}
	switch k := q.kept; {
	case k != nil && k.parked != nil:
		parked = k.stop()
	case k == nil && g.lock.terms.retention > 0:
		q.kept = &kept{owner: g.owner, signal: g.lock.wire.Subscribe(kind.Events{Message: g.lock.hearRecall, Changed: g.lock.missRecall})}
	}
	return before, parked
}

// ended notes that a grant of this client is over, and wakes the first waiter.
func (qs *queues) ended(g *grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[g.lock.key]; q != nil {
		if i := slices.Index(q.grants, g); i >= 0 {
			q.grants = slices.Delete(q.grants, i, i+1)
		}
		// Only the last reader of all processes frees the lock; the server announces that.
		if first := q.writers.first; first != nil && !g.lock.terms.shared {
			first.wake()
		}
		if q.kept != nil && q.kept.owner == g.owner {
			q.kept.end()
			q.kept = nil
		}
		qs.tidy(q)
	}
}

// askFirst makes the first waiters ask, when a message to them may be lost, or is not sent.
func (q *queue) askFirst() {
	for _, w := range q.firsts() {
		w.mustAsk()
	}
}

// holder returns this client's exclusive grant of the lock, nil if there is none.
func (qs *queues) holder(l *Lock) *grant {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[l.key]; q != nil {
		return q.holder()
	}
	return nil
}

// holder returns the newest exclusive grant of the client, nil if there is none. mu is held.
func (q *queue) holder() *grant {
	for _, g := range slices.Backward(q.grants) {
		if g.Exclusive() {
			return g
		}
	}
	return nil
}

// busy reports whether any goroutine of this client waits for the lock.
func (qs *queues) busy(l *Lock) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[l.key]
	return q != nil && !q.empty()
}

// close wakes all waiters. It returns all grants, and separately the parked grants, for the caller to
// release.
func (qs *queues) close() (held, parked []*grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.byKey {
		held = append(held, q.grants...)
		for w := range q.waiters() {
			w.wake()
		}
		if k := q.kept; k != nil && k.parked != nil {
			parked = append(parked, k.stop())
		}
	}
	return held, parked
}
