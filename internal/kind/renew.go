package kind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// ErrRefused means: a majority of the servers know of no such owner.
var ErrRefused = errors.New("the owner holds nothing")

var errNoMajority = errors.New("fewer than half of the servers have renewed the lease")

// node is a server as one client sees it.
type node struct {
	rdb    any
	master any // the node of a cluster; nil without a cluster, or if the node is unknown
}

// part is the renewals for one server node, in one pipeline. go-redis has a separate
// connection pool for pipelines; the application's commands cannot exhaust this pool. A hanging
// node does not delay the answer of another node.
type part struct {
	rdb      redis.UniversalClient
	node     node
	quorum   bool  // some leases are renewed on several nodes
	of       []int // index of the lease, for each of renewals
	renewals []lua.Renewal
	shares   []Renewal // each of renewals with the functions of the kind
}

// verdict counts the servers' answers about one lease so far.
type verdict struct {
	asked, renewed, refused, failed int
	err                             error // the newest failure, or lua.Left, not a failure
}

// settled reports whether further answers cannot change the outcome.
func (v *verdict) settled() bool {
	return v.renewed > v.asked/2 || v.refused > v.asked/2 || v.renewed+v.refused+v.failed == v.asked
}

func (v *verdict) outcome() error {
	switch {
	case v.renewed > v.asked/2:
		return nil
	case v.refused > v.asked/2:
		return ErrRefused
	case v.err != nil:
		return v.err
	case v.renewed+v.refused == v.asked:
		return errNoMajority
	}
	return request.ErrNoAnswer
}

// Renewer extends the leases of a client's grants.
type Renewer struct {
	Background func(func())                // runs a function in a goroutine; the client's Close waits for the goroutine
	Reload     func(redis.UniversalClient) // a server gave no answer, and may be master no more
	Gone       func(lease int)             // called for a refused lease while other nodes are still asked, maybe more than once
	Held       func(lease int) bool        // whether a lease is still held; asked before a share is taken again
	Places     *Places                     // of all renewals of the client
	Copies     *request.Copies             // of the client; may be nil
}

// Renew makes the renewals of each of several leases, until ctx ends. Renew returns one error
// for each lease: nil, [lua.Left] of a lease only confirmed, ErrRefused, or an error with
// unknown outcome.
func (r Renewer) Renew(ctx context.Context, due [][]Renewal) []error {
	verdicts := make([]verdict, len(due))
	parts := byNode(ctx, due, verdicts)
	reload := func() {
		for _, p := range parts {
			r.Reload(p.rdb)
		}
	}
	// A node without an answer may be master no more, and may hang beyond ctx: reload at its end.
	reloaded := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(reloaded); reload() })
	defer func() {
		if !stop() {
			<-reloaded
		}
	}()
	decided, renewed := make(chan struct{}), make([]bool, len(due))
	defer close(decided)
	if len(parts) == 1 {
		note(verdicts, parts[0], r.send(ctx, parts[0]))
	} else {
		r.atOnce(ctx, parts, verdicts, decided, renewed)
	}
	errs := make([]error, len(due))
	silent := false
	for i := range verdicts {
		errs[i] = verdicts[i].outcome()
		renewed[i] = errs[i] == nil
		_, found := errs[i].(lua.Left)
		silent = silent || errs[i] != nil && errs[i] != ErrRefused && !found
	}
	if silent {
		reload()
	}
	return errs
}

// byNode groups renewals by the serving node.
func byNode(ctx context.Context, due [][]Renewal, verdicts []verdict) []*part {
	parts := make(map[node]*part)
	var all []*part
	for i, lease := range due {
		for _, r := range lease {
			at := node{rdb: r.RDB}
			if cluster, ok := r.RDB.(*redis.ClusterClient); ok {
				// After an error the master is nil: all such renewals are one part, and the
				// part's pipeline gets the error.
				if master, err := cluster.MasterForKey(ctx, r.Grant.Key); err == nil {
					at.master = master
				}
			}
			p := parts[at]
			if p == nil {
				p = &part{rdb: r.RDB, node: at}
				parts[at], all = p, append(all, p)
			}
			p.quorum = p.quorum || len(lease) > 1
			p.of, p.renewals, p.shares = append(p.of, i), append(p.renewals, r.Renewal), append(p.shares, r)
			verdicts[i].asked++
		}
	}
	return all
}

// atOnce asks several nodes at once, until the answers settle all leases or ctx ends. After the
// close of decided, renewed marks the renewed leases: a missing share of such a lease is taken
// again.
func (r Renewer) atOnce(ctx context.Context, parts []*part, verdicts []verdict, decided <-chan struct{}, renewed []bool) {
	type answer struct {
		part *part
		errs []error
	}
	answers := make(chan answer, len(parts))
	own, cancel := outlast(ctx)
	stop := context.AfterFunc(ctx, cancel)
	defer func() {
		if stop() {
			time.AfterFunc(sendGrace, cancel)
		}
	}()
	for _, p := range parts {
		r.Background(func() {
			began := time.Now()
			errs := r.send(own, p)
			answers <- answer{p, errs}
			r.shares(own, p, errs, time.Since(began), decided, renewed)
		})
	}
	for range parts {
		select {
		case a := <-answers:
			note(verdicts, a.part, a.errs)
			for _, lease := range a.part.of {
				if verdicts[lease].outcome() == ErrRefused {
					r.Gone(lease)
				}
			}
		case <-ctx.Done():
			return
		}
		open := false
		for i := range verdicts {
			open = open || !verdicts[i].settled()
		}
		if !open {
			return
		}
	}
}

// sendGrace is the time that is left, after the answers have settled all leases, to send the renewals that are not sent yet.
// Without it, one share of a lock could be lost to nothing but the order in which goroutines run:
//
//	0 ms    Renew starts a goroutine for each of a, b, c
//	0.1 ms  a and b have answered, so the lease is renewed and the request of the watchdog ends
//	0.2 ms  the goroutine for c runs for the first time
//
// If it took the end of the watchdog's request for its own, it would send nothing, here and at the next renewals.
const sendGrace = 100 * time.Millisecond

// outlast returns a context with the deadline of ctx, which does not end when ctx is cancelled.
func outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	own := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(own, deadline)
	}
	return context.WithCancel(own)
}

// shares passes the answers of one node, and the time taken, to the kinds of quorum locks.
func (r Renewer) shares(ctx context.Context, p *part, errs []error, took time.Duration, decided <-chan struct{}, renewed []bool) {
	for n, err := range errs {
		share := p.shares[n]
		if share.Retake == nil {
			continue
		}
		if share.Heard(err, took); err != lua.ErrNotOwner {
			continue
		}
		if <-decided; renewed[p.of[n]] {
			share.Retake(context.WithoutCancel(ctx), func() bool { return r.Held(p.of[n]) })
		}
	}
}

// send asks one node, as soon as the node has a place for a further pipeline. A part of a quorum
// does not wait for a place: after the answers of the remaining servers the part would not be sent
// any more, and a slow server would lose the share of the lock.
func (r Renewer) send(ctx context.Context, p *part) []error {
	if !p.quorum {
		release := r.Places.take(ctx, p.node)
		if release == nil {
			return slices.Repeat([]error{request.ErrCrowded}, len(p.renewals))
		}
		defer release()
	}
	for stale := (request.Stale{}); ; {
		errs := r.race(ctx, p)
		again := slices.ContainsFunc(errs, func(err error) bool { return stale.Again(p.rdb, err) })
		if !again || ctx.Err() != nil {
			return errs
		}
	}
}

// race asks one node, and asks by further connections if there is no answer.
func (r Renewer) race(ctx context.Context, p *part) []error {
	rdb := p.rdb
	if master, ok := p.node.master.(*redis.Client); ok {
		rdb = master
	}
	type answers struct{ errs []error }
	ask := func(ctx context.Context, by redis.UniversalClient) (*answers, error) {
		by, errorOf := request.Noting(by)
		errs := lua.Renew(ctx, by, p.renewals)
		for i, err := range errs {
			if o, _ := Classify(err); o != request.Answered {
				errs[i] = errorOf(err)
			}
		}
		return &answers{errs}, silence(errs)
	}
	a, err := request.Race(ctx, r.Copies, func() (*answers, error) { return ask(ctx, p.rdb) },
		func(ctx context.Context, n int) (*answers, error) {
			lane, err := r.Copies.Lane(ctx, rdb, n)
			if err != nil {
				return nil, err
			}
			return ask(ctx, lane)
		})
	if a == nil { // a hook of the client has ended the goroutine
		return slices.Repeat([]error{err}, len(p.renewals))
	}
	return a.errs
}

// silence is the first error if the node has answered nothing, else nil. A redirection is no answer: a
// copy asks one node of a cluster.
func silence(errs []error) error {
	for _, err := range errs {
		_, left := err.(lua.Left)
		_, moved := redis.IsMovedError(err)
		if o, _ := Classify(err); o == request.Answered || left || request.IsAnswer(err) && !moved {
			return nil
		}
	}
	return fmt.Errorf("no renewal was answered: %w", errs[0])
}

// note adds the answers of one node.
func note(verdicts []verdict, p *part, errs []error) {
	for n, err := range errs {
		switch v := &verdicts[p.of[n]]; err {
		case nil:
			v.renewed++
		case lua.ErrNotOwner:
			v.refused++
		default:
			v.failed, v.err = v.failed+1, err
		}
	}
}
