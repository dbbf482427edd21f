package rlock

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/watchdog"
)

var errNoMajority = errors.New("fewer than half of the servers have renewed the lease")

// part is what one server node is asked to renew, in one pipeline: in go-redis
// that has a connection pool of its own, which the application's commands cannot
// exhaust, and a node that hangs keeps back no answer of another.
type part struct {
	rdb      redis.UniversalClient
	of       []int // index of the lease that each of renewals is for
	renewals []lua.Renewal
}

// verdict is what the servers have said about one lease so far.
type verdict struct {
	asked, renewed, refused, failed int
	err                             error // the newest failure
}

// settled tells whether further answers cannot change the outcome.
func (v *verdict) settled() bool {
	return v.renewed > v.asked/2 || v.refused > v.asked/2 || v.renewed+v.refused+v.failed == v.asked
}

func (v *verdict) outcome() error {
	switch {
	case v.renewed > v.asked/2:
		return nil
	case v.refused > v.asked/2:
		return watchdog.ErrRefused
	case v.err != nil:
		return v.err
	case v.renewed+v.refused == v.asked:
		return errNoMajority
	}
	return errNoAnswer
}

// renew is the watchdog's request.
func (c *Client) renew(ctx context.Context, due []watchdog.Renewal[*grant]) []error {
	sent := time.Now()
	verdicts := make([]verdict, len(due))
	parts := c.parts(ctx, due, verdicts)
	// A node that does not answer may be master no more; it may hang for longer.
	defer context.AfterFunc(ctx, func() { c.reloadAll(parts) })()
	if len(parts) == 1 {
		note(verdicts, parts[0], lua.Renew(ctx, parts[0].rdb, parts[0].renewals))
	} else {
		c.renewApart(ctx, parts, verdicts)
	}
	errs := make([]error, len(due))
	silent := false
	for i := range verdicts {
		switch errs[i] = verdicts[i].outcome(); errs[i] {
		case nil:
			c.reportRenewed(due[i], sent)
		case watchdog.ErrRefused:
		default:
			silent = true
		}
	}
	if silent {
		c.reloadAll(parts)
	}
	return errs
}

func (c *Client) reloadAll(parts []*part) {
	for _, p := range parts {
		c.reload(p.rdb)
	}
}

// parts groups renewals by the node that serves them.
func (c *Client) parts(ctx context.Context, due []watchdog.Renewal[*grant], verdicts []verdict) []*part {
	type place struct{ rdb, node any }
	parts := make(map[place]*part)
	var all []*part
	for i, d := range due {
		for _, r := range d.Key.lock.protocol.renewals(d.Key.owner, d.Duration) {
			at := place{rdb: r.rdb}
			if cluster, ok := r.rdb.(*redis.ClusterClient); ok {
				// An error leaves the renewal in a part of its own: the pipeline
				// then finds out what is the matter.
				if node, err := cluster.MasterForKey(ctx, r.Grant.Key); err == nil {
					at.node = node
				}
			}
			p := parts[at]
			if p == nil {
				p = &part{rdb: r.rdb}
				parts[at], all = p, append(all, p)
			}
			p.of, p.renewals = append(p.of, i), append(p.renewals, r.Renewal)
			verdicts[i].asked++
		}
	}
	return all
}

// renewApart asks several nodes at once, and returns as soon as their answers
// settle all leases, or with ctx.
func (c *Client) renewApart(ctx context.Context, parts []*part, verdicts []verdict) {
	type answer struct {
		part *part
		errs []error
	}
	answers := make(chan answer, len(parts))
	for _, p := range parts {
		c.background(func() { answers <- answer{p, lua.Renew(ctx, p.rdb, p.renewals)} })
	}
	for range parts {
		select {
		case a := <-answers:
			note(verdicts, a.part, a.errs)
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

func (c *Client) reportRenewed(d watchdog.Renewal[*grant], sent time.Time) {
	f := c.opts.Trace.Renewed
	if f == nil || d.Key.pending() { // a place in a queue
		return
	}
	until := watchdog.Until(sent, d.Duration)
	if now := d.Key.until(); now.After(until) { // a longer lease was asked for before
		until = now
	}
	c.observe(func() { f(d.Key.lock.name, until) })
}
