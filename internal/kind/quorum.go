package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// Quorum is a plain lock on each of several servers. The owner of a failed round
// is never used again.
type Quorum struct {
	id     string
	nodes  []*Plain
	lease  time.Duration
	fenced bool

	mu   sync.Mutex        // guards open, and every round in open
	open map[string]*round // by owner; rounds with answers outstanding, or requests in doubt
}

// NewQuorum returns the lock of key on several servers, each with the data of a plain
// lock. The first server is the host: the host names the owners.
func NewQuorum(servers []*Server, key string, fenced bool, lease time.Duration) *Quorum {
	q := &Quorum{lease: lease, fenced: fenced, open: make(map[string]*round)}
	ids := make([]string, len(servers))
	for i, s := range servers {
		ids[i] = s.ID
		q.nodes = append(q.nodes, NewPlain(s, key, fenced))
	}
	q.id = notPlain + strings.Join(ids, " ") + " " + key
	return q
}

func (q *Quorum) host() *Server { return q.nodes[0].server }

// round is one round of asking for the lock.
type round struct {
	owner    string
	pending  int           // answers not awaited by the round
	doubtful []int         // servers without an answer; the request may still arrive
	absent   []int         // servers surely not asked, without a share
	decided  chan struct{} // closed when the round is decided
	over     bool          // a share granted from now on is given back
	announce bool          // others may have seen a majority, and wait for a release
}

// minorityError is the error of a request without a majority of answers.
type minorityError struct {
	outcome  request.Outcome
	final    bool
	answered int
	servers  int
	errs     []error // of the servers without an answer
}

func (e *minorityError) Error() string {
	text := fmt.Sprintf("%d of %d servers answered, ", e.answered, e.servers)
	if needed := e.servers/2 + 1; e.answered < needed {
		text += fmt.Sprintf("%d are needed", needed)
	} else {
		text += "and disagree"
	}
	for n, err := range e.errs {
		text += []string{": ", "; "}[min(n, 1)] + err.Error()
	}
	return text
}

// Unwrap returns the errors of the servers.
func (e *minorityError) Unwrap() []error { return e.errs }

func (q *Quorum) majority() int { return len(q.nodes)/2 + 1 }

// minority is the error of votes with too few answers.
func minority[T any](q *Quorum, o request.Outcome, votes []vote[T]) error {
	e := &minorityError{outcome: o, servers: len(votes)}
	hopeless := 0
	for n, v := range votes {
		if v.err == nil || errors.Is(v.err, lua.ErrNotOwner) {
			e.answered++
			continue
		}
		if v.final {
			hopeless++
		}
		e.errs = append(e.errs, fmt.Errorf("%s: %w", q.nodes[n].server.address(), v.err))
	}
	e.final = hopeless > len(votes)/2
	return e
}

// Key tells sets of clients apart.
func (q *Quorum) Key() string { return q.id }

// Gathers is false: each server is asked separately.
func (q *Quorum) Gathers(bool) bool { return false }

func (q *Quorum) SetCount(ctx context.Context, _ lua.Runner, owner string, lease time.Duration, n Count) (lua.Released, error) {
	votes := ask(ctx, q, func(ctx context.Context, p *Plain) (lua.Released, error) {
		return p.SetCount(ctx, p.server.Scripts, owner, lease, n)
	}, decisive, decisive, nil)
	switch done, refused := outcomes(votes); {
	case done >= q.majority():
		return lua.Released{}, nil
	case refused >= q.majority():
		return lua.Released{}, lua.ErrNotOwner
	}
	return lua.Released{}, minority(q, request.Unknown, votes)
}

// Release is done when a majority has answered. The remaining shares are released in the background,
// until the end of their leases. The lock was lost only if a majority says so: the remaining servers
// need not have been part of the grant. Without a majority nothing is done in the background, because
// the caller repeats the whole release.
func (q *Quorum) Release(ctx context.Context, _ lua.Runner, owner string, _ lua.Ending) (lua.Released, error) {
	absent := q.finish(owner)
	client, _, _ := strings.Cut(owner, ":") // whose tickets have got the lock
	decided, done := make(chan struct{}), false
	sweep := func(n int, v vote[lua.Released]) {
		if v.outcome != request.Answered && !v.final && v.err != errNoShare {
			q.giveBack(n, owner, true, false, false)
		}
	}
	votes := ask(ctx, q, func(ctx context.Context, p *Plain) (lua.Released, error) {
		if slices.Contains(absent, slices.Index(q.nodes, p)) {
			return lua.Released{}, errNoShare
		}
		return lua.Yield(ctx, p.server.Scripts, p.shareOf(owner), lua.Turn{Client: client}, false)
	}, answeredBy, answeredBy, func(n int, v vote[lua.Released]) {
		if <-decided; done {
			sweep(n, v)
		}
	})
	done = answeredBy(votes)
	close(decided)
	if t := q.host().waiting.of(q.id); t != nil && client == q.host().ID {
		t.released()
	}
	if !done {
		return lua.Released{}, minority(q, request.Unknown, votes)
	}
	var released lua.Released
	_, refused := outcomes(votes)
	for n, v := range votes {
		if v.err != nil && v.err != errPending {
			sweep(n, v)
		}
		if v.doubt && errors.Is(v.err, lua.ErrNotOwner) { // the attempt in doubt may have released the share
			refused--
		}
		released.PublishErr = cmp.Or(released.PublishErr, v.value.PublishErr)
	}
	if refused >= q.majority() {
		return lua.Released{}, lua.ErrNotOwner
	}
	return released, nil
}

// Renewals also take a lost share again from the server, while a majority renews. Otherwise a hold
// would not outlive a second server's empty restart, however long after the first:
//
//	a, b, c   the hold has a share on each
//	_, b, c   a restarts empty; b and c renew, a is asked for a share again
//	a, _, c   b restarts empty; a and c renew
//
// Taking a share again is safe at once, on a server of any age. Let L be the lease, and B another owner.
// B wins a round begun at t by shares granted from t to t+L/10 (see Plain.share), on servers running for
// L by then. Of the hold's requests answered before t (the grant and the renewals), let r be the sending
// time of the last. A server of the majority for r gives B no share before r+L: the server keeps the
// hold's share, or has restarted since and is too young. One of these servers is B's. So t is r+9/10·L
// at least, and the hold is over: the hold's window, less the guard, was shorter. The origin of the
// renewed shares does not matter. If the hold is younger than B's hold, exchange the names: the hold's
// round cannot win beside B's hold. The worst moment is a round of B under way:
//
//	0 s       b, c   A renews, L is 30 s; a is free and old
//	0.1 s  B, b, c   a grants B a share, c refuses; the request to b is late
//	0.2 s  _, b, c   a restarts empty
//	10 s   a, b, c   A renews on b and c, and has a share of a again
//	20 s   a, b, c   b cannot be reached by A any more; A renews on a and c
//	40 s   a, _, c   the share on b ends: only now may b grant B's request, 0.5 s were the limit
//
// A share taken too late, after the end of the hold, is given back like a share of a round.
func (q *Quorum) Renewals(owner string, lease time.Duration) (all []Renewal) {
	for n, p := range q.nodes {
		r := p.Renewals(owner, lease)[0]
		r.Heard = func(err error, took time.Duration) {
			o, _ := Classify(err)
			q.heard(p.server, o, err, took)
		}
		r.Retake = func(ctx context.Context, held func() bool) { q.retake(ctx, n, owner, lease, held) }
		all = append(all, r)
	}
	return all
}

// retake takes the share of an owner on a server again, if the server is free and the owner still holds
// the lock: a renewal behind the release finds no share either. The round is in q.open before held is
// asked, so a later release finds the round.
func (q *Quorum) retake(ctx context.Context, n int, owner string, lease time.Duration, held func() bool) {
	ctx, cancel := context.WithTimeout(ctx, q.bound())
	defer cancel()
	q.mu.Lock()
	r := q.open[owner]
	if r == nil {
		r = &round{owner: owner, decided: make(chan struct{}), announce: true}
		close(r.decided)
		q.open[owner] = r
	}
	r.pending++
	q.mu.Unlock()
	v := vote[share]{err: request.ErrNoAnswer, outcome: request.Unknown}
	defer func() { q.late(r, n, v) }() // also if a hook of the application ends this goroutine
	if !held() {
		v = vote[share]{outcome: request.Answered} // nothing was asked for
		return
	}
	g := q.nodes[n].Of(owner)
	g.Counter = "" // the hold has its token
	v.value.Reply, v.err = lua.Acquire(ctx, q.nodes[n].server.Scripts, g, lease, 0)
	if v.outcome, v.final = Classify(v.err); v.value.Acquired {
		q.mu.Lock()
		r.absent = slices.DeleteFunc(r.absent, func(other int) bool { return other == n })
		q.mu.Unlock()
	}
}

// GrantChannel is empty: no message grants a quorum lock, but only a round.
func (q *Quorum) GrantChannel() string { return "" }

func (q *Quorum) UnlockChannel() string { return q.nodes[0].UnlockChannel() }

func (q *Quorum) Force(ctx context.Context) (bool, error) {
	owner := q.host().Owner() // without a share: see leave
	votes := ask(ctx, q, func(ctx context.Context, p *Plain) (bool, error) {
		was, err := p.Force(ctx)
		if err == nil {
			_, _ = lua.Yield(ctx, p.server.RDB, p.shareOf(owner), lua.Turn{}, false) // a ticket gets the turn
		}
		return was, err
	}, answeredBy, answeredBy, nil)
	done, _ := outcomes(votes)
	if done < q.majority() {
		return false, minority(q, request.Unknown, votes)
	}
	held := len(votes) - done // a server without an answer may have been part of a grant
	for _, v := range votes {
		if v.value {
			held++
		}
	}
	return held >= q.majority(), nil
}

// Inspect shows the grant known to a majority, if there is one.
func (q *Quorum) Inspect(ctx context.Context) (lua.State, error) {
	votes := ask(ctx, q, func(ctx context.Context, p *Plain) (lua.State, error) {
		g := p.shareOf("")
		g.Queue = lua.QuorumOf(g.Key)
		return lua.Inspect(ctx, p.server.RDB, g)
	}, q.seen, q.seen, nil)
	if !q.seen(votes) {
		return lua.State{}, minority(q, request.Unknown, votes)
	}
	all := lua.State{Holds: make(map[string]int64), Waiters: -1}
	leases := make(map[string][]time.Duration)
	for _, v := range votes {
		all.Token = max(all.Token, v.value.Token)
		all.Waiters = max(all.Waiters, v.value.Waiters)
		for owner, n := range v.value.Holds {
			if leases[owner] = append(leases[owner], v.value.TTL); len(leases[owner]) >= q.majority() {
				all.Holds[owner] = max(n, all.Holds[owner])
			}
		}
	}
	for owner := range all.Holds { // one at most, held by a majority until too many leases have ended
		ttls := leases[owner]
		slices.Sort(ttls)
		all.TTL = ttls[len(ttls)-q.majority()]
	}
	return all, nil
}

// seen reports whether a majority has answered, and no further answer can show a grant missing in
// these votes.
func (q *Quorum) seen(votes []vote[lua.State]) bool {
	shares, most := make(map[string]int), 0
	for _, v := range votes {
		for owner := range v.value.Holds {
			shares[owner]++
			most = max(most, shares[owner])
		}
	}
	done, _ := outcomes(votes)
	return done >= q.majority() && (most >= q.majority() || most+len(votes)-done < q.majority())
}
