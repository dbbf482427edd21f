package pubsub

import (
	"context"
	"slices"
	"time"
)

const (
	patience  = 8 // intervals without an answer until a connection is given up
	maxProbes = 3 // in that time: after 1, 2 and 4 of them
	reprobe   = 4 // intervals until the next probe, whatever is heard
	inquiries = 2 // per interval, about who is in charge in place of a server that is silent
	samples   = 8 // channels, by which to tell
)

// watch returns when the connection has been given up, or has to be because the
// server is silent.
func (c *conn) watch() error {
	interval := c.hub.opts.ProbeInterval
	timer := time.NewTimer(interval / 10) // then is the first probe, and what it counts is a standard for the next
	defer timer.Stop()
	var probed, due, inquired time.Duration // since began, like heard
	probes, unheard := 0, 0                 // all, and those without an answer
	for {
		select {
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		case <-timer.C: // late, if the process stood still: a probe more, no verdict
		}
		now, heard := time.Since(c.began), time.Duration(c.heard.Load())
		if heard >= probed {
			unheard = 0
		}
		awaited, unanswered := c.state()
		switch {
		case unheard == maxProbes && now >= due, unanswered >= patience*interval:
			return errSilent
		case !awaited:
			timer.Reset(interval)
		case probes > 0 && unheard == 0 && now-heard < interval && now-probed < reprobe*interval:
			timer.Reset(interval - (now - heard))
		default:
			if probes < 2 || unheard > 0 || now-inquired >= patience*interval {
				c.inquire()
				inquired = now
			}
			if unheard == 0 || now >= due {
				c.hub.wg.Go(c.probe)
				probed, due = now, now+interval<<unheard
				probes++
				unheard++
			}
			if unheard == 1 && heard > 0 { // nothing is wrong yet
				timer.Reset(interval)
			} else {
				timer.Reset(interval / inquiries)
			}
		}
	}
}

// state reports whether anybody waits for a message, and how long the oldest
// request has been waiting for its answer. Traffic alone does not prove that
// requests get through: a probe takes another way to the server.
func (c *conn) state() (awaited bool, unanswered time.Duration) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	for _, ch := range c.node.channels {
		if awaited = ch.occupied(); awaited {
			break
		}
	}
	if len(c.pending) > 0 {
		unanswered = time.Since(c.pending[0].at)
	}
	return awaited, unanswered
}

// probe finds out whether this is still the right server, as far as is known, and
// causes traffic. It has half of the patience, so that a Source which has to try
// something else can do so while an answer still counts.
func (c *conn) probe() {
	c.verify()
	c.hub.mu.Lock()
	src := c.src
	c.hub.mu.Unlock()
	if src == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, patience/2*c.hub.opts.ProbeInterval)
	defer cancel()
	if err := src.Probe(ctx); err != nil {
		c.giveUp(err)
	}
}

// inquire asks anew who is in charge: when a connection is young, because what was
// known when it was opened may have been old; while the server is silent, because
// it may have been replaced; and every now and then, because a server that is cut
// off does not know that it was.
func (c *conn) inquire() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	c.hub.inquire()
}

// verify gives the connection up if another server is in charge, as far as is known.
// A few channels are asked about, because one that has moved does not take the
// others with it.
func (c *conn) verify() {
	var names []string
	c.hub.mu.Lock()
	for name := range c.node.channels {
		if names = append(names, name); len(names) == samples {
			break
		}
	}
	c.hub.mu.Unlock()
	here := func(name string) bool {
		server, err := c.hub.servers.Find(c.ctx, name)
		return err != nil || server == c.node.name
	}
	if len(names) > 0 && !slices.ContainsFunc(names, here) {
		c.giveUp(errElsewhere)
	}
}
