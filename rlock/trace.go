package rlock

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Trace is told what happens to the locks of a client: for metrics, progress
// lines and tests. Unset functions cost nothing. They are called without any mutex
// held, possibly several at once. Acquired and Released are called by the goroutine
// that locks or unlocks, which waits for them. Waiting, Renewed and Lost are called a
// little later, in the order in which it happened, by a goroutine that also writes the
// log: no lock depends on it, but as long as one of them, or the Logger, does not
// return, nothing else is told. Up to 8,192 reports wait for it, and the log
// says how many were dropped beyond that. [Client.Close] waits for them, and so must
// not be called by them. A function that panics is logged and otherwise ignored.
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
			c.log.Error("rlock: trace function panicked", "panic", fmt.Sprint(v))
		}
	}()
	call()
}

// tell has a function of the trace called for somebody on whom other locks depend.
func (c *Client) tell(call func()) {
	c.reports.Do(func() { c.observe(call) })
}

// dropped says how much the user was not told.
func (c *Client) dropped(n int) {
	c.opts.Logger.Warn("rlock: what there was to report was too much for Logger and Trace, or they took too long", "dropped", n)
}

// LogValue is the lock, in the log lines of the watchdog.
func (g *grant) LogValue() slog.Value { return slog.StringValue(g.lock.name) }

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
	attrs := []any{"lock", err.Name, "error", err.Err}
	if err.Token != 0 {
		attrs = append(attrs, "token", err.Token)
	}
	if errors.Is(err.Err, ErrClosed) {
		c.log.Warn("rlock: the client was closed before the lock was unlocked; its lease is not renewed any more", attrs...)
	} else {
		c.log.Warn("rlock: lease lost", attrs...)
	}
	if f := c.opts.Trace.Lost; f != nil {
		c.tell(func() { f(err) })
	}
}

// warnings are given once.
type warnings struct {
	publish sync.Once // a refused PUBLISH
	holder  sync.Once // a client that waits for itself
}

// warnOwnHolder says that a call waits for longer than a lease because its own client
// holds the lock.
func (c *Client) warnOwnHolder(l *Lock, mine *grant) {
	c.warnings.holder.Do(func() {
		c.log.Warn("rlock: a call has waited for longer than a lease for a lock that its own client holds; if it is made by the holder, it waits for itself: under a lock, use the context that Lock returned or Do passed on",
			"lock", l.name, "owner", mine.owner)
	})
}
