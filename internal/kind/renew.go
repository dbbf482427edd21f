package kind

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// ErrRefused says that the servers, or most of them, know of no such owner.
var ErrRefused = errors.New("the owner holds nothing")

var errNoMajority = errors.New("fewer than half of the servers have renewed the lease")

// node is a server as one client sees it.
type node struct {
	rdb    any
	master any // the node of a cluster; nil if there is none, or if it is not known
}

// part is what one server node is asked to renew, in one pipeline. go-redis has a separate
// connection pool for pipelines, which the application's commands cannot exhaust. A node that
// hangs does not delay what another node says.
type part struct {
	rdb      redis.UniversalClient
	node     node
	quorum   bool  // some of the leases are renewed on other nodes as well
	of       []int // index of the lease that each of renewals is for
	renewals []lua.Renewal
	shares   []Renewal // each of renewals with what its kind is told
}

// verdict is what the servers have said about one lease so far.
type verdict struct {
	asked, renewed, refused, failed int
	err                             error // the newest failure, or lua.Left, which is none
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
	Background func(func())                // runs a function in a goroutine that the client waits for
	Reload     func(redis.UniversalClient) // a server gave no answer: it may be master no more
	Gone       func(lease int)             // called for a lease that is refused while other nodes are still asked, maybe more than once
	Held       func(lease int) bool        // whether a lease is held still; asked before a share is taken again
	Places     *Places                     // of all renewals of the client
}

// Renew makes the renewals of each of several leases, until ctx ends. Its errors are
// those of the leases: nil, [lua.Left] of one that was only confirmed, ErrRefused or
// whatever leaves the outcome unknown.
func (r Renewer) Renew(ctx context.Context, due [][]Renewal) []error {
	verdicts := make([]verdict, len(due))
	parts := byNode(ctx, due, verdicts)
	reload := func() {
		for _, p := range parts {
			r.Reload(p.rdb)
		}
	}
	// A node that does not answer may be master no more; it may hang for longer.
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

// byNode groups renewals by the node that serves them.
func byNode(ctx context.Context, due [][]Renewal, verdicts []verdict) []*part {
	parts := make(map[node]*part)
	var all []*part
	for i, lease := range due {
		for _, r := range lease {
			at := node{rdb: r.RDB}
			if cluster, ok := r.RDB.(*redis.ClusterClient); ok {
				// After an error the master is nil: all such renewals are one part, and its
				// pipeline finds out what is the matter.
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

// atOnce asks several nodes at once. It returns when their answers settle all leases, or when ctx
// ends. When decided is closed, renewed tells which leases were: a missing share of such a lease is
// taken again.
func (r Renewer) atOnce(ctx context.Context, parts []*part, verdicts []verdict, decided <-chan struct{}, renewed []bool) {
	type answer struct {
		part *part
		errs []error
	}
	answers := make(chan answer, len(parts))
	for _, p := range parts {
		r.Background(func() {
			began := time.Now()
			errs := r.send(ctx, p)
			answers <- answer{p, errs}
			r.shares(ctx, p, errs, time.Since(began), decided, renewed)
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

// shares tells the kinds of quorum locks what one node has answered, and after how long.
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

// send asks one node, as soon as there is a place for one more pipeline to it. A part of a quorum
// does not wait for a place: when the other servers have answered it would not be sent any more,
// and a slow server would lose its share of the lock.
func (r Renewer) send(ctx context.Context, p *part) []error {
	if !p.quorum {
		release := r.Places.take(ctx, p.node)
		if release == nil {
			return slices.Repeat([]error{request.ErrCrowded}, len(p.renewals))
		}
		defer release()
	}
	for stale := (request.Stale{}); ; {
		errs := lua.Renew(ctx, p.rdb, p.renewals)
		again := slices.ContainsFunc(errs, func(err error) bool { return stale.Again(p.rdb, err) })
		if !again || ctx.Err() != nil {
			return errs
		}
	}
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
