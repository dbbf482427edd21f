package rlock

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/go-rlock/rlock/internal/kind"
)

// shards is the number of parts that a client divides its queues into, and the counters of a group.
const shards = 16

// queueSet holds all queues of a client, sharded by key.
type queueSet struct {
	shards [shards]queues
	seed   maphash.Seed // of the hash that chooses a shard
}

// init makes the maps.
func (s *queueSet) init() {
	s.seed = maphash.MakeSeed()
	for i := range s.shards {
		s.shards[i].init()
	}
}

func (qs *queues) init() { qs.byKey = make(map[string]*queue) }

// shard returns the number of the shard of a key.
func (s *queueSet) shard(key string) uint64 {
	return maphash.String(s.seed, key) % uint64(len(s.shards))
}

// close closes all shards.
func (s *queueSet) close() (grants []*grant) {
	for i := range s.shards {
		grants = append(grants, s.shards[i].close()...)
	}
	return grants
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
	hot   hot
}

// maxSpare is how many queues each shard keeps for reuse.
const maxSpare = 32

// queue is what a client has of one lock: its grants, and the lines of its goroutines that wait.
type queue struct {
	key     string
	askers  []*asker // those for whom somebody waits, or who ask, in the order of arrival: see queue.asker
	room    asker    // the first of them: a field saves an allocation
	waiting int      // calls without a grant
	grants  []*grant // the client's known grants of the lock, the newest last: a single grant, unless readers share

	// The tickets of the askers on the server, and the sources of changes there.
	tickets map[string]*asker // by the ticket's owner
	signal  kind.Subscription // made when the first asker is refused
	unlocks kind.Subscription // Redisson's unlock channel, while a foreign owner holds the lock

	news news // of the server

	search *search // for deadlocks; nil unless a call waits that owns a lock

	kept *kept // nil unless a grant of this client may be kept
}

// of returns the queue of a key. mu is held.
func (qs *queues) of(key string) *queue {
	q := qs.byKey[key]
	if q == nil {
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
	if len(q.askers) > 0 || qs.byKey[q.key] != q {
		return
	}
	if q.signal != nil {
		q.hush()
	}
	if q.search != nil {
		q.search.end()
	}
	q.tickets, q.news = nil, news{}
	if len(q.grants) > 0 {
		return
	}
	delete(qs.byKey, q.key)
	if len(qs.spare) < maxSpare {
		*q = queue{grants: q.grants[:0], askers: q.askers[:0]}
		qs.spare = append(qs.spare, q)
	}
}

// atHand returns a grant of this client that l can have without a request: a parked one, or that of another reader.
// queues.mu is held.
func (q *queue) atHand(l *Lock) *grant {
	switch {
	case l.terms.shared:
		return q.shareable(l)
	case q.kept != nil:
		return q.takeParked(l)
	}
	return nil
}

// add records a new grant. Earlier grants of this client that the new one proves lost find that out: the server would not
// have granted both. mu is held.
func (q *queue) add(g *grant) {
	for _, other := range q.grants {
		if g.Exclusive() || other.Exclusive() {
			other.tell(context.Background(), false)
		}
	}
	q.grants = append(q.grants, g)
	if q.kept != nil || g.lock.terms.retention > 0 {
		q.keep(g)
	}
}

// replace records the successor of a grant. mu is held.
func (q *queue) replace(g, successor *grant) {
	if i := slices.Index(q.grants, g); i >= 0 {
		q.grants[i] = successor
	} else {
		q.grants = append(q.grants, successor)
	}
}

// ended notes that a grant of this client is over, and has the asker go on.
func (qs *queues) ended(g *grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byKey[g.lock.key]; q != nil {
		if i := slices.Index(q.grants, g); i >= 0 {
			q.grants = slices.Delete(q.grants, i, i+1)
		}
		q.keepsNoLonger(g)
		// Only the last reader of all processes frees the lock; the server announces that.
		if i := slices.IndexFunc(q.askers, func(a *asker) bool { return !a.lock.ownPlace }); i >= 0 && !g.lock.terms.shared {
			q.askers[i].goOn()
		}
		qs.tidy(q)
	}
}

// askFirst has those ask who ask for all, when a message may be lost, or is not sent. Several readers may have been granted
// the lock with that message, so each of them asks for itself. mu is held.
func (q *queue) askFirst() {
	for _, a := range slices.Clone(q.askers) { // one may end meanwhile
		if a.leads() || a.lock.terms.shared {
			a.mustAsk()
		}
	}
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

// busy reports whether any goroutine of this client waits for the lock, or has it alone.
func (qs *queues) busy(l *Lock) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byKey[l.key]
	return q != nil && (q.waiting > 0 || q.holder() != nil)
}

// close ends all waits, and returns all grants.
func (qs *queues) close() (grants []*grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.byKey {
		grants = append(grants, q.grants...)
		for _, a := range slices.Clone(q.askers) { // one may end meanwhile
			for a.first != nil {
				a.first.serve(nil, a.first.lock.isClosed())
			}
			a.turn()
		}
		q.giveBack()
	}
	return grants
}
