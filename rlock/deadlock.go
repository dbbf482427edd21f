package rlock

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/request"
)

// A deadlock over processes: two contexts each own a lock and wait for the lock of the other one. No server and no client
// knows both waits. But the record of a client says which of its calls wait, and which locks their contexts own. So a call
// that has waited for a lease is followed: who holds the lock (asked of the server), what that owner's context waits for
// (by the record of its client), who holds that, and so on. If the way leads back to the context of the call, it is a
// deadlock.
//
// A record can be old, so a cycle counts only if two looks have found it, and if each record in it was written anew between
// them. Then all waits of the cycle were in progress at the same time, and each of them waits for another one. So none of them
// ends, unless a context ends, or a lease that is not renewed:
//
//	client  record at    says                             it proves
//	X       20 s, 30 s   x:1 waits for b since 3 s        from 3 s to 30 s, x:1 owned a and waited for b
//	Y       22 s, 32 s   y:1 waits for a since 5 s        from 5 s to 32 s, y:1 owned b and waited for a
//
// All clients of a cycle find it. Only the one whose call is [cycle.chosen] reports it, and ends that call if the call has
// [WithDeadlockError].
const (
	maxCycle = 8   // locks in a deadlock
	maxReads = 64  // requests of a look: readers, and goroutines with one context, make more than one way
	maxPaths = 256 // ways that a look follows

	// settle is how long a look waits for the record of a client that writes it at once. For leases of less than 11 s, the
	// records would be too late otherwise.
	settle = 1200 * time.Millisecond
	// lookAgain is longer than the time between two records of a client, as long as clients are not very many: see package
	// record.
	lookAgain = record.Every + 200*time.Millisecond
)

// WithDeadlockError makes a waiting lock call return a [*DeadlockError] if it is in a deadlock with other calls, for
// example because one process holds the lock a and waits for b, while another process holds b and waits for a. Without
// this option, the calls of a deadlock wait until their contexts end. The client logs each deadlock as an error in any case,
// and counts it in [Stats].
//
// If several calls of a deadlock have this option, only one of them returns the error: the call that began to wait last. The
// others acquire their locks when the caller of that call has unlocked. The caller must unlock all locks that it holds
// before it tries again.
//
// A deadlock is found when that call has waited for a lease (for 1 s, if the lease is shorter) and 12 s. It can take up to
// 20 s and one lease longer if another call began to wait later, but without this option, or if, in one of the clients, other
// calls that own locks waited for the same lock before. If the locks have different leases, the longest one counts. A
// deadlock of more than 8 locks is not found. Neither is one that includes a holder in Java, a context from [Lock.Join], or a
// context that owns a lock of one client and waits for a lock of another one. Clients find deadlocks by their records (see
// [Identity]), so with [Anonymous] this option has no effect. It is an invalid option for a quorum lock.
func WithDeadlockError() LockOption {
	return func(o *lockOptions) error { o.endsDeadlock = true; return nil }
}

// DeadlockError says that a call has ended because of a deadlock, see [WithDeadlockError]. You do not hold the lock. Unlock
// the locks that you hold, so that the other calls can go on. To avoid the deadlock, acquire the locks in the same order
// everywhere, or together with [NewMultiLock]. The error matches [ErrNotAcquired].
type DeadlockError struct {
	// Cycle has the locks of the deadlock with their owners. The first is the lock that the call waited for. The owner of
	// each lock waits for the next lock, and the owner of the last lock, which is that of the context of the call, waited for
	// the first lock.
	Cycle []DeadlockEdge
}

// DeadlockEdge is a lock in a deadlock, and the owner that holds it and waits for another lock.
type DeadlockEdge struct{ Lock, Owner string }

// Error returns a text with the names of the locks and their owners, and how to avoid the deadlock.
func (e *DeadlockError) Error() string {
	if len(e.Cycle) == 0 {
		return "rlock: deadlock"
	}
	return fmt.Sprintf("rlock: lock %s: not acquired: deadlock: %s: unlock what you hold; %s", quote(e.Cycle[0].Lock), e.course(), deadlockAdvice)
}

// Is reports whether target is [ErrNotAcquired].
func (e *DeadlockError) Is(target error) bool { return target == ErrNotAcquired }

const deadlockAdvice = "acquire the locks in the same order everywhere, or together with NewMultiLock"

// course says who waits for whom.
func (e *DeadlockError) course() string {
	parts := make([]string, len(e.Cycle))
	for i, edge := range e.Cycle {
		next := e.Cycle[(i+1)%len(e.Cycle)]
		parts[i] = fmt.Sprintf("%s holds %s and waits for %s", shown(edge.Owner), quote(edge.Lock), quote(next.Lock))
	}
	return strings.Join(parts, ", ")
}

// edge is a lock in a cycle, its holder, and the wait of that holder's context.
type edge struct {
	DeadlockEdge
	began   time.Time // of the wait, by the clock of its client
	ends    bool      // the waiting call has WithDeadlockError
	written time.Time // of the record that has the wait; zero for a call in the queue that the search is for
}

// cycle is a way from a lock back to the context of a call that waits for it. The last edge is that of the call.
type cycle struct {
	edges  []edge
	told   bool // it was found twice, and reported
	missed bool // the newest look has not found it: a record may have come late
}

// chosen returns the owner whose call has begun to wait last, of those with WithDeadlockError if there are any. The search for
// this call is the first that can find the cycle, if the clocks of the clients agree. All clients compare the same times,
// those in the records, so they choose the same call in any case.
func (c *cycle) chosen() string {
	last := slices.MaxFunc(c.edges, func(a, b edge) int {
		switch {
		case a.ends && !b.ends:
			return 1
		case b.ends && !a.ends:
			return -1
		}
		return cmp.Or(cmp.Compare(a.began.UnixMilli(), b.began.UnixMilli()), cmp.Compare(a.Owner, b.Owner))
	})
	return last.Owner
}

// same reports whether both cycles have the same waits of the same calls.
func (c *cycle) same(other cycle) bool {
	return slices.EqualFunc(c.edges, other.edges, func(a, b edge) bool {
		return a.DeadlockEdge == b.DeadlockEdge && a.began.Equal(b.began)
	})
}

// renewed reports whether all records have been written anew since an earlier look.
func (c *cycle) renewed(earlier cycle) bool {
	return !slices.ContainsFunc(c.edges[:len(c.edges)-1], func(e edge) bool {
		return slices.ContainsFunc(earlier.edges, func(before edge) bool { return before.Owner == e.Owner && before.written.Equal(e.written) })
	})
}

// err is the error of the call.
func (c *cycle) err() *DeadlockError {
	e := new(DeadlockError)
	for _, edge := range c.edges {
		e.Cycle = append(e.Cycle, edge.DeadlockEdge)
	}
	return e
}

// search looks for deadlocks of the calls in a queue whose contexts own locks, first when one of them has waited for a
// lease. Between looks it is a timer. A client makes one look at a time. queues.mu guards a search.
type search struct {
	lock    *Lock // of the first such call
	queue   *queue
	timer   *time.Timer
	settled bool
	cycles  []cycle // that the newest look has found, and that this client reports
}

// suspect begins a search because of a call that has begun to wait, unless there is one. queues.mu is held.
func (q *queue) suspect(w *waiter) {
	if l := w.lock; q.search == nil && l.kind != quorumKind && l.client.records.Writer != nil {
		s := &search{lock: l, queue: q}
		q.search = s
		s.timer = time.AfterFunc(time.Until(w.suspectAt()), s.wake)
	}
}

// suspectAt is when the call has waited for a lease, and is in the record.
func (w *waiter) suspectAt() time.Time { return w.since.Add(max(w.lock.terms.lease, longWait)) }

// end ends the search. queues.mu is held.
func (s *search) end() {
	s.timer.Stop()
	s.queue.search = nil
}

// wake is called when a pause is over, and perhaps once more after end has stopped the timer.
func (s *search) wake() {
	s.lock.queues.mu.Lock()
	defer s.lock.queues.mu.Unlock()
	if s.queue.search != s {
		return
	}
	c := s.lock.client
	calls, next := s.calls(time.Now())
	switch {
	case len(calls) == 0 && next.IsZero():
		s.end()
	case len(calls) == 0:
		s.timer.Reset(time.Until(next))
	case !s.settled:
		s.settled = true
		c.records.Hurry()
		s.timer.Reset(settle)
	default:
		c.background(func() { s.look(calls) })
	}
}

// calls returns, for each owner, the first call in line whose context owns the lock of that owner, if the call has waited for
// a lease. The record has the same call. next is when the next call will have waited for so long; zero if none will.
// queues.mu is held.
func (s *search) calls(now time.Time) (calls map[string]*waiter, next time.Time) {
	calls = make(map[string]*waiter)
	for _, a := range s.queue.askers {
		for w := a.first; w != nil; w = w.next {
			for _, o := range w.owners() {
				if calls[o] == nil {
					calls[o] = w
				}
			}
		}
	}
	maps.DeleteFunc(calls, func(_ string, w *waiter) bool {
		at := w.suspectAt()
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
		return at.After(now)
	})
	return calls, next
}

// owners returns the owners of the locks that the context of the call owns, the innermost first. Locks of other clients,
// and joined ones, are left out: nobody could follow them by this client's record. queues.mu is held.
func (w *waiter) owners() (all []string) {
	for h := w.under; h != nil; h = h.outer {
		g := h.grant
		if g.lock.client == w.lock.client && !g.lock.joined && !slices.Contains(all, g.owner) && h.owns() {
			all = append(all, g.owner)
		}
	}
	return all
}

// owns reports whether the lock is held under the first hold around this one, and not lost.
func (h *Hold) owns() bool {
	h.grant.mu.Lock()
	defer h.grant.mu.Unlock()
	return h.first().under > 0 && h.grant.state == owned
}

// recorded is the entry of a call that waits. queues.mu is held.
func (w *waiter) recorded() record.Entry {
	e := w.lock.entry(record.Waits, "", w.since)
	if w.lock.kind == quorumKind {
		return e
	}
	for _, o := range w.owners() {
		e.AddUnder(record.Under{Owner: o, Since: w.since, Ends: w.lock.endsDeadlock})
	}
	if s := w.asker.queue.search; s != nil {
		for i := range s.cycles {
			c := &s.cycles[i]
			if last := c.edges[len(c.edges)-1]; c.told && slices.ContainsFunc(e.Under, func(u record.Under) bool { return u.Owner == last.Owner }) {
				e.Cycle = c.err().course()
			}
		}
	}
	return e
}

// look looks once for cycles of these calls, and reports those that it finds again.
func (s *search) look(calls map[string]*waiter) {
	c := s.lock.client
	var found []cycle
	looked := false // not if a hook ends the goroutine
	defer func() {
		s.lock.queues.mu.Lock()
		defer s.lock.queues.mu.Unlock()
		if s.queue.search != s {
			return
		}
		pause := lookAgain
		if looked {
			s.conclude(calls, found)
		}
		if s.queue.search != s { // the only call was ended
			return
		}
		if !slices.ContainsFunc(s.cycles, func(c cycle) bool { return !c.told }) {
			pause = max(pause, s.lock.terms.lease)
		}
		s.timer.Reset(pause)
	}()
	found, looked = c.follow(s.lock, calls)
}

// conclude compares what was found with what the look before has found. queues.mu is held.
func (s *search) conclude(calls map[string]*waiter, found []cycle) {
	before := s.cycles
	s.cycles = nil
	for _, f := range found {
		owner := f.edges[len(f.edges)-1].Owner
		w := calls[owner]
		if f.chosen() != owner || !w.waits() || !slices.Contains(w.owners(), owner) { // it may have left meanwhile
			continue
		}
		i := slices.IndexFunc(before, f.same)
		switch {
		case i < 0:
			s.cycles = append(s.cycles, f)
		case before[i].told || !f.renewed(before[i]):
			before[i].missed = false
			s.cycles = append(s.cycles, before[i])
		default:
			f.told = true
			s.cycles = append(s.cycles, f)
			s.tell(w, f.err())
		}
	}
	for _, b := range before { // otherwise it would be reported once more
		if b.told && !b.missed && !slices.ContainsFunc(s.cycles, b.same) {
			b.missed = true
			s.cycles = append(s.cycles, b)
		}
	}
}

// tell reports a deadlock, and ends the call that has asked for that. queues.mu is held.
func (s *search) tell(w *waiter, err *DeadlockError) {
	w.lock.counters.deadlocks.Add(1)
	w.lock.client.log.Error("rlock: deadlock: "+deadlockAdvice, "lock", w.lock.name, "cycle", err.course(), "ended", w.lock.endsDeadlock)
	w.lock.client.records.Hurry()
	if w.lock.endsDeadlock {
		w.serve(nil, err)
	}
}

// follow finds the ways from the holders of l back to one of the owners of the calls. ok is false if the server does not
// answer. A key that may not be read, or is no lock, leads nowhere.
func (c *Client) follow(l *Lock, calls map[string]*waiter) (found []cycle, ok bool) {
	select {
	case c.looking <- struct{}{}:
		defer func() { <-c.looking }()
	case <-c.closing:
		return nil, false
	}
	reads, failed := 0, false
	read := func(key string) map[string]string {
		if reads++; failed || reads > maxReads || c.closed.Load() {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), l.bound)
		defer cancel()
		fields, err := c.server.RDB.HGetAll(ctx, key).Result()
		failed = !request.IsAnswer(err)
		return fields
	}
	holders, records := make(map[string][]string), make(map[string]record.Record)
	paths := [][]edge{{{DeadlockEdge: DeadlockEdge{Lock: l.name}}}} // the holder of the last lock is not known yet
	for n := 0; len(paths) > 0 && n < maxPaths && !failed; n, paths = n+1, paths[1:] {
		path := paths[0]
		last := &path[len(path)-1]
		owners, known := holders[last.Lock]
		if !known {
			owners = ownersIn(read(c.opts.Prefix + last.Lock))
			holders[last.Lock] = owners
		}
		for _, owner := range owners {
			last.Owner = owner
			if w := calls[owner]; w != nil {
				last.began, last.ends = w.since, w.lock.endsDeadlock
				found = append(found, cycle{edges: slices.Clone(path)})
				continue
			}
			if len(path) == maxCycle {
				continue
			}
			id, _, _ := strings.Cut(owner, ":")
			id = strings.TrimSuffix(id, "-poll")
			r, known := records[id]
			if !known {
				r = record.Read(read(record.Key(c.opts.Prefix, id)))
				slices.SortFunc(r.Entries, func(a, b record.Entry) int { return cmp.Compare(a.Name, b.Name) }) // so that each look follows the same ways
				records[id] = r
			}
			for _, e := range r.Entries {
				i := slices.IndexFunc(e.Under, func(u record.Under) bool { return u.Owner == owner })
				passed := slices.ContainsFunc(path, func(p edge) bool { return p.Lock == e.Name })
				if e.What != record.Waits || i < 0 || passed || len(paths) > maxPaths {
					continue
				}
				last.began, last.ends, last.written = e.Under[i].Since, e.Under[i].Ends, r.Written
				paths = append(paths, append(slices.Clone(path), edge{DeadlockEdge: DeadlockEdge{Lock: e.Name}}))
			}
		}
	}
	return found, !failed && !c.closed.Load()
}

// ownersIn returns the owners in the fields of a lock's key, in order. A writer that is a reader as well has two fields.
func ownersIn(fields map[string]string) (owners []string) {
	for field := range fields {
		if field != "mode" {
			owners = append(owners, strings.TrimSuffix(field, ":write"))
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}
