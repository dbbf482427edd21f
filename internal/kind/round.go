package kind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// ErrSameServer is the error of a quorum lock with the same server twice.
var ErrSameServer = errors.New("a quorum lock needs independent servers, and two of these are the same")

// share is a server's answer to an attempt to acquire.
type share struct {
	lua.Reply
	server     string        // the server's run id
	number     int64         // of this client's ticket; 0 without
	quarantine time.Duration // how long the share is not counted yet; 0 if counted
}

// Acquire asks until a round is won, or somebody holds a majority. Each round has a new owner, as
// the requests of an earlier round may still arrive: the late shares must not count for this round,
// nor be released with this round. The caller's owner is not used.
func (q *Quorum) Acquire(ctx context.Context, _ lua.Runner, _ string, lease time.Duration, o Options) (lua.Reply, error) {
	raised := false
	for n := 0; ; n++ {
		r, split, disagree, err := q.tryRound(ctx, lease, o.Wait)
		if err == nil && !r.Acquired && disagree && !raised {
			raised = true
			continue
		}
		if err != nil || r.Acquired || split == 0 {
			return r, err
		}
		// Perhaps nobody holds the lock: no release will wake the caller.
		// Overlapping rounds split again, so the pauses go by the duration of a round.
		pause := rand.N(split << min(n+2, 6))
		deadline, _ := ctx.Deadline() // of the attempt; a round may take two bounds
		if !o.Wait || time.Until(deadline) < pause+2*q.bound() || !q.host().Sleep(ctx, pause) {
			return r, nil
		}
	}
}

// tryRound makes one round. If the round was refused although nobody is known to hold a majority,
// split is the time until the last answer, else 0. disagree: the numbers of this client's tickets differ.
func (q *Quorum) tryRound(ctx context.Context, lease time.Duration, waits bool) (a lua.Reply, split time.Duration, disagree bool, err error) {
	for _, p := range q.nodes {
		if err := p.server.Closed(); err != nil {
			return lua.Reply{}, 0, false, err
		}
	}
	var mine *turns
	var ticket lua.Turn
	if waits {
		mine, ticket = q.ticket()
	}
	r := &round{owner: q.host().Owner(), decided: make(chan struct{})}
	sent := time.Now()
	votes := ask(ctx, q, func(ctx context.Context, p *Plain) (share, error) {
		return p.share(ctx, r.owner, lease, ticket, sent, q.bound())
	}, q.settled, q.counted, func(n int, v vote[share]) {
		q.late(r, n, v)
		if mine != nil {
			mine.late(n, v.value.number)
		}
	})
	t := q.count(votes)
	err = t.err
	if t.won && q.fenced && err == nil {
		err = q.raise(ctx, t.token, votes)
	}
	q.decide(r, votes, t.won && err == nil)
	if err != nil || !t.won {
		if mine != nil {
			numbers := make([]int64, len(votes))
			for n, v := range votes {
				numbers[n] = v.value.number
			}
			disagree = mine.refused(numbers)
		}
		return lua.Reply{TTL: t.ttl}, t.split, disagree, err
	}
	if mine != nil {
		mine.granted()
	}
	return lua.Reply{Acquired: true, Token: t.token, Sent: sent, Owner: r.owner}, 0, false, nil
}

// share asks one server, for a round begun at sent. A share granted later than bound is not counted:
// a stopped process finds such answers on going on, and a holder without a share on this server may have
// taken a share of another server again by then, see [Quorum.Renewals]. An error beside an acquired
// share means: the age of the server is unknown.
func (p *Plain) share(ctx context.Context, owner string, lease time.Duration, t lua.Turn, sent time.Time, bound time.Duration) (share, error) {
	wire := &withTrailer{server: p.server, key: p.grant.Key, trailer: info()} // the trailer tells the age of the server
	r, number, err := lua.Share(ctx, wire, p.shareOf(owner), lease, t)
	s := share{Reply: r, number: number}
	if err != nil || !r.Acquired {
		return s, err
	}
	text, err := wire.last.(*redis.StringCmd).Result()
	if err != nil {
		return s, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	age, err := strconv.ParseInt(fields["uptime_in_seconds"], 10, 64)
	if err != nil {
		return s, fmt.Errorf("INFO server does not tell its age: %w", err)
	}
	s.server = fields["run_id"]
	// Both ends of the age are cut off to seconds.
	s.quarantine = max(lease+time.Second-time.Duration(age)*time.Second, 0)
	p.server.tooYoung(s.quarantine)
	now := time.Now()
	if max(now.Sub(sent), now.Round(0).Sub(sent.Round(0))) > bound { // the monotonic clock stands still while the machine is suspended
		s.quarantine = max(s.quarantine, bound)
	}
	return s, nil
}

// result is the sum of some votes.
type result struct {
	won   bool
	split time.Duration // if nobody has won, and perhaps nobody holds the lock: until the last answer came; else 0
	token int64
	ttl   time.Duration // until a majority may be free
	err   error
}

// count counts the votes.
func (q *Quorum) count(votes []vote[share]) (t result) {
	mine, most, held, took := 0, 0, 0, time.Millisecond
	holders, servers := make(map[string]int), make(map[string]bool)
	var free []time.Duration // how long until each server may be free; a lease without end never ends
	for _, v := range votes {
		if v.err != nil {
			continue
		}
		took = max(took, v.took)
		switch s := v.value; {
		case !s.Acquired:
			held++
			holders[s.Holder]++
			most = max(most, holders[s.Holder])
			free = append(free, s.TTL)
			continue
		case s.quarantine == 0:
			mine++
			t.token = max(t.token, s.Token)
		}
		if servers[v.value.server] {
			t.err = ErrSameServer
		}
		servers[v.value.server] = v.value.server != ""
		free = append(free, v.value.quarantine)
	}
	switch {
	case t.err != nil:
	case mine >= q.majority():
		t.won = true
	case len(free) < q.majority():
		t.err = minority(q, request.NotExecuted, votes)
	case most < q.majority() && held > 0 && mine+held >= q.majority(): // else too many are too young
		t.split = took
	default:
		slices.SortFunc(free, func(a, b time.Duration) int {
			return cmp.Compare(uint64(a), uint64(b)) // negative, for a lease without end, comes last
		})
		t.ttl = free[q.majority()-1]
	}
	return t
}

// settled reports whether no further vote can change the outcome of a round: won, refused, or
// answered by too few servers.
func (q *Quorum) settled(votes []vote[share]) bool {
	mine, others, failed := 0, 0, 0
	for _, v := range votes {
		switch {
		case v.err == errPending:
		case v.err != nil:
			failed++
		case v.value.Acquired && v.value.quarantine == 0:
			mine++
		default:
			others++
		}
	}
	lost := others+failed >= q.majority()
	return mine >= q.majority() || failed >= q.majority() || lost && mine+others >= q.majority()
}

// counted reports whether a majority has answered. A further vote might decide the round, but two
// clients with split votes are done sooner if both ask again.
func (q *Quorum) counted(votes []vote[share]) bool {
	n := 0
	for _, v := range votes {
		if v.err == nil && v.value.quarantine == 0 {
			n++
		}
	}
	return n >= q.majority()
}

// raise makes every later token greater, by writing this token to a majority with shares of this
// round: every later grant has a share on one of these servers, and takes a token there after the
// write. On servers without a share of this round a later grant may have taken a share before the
// write.
func (q *Quorum) raise(ctx context.Context, token int64, shares []vote[share]) error {
	votes := ask(ctx, q, func(ctx context.Context, p *Plain) (struct{}, error) {
		if !shares[slices.Index(q.nodes, p)].value.Acquired {
			return struct{}{}, errNoShare
		}
		return struct{}{}, lua.Floor(ctx, p.server.RDB, p.grant, token)
	}, decisive, decisive, nil)
	if done, _ := outcomes(votes); done < q.majority() {
		return minority(q, request.NotExecuted, votes) // the counters do not matter
	}
	return nil
}

// decide ends a round. The shares of a lost round are given back, without a message: a woken
// client would take the share only to give the share back.
func (q *Quorum) decide(r *round, votes []vote[share], won bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer close(r.decided)
	r.over = !won
	mine := 0
	for _, v := range votes {
		if v.err == errPending {
			r.pending++
		}
		if mayBeMine(v) && v.value.quarantine == 0 { // else the share counts as held: a message would wake the sender
			mine++
		}
	}
	r.announce = mine >= q.majority()
	for n, v := range votes {
		if v.err != errPending {
			q.take(r, n, v)
		}
	}
	q.keep(r)
}

// late gets a vote not awaited by the round.
func (q *Quorum) late(r *round, n int, v vote[share]) {
	<-r.decided
	q.mu.Lock()
	defer q.mu.Unlock()
	r.pending--
	q.take(r, n, v)
	q.keep(r)
}

// take gives back the share of a vote, if any, when the round is over; otherwise take notes the
// share for the end of the round. q.mu is held.
func (q *Quorum) take(r *round, n int, v vote[share]) {
	switch {
	case v.outcome == request.Unknown, v.doubt:
		r.doubtful = append(r.doubtful, n)
	case v.outcome == request.NotExecuted:
		r.absent = append(r.absent, n)
	}
	if r.over {
		if mayBeMine(v) {
			q.giveBack(n, r.owner, r.announce, false, false)
		}
		q.giveBackDoubtful(r)
	}
}

// keep leaves a round in q.open as long as votes or requests of the round are open, or the release
// must know the servers without a share. q.mu is held.
func (q *Quorum) keep(r *round) {
	if r.pending > 0 || len(r.doubtful) > 0 || len(r.absent) > 0 && !r.over {
		q.open[r.owner] = r
	} else {
		delete(q.open, r.owner)
	}
}

// finish ends the round of an owner without holds. finish returns the servers surely without a
// share of the owner: a server silent for long would otherwise get more releases than a janitor keeps.
func (q *Quorum) finish(owner string) (absent []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.open[owner]
	if r == nil {
		return nil
	}
	r.over = true
	q.giveBackDoubtful(r)
	q.keep(r)
	return slices.Clone(r.absent)
}

// mayBeMine reports whether a server may have granted its share.
func mayBeMine(v vote[share]) bool { return v.value.Acquired || v.outcome == request.Unknown }

// giveBackDoubtful gives back, later, the shares of requests without an answer: such a request may
// still arrive. q.mu is held.
func (q *Quorum) giveBackDoubtful(r *round) {
	for _, n := range r.doubtful {
		q.giveBack(n, r.owner, r.announce, true, false)
	}
	r.doubtful = nil
}

// givenBack is a kind only for the release of a share, together with other orphans on the server.
type givenBack struct {
	*Plain
	silent bool // nobody waits for the share
}

// Gathers is true: a quorum lock has no proxy between client and server.
func (givenBack) Gathers(bool) bool { return true }

func (b givenBack) Release(ctx context.Context, r lua.Runner, owner string, _ lua.Ending) (lua.Released, error) {
	return lua.Yield(ctx, r, b.shareOf(owner), lua.Turn{}, b.silent)
}

// giveBack releases the share of an owner on one server, in the background: soon or, if the request
// for the share may still be on the way, after the latest arrival. The server's own client does the
// release: the clients of the remaining servers may be closed meanwhile.
func (q *Quorum) giveBack(n int, owner string, announce, late, likely bool) {
	p := q.nodes[n]
	p.server.Sweep(givenBack{p, !announce}, owner, q.lease, late, likely)
}

// Sweep releases the shares of an owner in the background, on each server separately. For late
// and likely see [Server].
func (q *Quorum) Sweep(owner string, late, likely bool) {
	absent := q.finish(owner)
	for n := range q.nodes {
		if !slices.Contains(absent, n) {
			q.giveBack(n, owner, true, late, likely)
		}
	}
	if !late && q.host().waiting.of(q.id) == nil { // nobody of the owner's client uses its tickets
		q.leave(0)
	}
}
