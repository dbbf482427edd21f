package rlock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/watchdog"
)

// renew is the watchdog's request. It goes out as one pipeline per node: in
// go-redis that has a connection pool of its own, which the application's
// commands cannot exhaust, and a node that hangs keeps back no answer of another.
func (c *Client) renew(ctx context.Context, due []watchdog.Renewal[*grant]) []error {
	errs := make([]error, len(due))
	parts := c.byNode(ctx, due)
	if len(parts) == 1 {
		c.renewPart(ctx, due, parts[0], errs)
		return errs
	}
	type outcome struct {
		part []int
		errs []error
	}
	outcomes := make(chan outcome, len(parts))
	for _, part := range parts {
		for _, i := range part {
			errs[i] = errNoAnswer
		}
		c.background(func() {
			own := make([]error, len(due)) // errs may be in use by the watchdog when a late part ends
			c.renewPart(ctx, due, part, own)
			outcomes <- outcome{part, own}
		})
	}
	for range parts {
		select {
		case o := <-outcomes:
			for _, i := range o.part {
				errs[i] = o.errs[i]
			}
		case <-ctx.Done():
			return errs
		}
	}
	return errs
}

// byNode groups renewals, by their index in due, by the node that serves them.
func (c *Client) byNode(ctx context.Context, due []watchdog.Renewal[*grant]) [][]int {
	cluster, _ := c.rdb.(*redis.ClusterClient)
	parts := make(map[*redis.Client][]int)
	for i, d := range due {
		var node *redis.Client
		if cluster != nil {
			// An error leaves the renewal in a part of its own: the pipeline then
			// finds out what is the matter.
			node, _ = cluster.MasterForKey(ctx, d.Key.lock.protocol.key())
		}
		parts[node] = append(parts[node], i)
	}
	all := make([][]int, 0, len(parts))
	for _, part := range parts {
		all = append(all, part)
	}
	return all
}

// renewPart renews some of due, and fills in their errors.
func (c *Client) renewPart(ctx context.Context, due []watchdog.Renewal[*grant], part []int, errs []error) {
	sent := time.Now()
	renewals := make([]lua.Renewal, len(part))
	for n, i := range part {
		renewals[n] = due[i].Key.lock.protocol.renewal(due[i].Key.owner, due[i].Duration)
	}
	for n, err := range lua.Renew(ctx, c.rdb, renewals) {
		d := due[part[n]]
		switch {
		case err == lua.ErrNotOwner:
			err = watchdog.ErrRefused
		case err == nil && c.opts.Trace.Renewed != nil:
			until := watchdog.Until(sent, d.Duration)
			if now := d.Key.until(); now.After(until) { // a longer lease was asked for before
				until = now
			}
			c.observe(func() { c.opts.Trace.Renewed(d.Key.lock.name, until) })
		}
		errs[part[n]] = err
	}
}
