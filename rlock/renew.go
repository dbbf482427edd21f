package rlock

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/watchdog"
)

// renew is the watchdog's request.
func (c *Client) renew(ctx context.Context, due []watchdog.Renewal[*grant]) []error {
	sent := time.Now()
	leases := make([][]kind.Renewal, len(due))
	for i, d := range due {
		leases[i] = d.Key.lock.wire.Renewals(d.Key.owner, d.Duration)
	}
	c.records.Notice() // these holds are long

	// A hanging node must not keep back the answers of another.
	gone := func(lease int) { due[lease].Key.lose(watchdog.ErrRefused) }
	held := func(lease int) bool { return due[lease].Key.owned() }
	errs := kind.Renewer{Background: c.background, Reload: c.reloads.Reload, Gone: gone, Held: held, Places: &c.places, Copies: &c.copies}.Renew(ctx, leases)
	for i, err := range errs {
		switch left, found := err.(lua.Left); {
		case err == nil:
			c.reportRenewed(due[i], sent)
		case err == kind.ErrRefused:
			errs[i] = watchdog.ErrRefused
		case found: // a joined lease is renewed by the holder
			errs[i] = watchdog.Left(left)
		default:
			c.reportNotRenewed(due[i].Key, err)
		}
	}
	return errs
}

func (c *Client) reportRenewed(d watchdog.Renewal[*grant], sent time.Time) {
	l, before := d.Key.lock, d.Key.until()
	margin := max(time.Until(before), 0)
	n := l.counters
	n.renewals.Add(1)
	n.margins.observe(margin)
	n.shares.observe(min(float64(margin)/float64(d.Before), 1)) // a longer lease may have been asked for before
	f := c.opts.Trace.Renewed
	if f == nil {
		return
	}
	until := watchdog.Until(sent, d.Duration)
	if before.After(until) { // a longer lease was asked for before
		until = before
	}
	c.report(func() { f(Renewal{l.name, l.kind.name(), d.Key.owner, d.Key.token, until, margin, d.Before}) })
}

// reportNotRenewed tells of an attempt of unknown outcome, unless the grant has ended
// meanwhile.
func (c *Client) reportNotRenewed(g *grant, err error) {
	f := c.opts.Trace.NotRenewed
	if f == nil {
		return
	}
	if l := g.lock; g.owned() {
		until := g.entry.Until()
		c.report(func() { f(FailedRenewal{l.name, l.kind.name(), g.owner, g.token, until, err}) })
	}
}

// owned reports whether the grant has not ended.
func (g *grant) owned() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state == owned
}
