package rlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// NewQuorumLock returns the lock of that name on several independent servers
// (Redlock): it is held by whom a majority of them says, so that it survives the
// failure of the others, and also what a single server with replicas cannot
// promise, a failover that forgets a grant. Each client stands for one server, a
// master without replicas; three or five of them, an odd number. All must be
// given wherever the name is used, in any order. Each keeps the data of a plain
// lock, whose name must not be used in another way.
//
// The servers are asked at once, and nobody waits for one that does not answer
// while a majority does: a Lock is as fast as the slower ones of the fastest
// majority, an Unlock as well. What the others do goes on in the background; one
// that was silent before is not waited for at all. A share without majority is
// given back at once, and two clients that have split the servers between them
// come back after random pauses.
//
// The trusted window counts from before the first request of the round that won.
// A renewal must reach a majority; the grant is lost when that has not happened by
// the end of the window, or when a majority no longer knows of it.
//
// A server that has started less than a lease ago is not counted, as it may have
// forgotten a grant: it tells its age along with every answer (INFO server, in
// seconds, of which one is added). So all users of a name must agree on the lease.
// Where a majority is too young, the lock counts as held until they are not.
//
// Tokens of [WithFencing] grow: the largest of the majority is written to a
// majority of the counters before it is used, one more round trip, and any two
// majorities share a server. That one must have kept its counter, or its clock
// must be no further behind the others' than a lease. [WithReplicas] is refused.
//
// The lease and prefix are those of the first client, where a LockOption does not
// say otherwise. When one of the clients is closed nobody can lock any more
// ([ErrClosed]); what is held goes on as long as a majority of the connections
// does, but ends if the client closed is the one that hosts the lock, which waits
// for it. The client with the smallest id does.
func NewQuorumLock(name string, clients []*Client, opts ...LockOption) *Lock {
	if len(clients) == 0 || slices.Contains(clients, nil) {
		l := &Lock{client: &Client{}, name: name, protocol: &quorum{}}
		l.refuse(errors.New("a quorum lock needs clients that are not nil"))
		return l
	}
	l, key := clients[0].newLock(name, opts), clients[0].opts.Prefix+name
	clients = slices.SortedFunc(slices.Values(clients), func(a, b *Client) int { return cmp.Compare(a.id, b.id) })
	q := &quorum{lock: l, open: make(map[string]*ballot)}
	ids := make([]string, len(clients))
	for i, c := range clients {
		ids[i] = c.id
		q.nodes = append(q.nodes, newPlain(c, key, l.fenced))
		for _, other := range clients[:i] {
			if c == other || c.rdb == other.rdb {
				l.refuse(errors.New("a quorum lock needs independent servers: one is given twice"))
			}
		}
	}
	q.id = key + "\x00" + strings.Join(ids, " ")
	switch n := len(clients); {
	case n < 3 || n%2 == 0:
		l.refuse(fmt.Errorf("a quorum lock needs an odd number of servers, at least 3: %d are given", n))
	case l.handoff.most > 0, l.handoff.longest > 0:
		l.refuse(errors.New("WithHandoff: a quorum lock is not passed on in memory"))
	case l.replicas.n > 0:
		l.refuse(errors.New("WithReplicas: the servers of a quorum lock have none"))
	}
	l.client, l.gates, l.protocol = clients[0], clients[0].gatesOf(key), q
	return l
}

// quorum is a plain lock on each of several servers. Owners of rounds that failed
// are never used again.
type quorum struct {
	lock  *Lock
	id    string
	nodes []*plain

	mu   sync.Mutex         // guards open, and what is in it
	open map[string]*ballot // by owner; those with answers outstanding
}

// ballot is one round of asking for the lock.
type ballot struct {
	owner   string
	pending int           // answers that nobody waits for any more
	decided chan struct{} // closed when it is known what they are worth
	over    bool          // what arrives is given back
	loud    bool          // others may have seen a majority, and wait for a release
}

// minorityError says that too few servers have answered.
type minorityError struct {
	outcome outcome
	final   bool
	err     error
}

func (e *minorityError) Error() string { return "no majority of the servers: " + e.err.Error() }
func (e *minorityError) Unwrap() error { return e.err }

func (q *quorum) majority() int { return len(q.nodes)/2 + 1 }

// minority is the error of votes of which too few are answers.
func minority[T any](o outcome, votes []vote[T]) error {
	e := &minorityError{outcome: o}
	var errs []error
	hopeless := 0
	for n, v := range votes {
		if v.err == nil || errors.Is(v.err, lua.ErrNotOwner) {
			continue
		}
		if _, final := classify(v.err); final {
			hopeless++
		}
		errs = append(errs, fmt.Errorf("server %d: %w", n+1, v.err))
	}
	e.err, e.final = errors.Join(errs...), hopeless > len(votes)/2
	return e
}

func (q *quorum) key() string { return q.id }

func (q *quorum) count(ctx context.Context, owner string, lease time.Duration, n tally) error {
	votes := ask(ctx, q, func(ctx context.Context, p *plain) (struct{}, error) {
		return struct{}{}, p.count(ctx, owner, lease, n)
	}, decisive, nil)
	switch done, refused := outcomes(votes); {
	case done >= q.majority():
		return nil
	case refused >= q.majority():
		return lua.ErrNotOwner
	}
	return minority(unknown, votes)
}

// release is done when a majority has answered; the others are seen to in the
// background, as long as there can be anything left. That is a lost lock only if a
// majority says so: the rest need not have been part of the grant.
func (q *quorum) release(ctx context.Context, owner string, _ []string) (lua.Released, error) {
	q.finish(owner)
	sweep := func(n int, v vote[lua.Released]) {
		if o, final := classify(v.err); o != answered && !final {
			q.giveBack(n, owner, true)
		}
	}
	votes := ask(ctx, q, func(ctx context.Context, p *plain) (lua.Released, error) {
		return p.release(ctx, owner, nil)
	}, answeredBy, sweep)
	done, refused := outcomes(votes)
	if done+refused < q.majority() {
		return lua.Released{}, minority(unknown, votes)
	}
	var released lua.Released
	for n, v := range votes {
		if v.err != nil && v.err != errPending {
			sweep(n, v)
		}
		released.Receivers = max(released.Receivers, v.value.Receivers)
		released.PublishErr = cmp.Or(released.PublishErr, v.value.PublishErr)
	}
	if refused >= q.majority() {
		return lua.Released{}, lua.ErrNotOwner
	}
	return released, nil
}

func (q *quorum) renewals(owner string, lease time.Duration) (all []renewal) {
	for _, p := range q.nodes {
		all = append(all, p.renewals(owner, lease)...)
	}
	return all
}

func (q *quorum) force(ctx context.Context) (bool, error) {
	votes := ask(ctx, q, func(ctx context.Context, p *plain) (bool, error) { return p.force(ctx) }, answeredBy, nil)
	if done, _ := outcomes(votes); done < q.majority() {
		return false, minority(unknown, votes)
	}
	return slices.ContainsFunc(votes, func(v vote[bool]) bool { return v.value }), nil
}

// inspect shows the grant that a majority knows of, if there is one.
func (q *quorum) inspect(ctx context.Context) (lua.State, error) {
	votes := ask(ctx, q, func(ctx context.Context, p *plain) (lua.State, error) { return p.inspect(ctx) }, answeredBy, nil)
	if done, _ := outcomes(votes); done < q.majority() {
		return lua.State{}, minority(unknown, votes)
	}
	all := lua.State{Holds: make(map[string]int64), Subscribers: -1}
	leases := make(map[string][]time.Duration)
	for _, v := range votes {
		all.Token = max(all.Token, v.value.Token)
		all.Subscribers = max(all.Subscribers, v.value.Subscribers)
		for owner, n := range v.value.Holds {
			if leases[owner] = append(leases[owner], v.value.TTL); len(leases[owner]) >= q.majority() {
				all.Holds[owner] = max(n, all.Holds[owner])
			}
		}
	}
	for owner := range all.Holds { // one at most; a majority has it until so many leases have ended
		ttls := leases[owner]
		slices.Sort(ttls)
		all.TTL = ttls[len(ttls)-q.majority()]
	}
	return all, nil
}

// listen hears the releases on all servers.
func (q *quorum) listen(string) ear {
	e := quorumEar{q.nodes[0].client.hub.JoinAll(q.nodes[0].grant.Channel)}
	for _, p := range q.nodes[1:] {
		e = append(e, p.client.hub.JoinAllWith(p.grant.Channel, e[0]))
	}
	return e
}
