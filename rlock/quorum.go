package rlock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/go-rlock/rlock/internal/kind"
)

// NewQuorumLock returns the lock of that name on several independent servers (Redlock): its holder is the
// owner agreed on by a majority of servers, so that the lock survives the failure of the rest, and also a
// failover that forgets a grant, beyond the promise of a single server with replicas. Each client stands
// for one server, a master without replicas; three or five, an odd number. All must be given wherever the
// name is used, in any order. Each keeps the data of a plain lock, whose name must not be used in another
// way.
//
// The servers are asked at once, and nobody waits for a silent server while a majority answers: a Lock is
// as fast as the slower ones of the fastest majority, an Unlock as well. The rest goes on in the
// background; a server silent before is not waited for at all, unless the rest is no majority. A share
// without majority is given back at once, and two clients with a split vote come back after random
// pauses.
//
// Clients that wait have their turns one after the other, in the same order on all servers: an Unlock tells
// the next client, and for 0.2 s nobody else gets the free lock. Meanwhile a TryLock fails. The order is
// that of arrival, nearly: clients that come at the same time have no certain order.
//
// The trusted window counts from before the first request of the winning round. A renewal must reach a
// majority; the grant is lost without such a renewal by the end of the window, or when a majority no
// longer knows of the grant. While a majority renews, a server without its share, forgotten or never had,
// is asked again: so a hold outlives a rolling restart, if each server is back for a third of the lease
// before the next goes.
//
// A server started less than a lease ago is not counted, as a grant may be forgotten: the server tells
// its age along with every answer (INFO server, in seconds, of which one is added). So all users of a
// name must agree on the lease. Where a majority is too young, the lock counts as held meanwhile.
// [Options].Logger is told for how long a server is not counted, when a server has not answered for a
// second, and when the server answers again.
//
// Tokens of [WithFencing] grow: before the largest token of the majority is used, that token is written
// to the counters of a granting majority, one more round trip. Any two majorities share a server. The
// shared server must have kept the counter, or have a clock no further behind the other servers' than a
// lease. [WithReplicas] is refused.
//
// The lease and prefix are those of the first client, where a LockOption does not say otherwise. When any
// client is closed nobody can lock any more ([ErrClosed]), other than under an existing hold; a waiting
// call returns at its next request, 5.5 s later at most. Existing holds go on as long as a majority of
// the connections does. But existing holds end if the closed client has the smallest id, and so renews
// the lock; the Close of that client waits for the Unlock. Close the clients in any order: each releases
// the orphans on its server.
func NewQuorumLock(name string, clients []*Client, opts ...LockOption) *Lock {
	if len(clients) == 0 || slices.Contains(clients, nil) {
		l := noLock(name, quorumKind)
		l.refuse(errors.New("a quorum lock needs clients that are not nil"))
		return l
	}
	l, key := clients[0].newLock(name, quorumKind, opts), clients[0].opts.Prefix+name
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
	l.client = clients[0]
	l.use(kind.NewQuorum(servers, key, l.terms.fenced, l.terms.lease))
	l.slot = key // the same in all processes, other than the host and its prefix
	l.peers = clients[1:]
	return l
}

// background runs f in a goroutine that the clients of the lock wait for: for a quorum lock all clients,
// as each has to release the orphans of a request.
func (l *Lock) background(f func()) {
	for _, c := range l.peers {
		c.more()
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
