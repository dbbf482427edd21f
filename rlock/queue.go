package rlock

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/lua"
)

// queues are the in-process queues of a client, by lock key. A queue exists while
// somebody waits in it or this client holds its lock. A client has several of these,
// so that locks with different names seldom wait for the same mutex.
type queues struct {
	mu    sync.Mutex // guards what follows, and everything in the queues and their waiters
	byKey map[string]*queue
	spare []*queue // to be used again: the queue of a free lock lives for two calls

	counters counters // not guarded by mu
}

// maxSpare is how many queues are kept for further use, by each of a client's queues.
const maxSpare = 32

// queue is where those goroutines of a client wait that want the same lock: first
// come, first served. The first of them asks the server, on behalf of all; those of a
// fair lock ask for themselves.
type queue struct {
	key     string
	waiters []*waiter
	holders []*grant // of this client, as far as it knows; one unless they are shared

	// What the waiters have left on the server, and how they hear of it.
	tickets map[string]*waiter // by the owner that stands in the server's queue
	signal  kind.Signal        // joined when the first of them is refused
	unlocks kind.Signal        // Redisson's unlock channel, while a foreign owner holds the lock

	outlook

	call *sharedCall // of readers; nil if none asks
	kept *kept       // nil unless a grant that this client holds may be kept
}

// outlook is what the waiters of a queue have learned from the server. All of them use it.
type outlook struct {
	refusal *NotAcquiredError // the newest, unless there was trouble after it
	askAt   time.Time         // when the first waiter asks again if nothing is heard
	clock   moment            // of the server
	since   time.Time         // since when there was no answer; zero if there was one
	trouble error             // the newest error since then
	newest  time.Time         // when the newest request was sent that was answered
}

// queueSet is all queues of a client.
type queueSet struct {
	shards [16]queues
	seed   maphash.Seed // by which a key has one of them
}

// of returns the queues that have that of a key.
func (s *queueSet) of(key string) *queues {
	return &s.shards[maphash.String(s.seed, key)%uint64(len(s.shards))]
}

// close wakes all who wait, and returns all grants, and those that are parked: for them
// nobody else cares any more.
func (s *queueSet) close() (held, parked []*grant) {
	for i := range s.shards {
		parked = append(parked, s.shards[i].wakeAll()...)
		held = append(held, s.shards[i].all()...)
	}
	return held, parked
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

// tidy forgets a queue that nobody needs. mu is held.
func (qs *queues) tidy(q *queue) {
	if len(q.waiters) > 0 || len(q.holders) > 0 || q.call != nil {
		return
	}
	delete(qs.byKey, q.key)
	if len(qs.spare) < maxSpare {
		*q = queue{waiters: q.waiters, holders: q.holders}
		if cap(q.waiters) > 64 {
			q.waiters = nil
		}
		qs.spare = append(qs.spare, q)
	}
}

// wakeAll wakes everybody who waits, and returns what is parked.
func (qs *queues) wakeAll() (parked []*grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.byKey {
		for _, w := range q.waiters {
			w.wakeUp()
		}
		if k := q.kept; k != nil && k.parked != nil {
			parked = append(parked, k.stop())
		}
	}
	return parked
}

// first returns the waiter that has come before all others, nil if there is none.
func (q *queue) first() *waiter {
	if len(q.waiters) == 0 {
		return nil
	}
	return q.waiters[0]
}

// empty ends what only waiters need, and returns the signals, which the caller leaves
// without the mutex. mu is held.
func (q *queue) empty() []kind.Signal {
	var idle []kind.Signal
	for _, s := range []kind.Signal{q.signal, q.unlocks} {
		if s != nil {
			idle = append(idle, s)
		}
	}
	q.signal, q.unlocks, q.tickets = nil, nil, nil
	q.outlook = outlook{}
	return idle
}

// asked is called when an attempt of a waiter gets no answer, and with nil when a later one
// gets one. It returns when the newest request was sent that was answered.
func (q *queue) asked(qs *queues, err error) time.Time {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	switch {
	case err == nil:
		q.since, q.trouble = time.Time{}, nil
		return q.newest
	case q.since.IsZero():
		q.since, q.refusal = time.Now(), nil
	}
	q.trouble = err
	return q.newest
}

// answered notes that the server has answered a request, maybe one from before the trouble.
// queues.mu is held.
func (q *queue) answered(sent time.Time) {
	q.since, q.trouble = time.Time{}, nil
	if sent.After(q.newest) {
		q.newest = sent
	}
}

// heard brings a message to the waiter that it is for. If it grants the lock to an
// owner for whom nobody waits any more, and who does not hold it either, it returns
// that owner: the lock has to be passed on.
func (q *queue) heard(m lua.Message) (stranger string) {
	w := q.tickets[m.Owner]
	switch {
	case m.Owner == lua.Everybody:
		for _, w := range q.tickets {
			w.by.Message++
			w.mustAsk()
		}
	case w != nil && m.Granted:
		w.place.message = m
		w.by.Message++
		w.wakeUp()
	case w != nil:
		w.by.Message++
		w.mustAsk()
	case m.Granted && !slices.ContainsFunc(q.holders, func(g *grant) bool { return g.owner == m.Owner }):
		return m.Owner
	}
	return ""
}

// changed has all ask because what they hear by was lost, or is there again: messages may
// have been missed, or can be heard from now on. The answer to a request that is under way
// may be older than that, so who has made one makes another. queues.mu is held.
func (q *queue) changed() {
	for _, w := range q.waiters {
		w.again = w.again || w.state == waitAsking
	}
	q.askAll()
}

// askAll has each waiter ask again that was refused. queues.mu is held.
func (q *queue) askAll() {
	for _, w := range q.waiters {
		if w.state == waitQueued {
			w.by.Reconnect++
			w.mustAsk()
		}
	}
}
