package rlock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/go-rlock/rlock/internal/kind"
)

// NewQuorumLock returns the lock of that name on several independent servers
// (Redlock): it is held by the owner on whom a majority of them agrees, so that it survives
// the failure of the others, and also what a single server with replicas cannot
// promise, a failover that forgets a grant. Each client stands for one server, a
// master without replicas; three or five of them, an odd number. All must be
// given wherever the name is used, in any order. Each keeps the data of a plain
// lock, whose name must not be used in another way.
//
// The servers are asked at once, and nobody waits for one that does not answer
// while a majority does: a Lock is as fast as the slower ones of the fastest
// majority, an Unlock as well. What the others do goes on in the background; one
// that was silent before is not waited for at all, unless the rest is no majority.
// A share without majority is given back at once, and two clients that have split
// the servers between them come back after random pauses.
//
// The trusted window counts from before the first request of the round that won.
// A renewal must reach a majority; the grant is lost when that has not happened by
// the end of the window, or when a majority no longer knows of it.
// While a majority renews, a server that has forgotten its share, or had none, is asked for
// it again: so a hold outlives a rolling restart, if each server is back for a third of the lease
// before the next one goes.
//
// A server that has started less than a lease ago is not counted, as it may have
// forgotten a grant: it tells its age along with every answer (INFO server, in
// seconds, of which one is added). So all users of a name must agree on the lease.
// Where a majority is too young, the lock counts as held until they are not.
// [Options].Logger is told for how long a server is not counted, when one has not answered for a
// second, and when it answers again.
//
// Tokens of [WithFencing] grow: before the largest of the majority is used, it is written
// to the counters of a majority that has granted the lock, one more round trip. Any two
// majorities share a server. That one must have kept its counter, or its clock
// must be no further behind the others' than a lease. [WithReplicas] is refused.
//
// The lease and prefix are those of the first client, where a LockOption does not
// say otherwise. When one of the clients is closed nobody can lock any more
// ([ErrClosed]), other than under what is held; a call that waits returns at its next
// request, 5.5 s later at most. What is held goes on as long as a majority of the
// connections does. But it ends if the closed client is the one with the smallest id,
// which renews the lock; the Close of that client waits for the Unlock. Close the clients in any
// order: each releases on its server what callers have left there.
func NewQuorumLock(name string, clients []*Client, opts ...LockOption) *Lock {
	if len(clients) == 0 || slices.Contains(clients, nil) {
		l := noLock(name, quorumKind)
		l.refuse(errors.New("a quorum lock needs clients that are not nil"))
		return l
	}
	l, key := clients[0].newLock(name, opts), clients[0].opts.Prefix+name
	clients = slices.SortedFunc(slices.Values(clients), func(a, b *Client) int { return cmp.Compare(a.id, b.id) })
	servers := make([]*kind.Server, len(clients))
	for i, c := range clients {
		servers[i] = &c.server
		for _, other := range clients[:i] {
			if c == other || c.server.RDB == other.server.RDB {
				l.refuse(errors.New("a quorum lock needs independent servers: one is given twice"))
			}
		}
	}
	switch n := len(clients); {
	case n < 3 || n%2 == 0:
		l.refuse(fmt.Errorf("a quorum lock needs an odd number of servers, at least 3: %d are given", n))
	case l.terms.handoff.most > 0, l.terms.handoff.longest > 0:
		l.refuse(errors.New("WithHandoff: a quorum lock is not passed on in memory"))
	case l.terms.replicas.n > 0:
		l.refuse(errors.New("WithReplicas: the servers of a quorum lock have none"))
	case l.terms.retention > 0:
		l.refuse(errors.New("WithRetention: only plain locks are kept"))
	}
	l.client, l.kind = clients[0], quorumKind
	l.use(kind.NewQuorum(servers, key, l.terms.fenced, l.terms.lease))
	l.slot = key // the same in all processes, other than the host and its prefix
	l.peers = clients[1:]
	return l
}

// background runs f in a goroutine that the clients of the lock wait for: for a quorum lock all
// of them, as what a request leaves behind has to be released by each.
func (l *Lock) background(f func()) {
	for _, c := range l.peers {
		c.active.Add(1)
	}
	l.client.background(func() {
		defer func() {
			for _, c := range l.peers {
				c.done()
			}
		}()
		f()
	})
}
