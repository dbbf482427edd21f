package rlock

import (
	"fmt"
	"time"
)

// Trace is told what happens to the locks of a client: for metrics, progress
// lines and tests. Unset functions cost nothing. They are called by the
// goroutine at work, without any mutex held, possibly several at once; they must
// not block. One that panics is logged and otherwise ignored: an observer must
// not end the renewal of other locks.
type Trace struct {
	// Waiting: an attempt was refused. ttl is what is left of the holder's
	// lease, negative if it has no end.
	Waiting func(name string, ttl time.Duration)
	// Acquired: a grant began, waited after the call.
	Acquired func(name string, waited time.Duration)
	// Renewed: the server has renewed the lease, and the trusted window ends at
	// until as soon as the watchdog has noted it.
	Renewed func(name string, until time.Time)
	// Lost: a grant ended against the holder's will.
	Lost func(err *LostError)
	// Released: a grant ended as its holder wished, held after it began.
	Released func(name string, held time.Duration)
}

// observe calls a function of the trace.
func (c *Client) observe(call func()) {
	defer func() {
		if v := recover(); v != nil {
			c.opts.Logger.Error("rlock: trace function panicked", "panic", fmt.Sprint(v))
		}
	}()
	call()
}

func (l *Lock) reportAcquired(called time.Time) {
	if f := l.client.opts.Trace.Acquired; f != nil {
		l.client.observe(func() { f(l.name, time.Since(called)) })
	}
}

func (g *grant) reportReleased() {
	if f := g.lock.client.opts.Trace.Released; f != nil {
		g.lock.client.observe(func() { f(g.lock.name, time.Since(g.began)) })
	}
}

func (c *Client) reportLost(err *LostError) {
	c.opts.Logger.Warn("rlock: lease lost", "lock", err.Name, "token", err.Token, "err", err.Err)
	if f := c.opts.Trace.Lost; f != nil {
		c.observe(func() { f(err) })
	}
}
