package rlock

import "hash/maphash"

// queueSet is all queues of a client, in several sets by their keys.
type queueSet struct {
	shards [16]queues
	seed   maphash.Seed // of the hash that chooses a shard
}

// of returns the shard of a key.
func (s *queueSet) of(key string) *queues {
	return &s.shards[maphash.String(s.seed, key)%uint64(len(s.shards))]
}

// close wakes all waiters. It returns all grants, and those that are parked, which the caller
// has to release.
func (s *queueSet) close() (held, parked []*grant) {
	for i := range s.shards {
		parked = append(parked, s.shards[i].wakeAll()...)
		held = append(held, s.shards[i].all()...)
	}
	return held, parked
}

// wakeAll wakes all waiters, and returns the parked grants.
func (qs *queues) wakeAll() (parked []*grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.byKey {
		for w := range q.waiters.all() {
			w.wakeUp()
		}
		if k := q.kept; k != nil && k.parked != nil {
			parked = append(parked, k.stop())
		}
	}
	return parked
}

// all returns all grants in the shard.
func (qs *queues) all() (all []*grant) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.byKey {
		all = append(all, q.holders...)
	}
	return all
}
