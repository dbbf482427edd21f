package rlock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/go-rlock/rlock/internal/kind"
)

// NewQuorumLock returns the lock of a name on several independent servers, by the Redlock algorithm.
// The lock is held by the owner that a majority of the servers has accepted. The lock survives the
// failure of a minority of the servers, and a failover or restart after which one server has
// forgotten the lock.
//
// Each client must be connected to a different server, which must be a master without replicas. Use
// three or five servers. All processes must pass clients of the same servers, in any order. Each server
// holds the data of a plain lock of that name, so do not use the name for another lock.
//
// Requests are sent to all servers at the same time, and a call returns when a majority has answered.
// The requests to the other servers continue in the background. If a server did not answer the previous
// request, a call waits for it only if the other servers are not a majority. If a client is accepted by
// fewer servers than a majority, it releases the lock on them at once. If two clients are each accepted
// by a part of the servers, but neither by a majority, both try again after random pauses.
//
// Waiting clients get the lock one after the other, about in the order of their arrival. An Unlock
// notifies the next client in the queue, and for 0.2 s only that client can acquire the lock. A TryLock
// of another client fails during this time.
//
// Each renewal must be accepted by a majority. A lock whose renewals are not accepted by a majority is
// lost before the lease ends, or as soon as a majority answers that this owner does not hold it. The
// client measures the lease from the moment before it sent the first request. With each renewal, the
// client also asks the servers again that have forgotten the lock. So a hold survives a rolling restart
// of the servers, if each server is back for a third of the lease before the next one is restarted.
//
// A server that started less than one lease ago is not counted, because it may have forgotten a holder.
// So all users of a name must use the same lease. If a majority cannot be formed without such servers,
// calls wait as if the lock were held. Each answer contains the age of the server in seconds, from INFO
// server. The Logger in [Options] reports how long a server is not counted, when a server has not
// answered for a second, and when it answers again.
//
// With [WithFencing], the tokens of all servers together increase. Before a token is used, it is
// written to the counters of a majority, which takes one more round trip. Any two majorities have a
// server in common. The tokens increase as long as that server has kept its counter, or has a clock
// that is behind the clocks of the other servers by no more than one lease. [WithReplicas] and
// [WithDeadlockError] are invalid options for a quorum lock.
//
// The calls of a quorum lock are counted, grouped, logged and traced by the client with the smallest id, so
// give all clients the same Group, Logger and Trace, and collect the [Stats] of all.
//
// The lease and the prefix are those of the first client, unless a [LockOption] sets the lease. If one
// of the clients is closed, lock calls return [ErrClosed], and a waiting call returns it within 5.5 s.
// Nested calls under an existing hold still work. Existing holds continue as long as a majority of the
// servers can be reached. However, if the closed client is the one with the smallest id, the existing
// holds end, because that client renews the lock. Closing the client with the smallest id waits for the
// Unlock of these holds. You can close the clients in any order.
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
	case l.endsDeadlock:
		l.refuse(errors.New("WithDeadlockError: deadlocks of quorum locks are not found"))
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
