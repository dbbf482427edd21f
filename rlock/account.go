package rlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/request"
)

// starts notes the beginning of a call that wants the lock. The context that it returns is for
// the requests of the call.
func (l *Lock) starts(ctx context.Context) (context.Context, time.Time) {
	l.queues.counters.kinds[l.kind].started.Add(1)
	return l.client.traceStart(ctx, l.name, l.kind), time.Now()
}

// ends notes the end of such a call, with a hold or an error. w is its waiter, nil if it has not
// queued. It is called last, when no other goroutine waits for the caller.
//
// A hold is an acquisition as soon as it is counted here, and its end is counted from then on. So a
// member of a multi lock is none, as nobody calls ends for it. The grant may be lost before:
//
//	start ─► lose counts no acquisition ─► ends finds the grant lost, and counts the loss
func (l *Lock) ends(ctx context.Context, began time.Time, hold *Hold, err error, w *waiter) {
	n, o, waited := &l.queues.counters, nestedOutcome, time.Duration(0)
	switch {
	case hold == nil:
		o, waited = failure(err), time.Since(began)
	case hold.parent != nil || hold.grant.lock.joined():
		waited = time.Since(began)
	default: // to read the clock once more would double the cost of this function
		g := hold.grant
		g.mu.Lock()
		hold.counts = true
		lostBefore := g.state == lost
		waited = max(g.began.Sub(began), 0) // a reader joins a grant that may be older
		g.mu.Unlock()
		if o = acquiredOutcome; g.run.count > 0 {
			o = handedOffOutcome
		}
		if lostBefore {
			n.kinds[l.kind].lost.Add(1)
			n.holds.observe(time.Since(began) - waited)
		}
	}
	n.called(l.kind, o, waited)
	if w != nil && w.slept() {
		n.woken(w.course.by)
	}
	if l.client.opts.Trace.Acquired == nil {
		return
	}
	a := Acquisition{Outcome: o.name(), Waited: waited, Err: err}
	if hold != nil {
		a.Owner, a.Token = hold.Owner(), hold.Token()
	}
	if w != nil {
		a.Contended, a.Tries, a.Wakeups = w.slept(), w.course.tries, w.course.by
	}
	l.client.traceAcquired(ctx, l.name, l.kind, a)
}

// failure is the outcome of a call that has failed. If the caller has cancelled it, that is the
// outcome, whatever Redis or another holder did.
func failure(err error) outcomeNumber {
	switch {
	case errors.Is(err, context.Canceled):
		return canceledOutcome
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrNotReplicated): // without replicas nobody gets the lock
		return unavailableOutcome
	case errors.Is(err, ErrNotAcquired):
		return busyOutcome
	}
	return errorOutcome
}

// traceStart calls Trace.Start.
func (c *Client) traceStart(ctx context.Context, name string, kind kindNumber) context.Context {
	started := ctx
	if f := c.opts.Trace.Start; f != nil {
		c.observe(func() { started = f(ctx, Attempt{name, kind.name()}) })
	}
	if started == nil {
		return ctx
	}
	return started
}

// traceAcquired calls Trace.Acquired.
func (c *Client) traceAcquired(ctx context.Context, name string, kind kindNumber, a Acquisition) {
	a.Lock, a.Kind = name, kind.name()
	c.observe(func() { c.opts.Trace.Acquired(ctx, a) })
}

// reportWaiting notes that a request was refused.
func (l *Lock) reportWaiting(ctx context.Context, refusal *NotAcquiredError) {
	l.client.records.Notice()
	if f := l.client.opts.Trace.Waiting; f != nil {
		r := Refusal{l.name, l.kind.name(), refusal.Holder, refusal.TTL, time.Now()}
		l.client.report(func() { f(ctx, r) })
	}
}

// countReleased notes that so many acquisitions of a grant have ended at end, by an Unlock.
func (g *grant) countReleased(ctx context.Context, acquisitions int, end time.Time, err error) {
	if acquisitions == 0 {
		return
	}
	o := OutcomeReleased
	if err != nil {
		o = OutcomeUnavailable
	}
	l := g.lock
	l.client.countReleased(ctx, &l.queues.counters, l.kind, acquisitions, Release{
		Lock: l.name, Owner: g.owner, Token: g.token, Outcome: o, Held: end.Sub(g.began), HandedOff: g.run.count > 0,
	})
}

func (c *Client) countReleased(ctx context.Context, n *counters, kind kindNumber, acquisitions int, r Release) {
	if k := &n.kinds[kind]; r.Outcome == OutcomeLost {
		k.lost.Add(int64(acquisitions))
	} else {
		k.released.Add(int64(acquisitions))
	}
	for range acquisitions {
		n.holds.observe(r.Held)
		if f := c.opts.Trace.Released; f != nil {
			r.Kind = kind.name()
			c.observe(func() { f(context.WithoutCancel(ctx), r) })
		}
	}
}

// reportLost reports the loss of the grant, and counts it for so many acquisitions.
func (g *grant) reportLost(err *LostError, acquisitions int) {
	l, held := g.lock, time.Duration(0)
	if !g.began.IsZero() { // as it is while the lock is kept
		held = time.Since(g.began)
	}
	cause := lapsed
	switch {
	case errors.Is(err.Err, errGone), err.Err == errHolderEnded:
		cause = gone
	case errors.Is(err.Err, ErrClosed):
		cause = closedUnder
	case errors.Is(err.Err, errFixedOver):
		cause = fixedOver
	}
	n := &l.queues.counters
	n.losses[cause].Add(int64(max(acquisitions, 1))) // a member of a multi lock has no acquisition, but its loss counts
	n.kinds[l.kind].lost.Add(int64(acquisitions))
	for range acquisitions {
		n.holds.observe(held)
	}
	l.client.reportLost(err)
	if cause != closedUnder { // the record goes, and the lock is held until its lease ends
		l.client.records.lost(g, cause.name())
	}
	if f := l.client.opts.Trace.Lost; f != nil {
		loss := Loss{l.name, l.kind.name(), cause.name(), held, err}
		l.client.report(func() { f(loss) })
	}
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

// report has a function of the trace called for somebody on whom other locks depend.
func (c *Client) report(call func()) {
	c.reports.Do(func() { c.observe(call) })
}

// LogValue is the lock, in the log lines of the watchdog.
func (g *grant) LogValue() slog.Value { return slog.StringValue(g.lock.name) }

func (c *Client) reportLost(err *LostError) {
	attrs := []any{"lock", err.Name, "owner", err.Owner, "error", err.Err}
	if err.Token != 0 {
		attrs = append(attrs, "token", err.Token)
	}
	if errors.Is(err.Err, ErrClosed) {
		c.log.Warn("rlock: the client was closed before the lock was unlocked; its lease is not renewed any more", attrs...)
	} else {
		c.log.Warn("rlock: lease lost", attrs...)
	}
}

// warnUnannounced says that the server refuses to announce a release. Whoever polls for a lock
// expects that.
func (c *Client) warnUnannounced(l *Lock, refusal error) {
	if l.terms.polls {
		return
	}
	c.warnPublish.Do(func() {
		c.log.Warn("rlock: the server refuses to announce releases; who waits elsewhere notices them when it asks again: allow it, see rlock doctor",
			"lock", l.name, "error", refusal)
	})
}

// warnOwnHolder says that a call waits for longer than a lease because its own client
// holds the lock.
func (c *Client) warnOwnHolder(l *Lock, mine *grant) {
	c.warnOwnWaits.Do(func() {
		c.log.Warn("rlock: a call has waited for longer than a lease for a lock that its own client holds; if it is made by the holder, it waits for itself: under a lock, use the context that Lock returned or Do passed on",
			"lock", l.name, "owner", mine.owner)
	})
}

// warn says that the waiter has waited for longer than a lease: for a grant of its own client,
// mine, or for somebody else. That is said again when a wait of the queue is twice as long.
func (w *waiter) warn(mine *grant) {
	l := w.lock
	if mine != nil {
		l.client.warnOwnHolder(l, mine)
		return
	}
	waited := time.Since(w.since)
	w.lock.queues.mu.Lock()
	refusal, due := w.queue.news.refusal, waited >= 2*w.queue.news.warned
	if due = due && refusal != nil; due {
		w.queue.news.warned = waited
	}
	w.lock.queues.mu.Unlock()
	if due {
		l.client.background(func() { l.client.warnWaiting(l, refusal.Holder, waited) })
	}
}

// warnWaiting says for how long a call has waited for somebody else's lock, and what that client
// tells of itself on the server, if anything.
func (c *Client) warnWaiting(l *Lock, holder string, waited time.Duration) {
	attrs := []any{"lock", l.name, "waited", waited.Round(time.Second)}
	if holder != "" {
		attrs = append(attrs, "owner", holder)
		ctx, cancel := context.WithTimeout(context.Background(), l.bound())
		defer cancel()
		id, _, _ := strings.Cut(holder, ":")
		fields, _ := c.server.RDB.HGetAll(ctx, record.Key(c.opts.Prefix, id)).Result() // without it the owner has to do
		if r := record.Read(fields); len(fields) > 0 {
			attrs = append(attrs, "host", r.Host, "program", r.Program, "pid", r.PID)
			for _, e := range r.Entries {
				if e.Owner == holder && e.Name == l.name && e.Purpose != "" {
					attrs = append(attrs, "purpose", e.Purpose)
				}
			}
		}
	}
	c.log.Warn("rlock: a call has waited for longer than a lease: see rlock inspect", attrs...)
}

// Stats returns what the client has counted so far. It sends nothing, and may be called
// at any time and by any number of goroutines; the mutexes of the queues are held for as long
// as it takes to look at each lock that is in use. What is counted meanwhile may be in one
// of its numbers and not in another; when nothing is under way they agree.
//
// One line publishes it with package expvar:
//
//	expvar.Publish("rlock", expvar.Func(func() any { return client.Stats() }))
func (c *Client) Stats() Stats {
	s := Stats{Losses: make(map[LossCause]int64)}
	now := time.Now()
	for i := range c.queues.shards {
		c.queues.shards[i].counters.addTo(&s)
		wait, hold := c.queues.shards[i].oldest(now)
		s.OldestWait, s.OldestHold = max(s.OldestWait, wait), max(s.OldestHold, hold)
	}
	c.joins.counters.addTo(&s) // losses
	for n := range kinds {
		if sum := c.kindStats(n); sum != nil {
			s.Kinds = append(s.Kinds, *sum)
		}
	}
	return s
}

// kindStats sums up what was counted of one kind, nil if that is nothing. Ends are read
// before beginnings, so that none is missing that belongs to an end.
func (c *Client) kindStats(number kindNumber) *KindStats {
	s := &KindStats{Kind: number.name(), Calls: make(map[Outcome]int64)}
	var started, ended int64
	for i := range c.queues.shards {
		n := &c.queues.shards[i].counters.kinds[number]
		s.Released += n.released.Load()
		s.Lost += n.lost.Load()
		for o := range outcomes {
			s.Calls[o.name()] += n.calls[o].Load()
			ended += n.calls[o].Load()
		}
		started += n.started.Load()
	}
	if started == 0 {
		return nil
	}
	s.Held, s.Waiting = max(s.Acquired()-s.Released-s.Lost, 0), max(started-ended, 0)
	return s
}

// Callers returns the contexts of the calls for which go-redis sends a request with ctx,
// as a hook sees it, if that is for several of them: their requests travel together, and
// the context has the values of none. They are those that [Trace].Start has returned; a
// client without it tells nothing. A request of one call has the values of its context.
func Callers(ctx context.Context) []context.Context { return request.Callers(ctx) }

// oldest returns for how long the oldest waiter has waited, and the oldest grant is held.
func (qs *queues) oldest(now time.Time) (wait, hold time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.byKey {
		for _, w := range q.firsts() { // the waiters behind came later
			wait = max(wait, now.Sub(w.since))
		}
		for _, g := range q.grants {
			g.mu.Lock()
			if g.state == owned && !g.began.IsZero() { // as it is while the grant is parked
				hold = max(hold, now.Sub(g.began))
			}
			g.mu.Unlock()
		}
	}
	return wait, hold
}
