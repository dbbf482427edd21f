package rlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/trace"
	"slices"
	"strings"
	"time"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/request"
)

// starts notes the beginning of a call for the lock.
func (l *Lock) starts(wait context.Context) *waiter {
	region := trace.StartRegion(wait, "rlock.acquire")
	l.counters.kinds[l.kind].started.Add(1)
	if l.client.opts.Trace.Start != nil {
		wait = l.client.traceStart(wait, l.name, l.kind)
	}
	w := l.client.calls.Get().(*waiter)
	*w = waiter{lock: l, ctx: wait, since: time.Now(), region: region}
	return w
}

// ends notes the end of such a call, with a hold or an error. ends is called last, when no
// goroutine waits for the caller.
//
// A hold is an acquisition from the moment in which it is taken, and so has a counted end even if the grant is lost
// before ends counts the call. The members of a multi lock are no acquisitions.
func (w *waiter) ends(ctx context.Context, hold *Hold, err error) error {
	if w.served != nil { // it has slept
		w.lock.counters.woken(w.course.by)
	}
	if w.region == nil { // a member of a multi lock
		return err
	}
	w.region.End()
	l, began := w.lock, w.since
	n, o, waited := l.counters, nestedOutcome, time.Duration(0)
	switch {
	case hold == nil:
		err = ownHolder(ctx, err)
		o, waited = failure(err), time.Since(began)
	case hold.parent != nil || hold.grant.lock.joined:
		waited = time.Since(began)
	default: // to read the clock once more would double the cost of this function
		waited = max(hold.grant.began.Sub(began), 0) // a reader may join an older grant
		if o = acquiredOutcome; hold.grant.run.count > 0 {
			o = handedOffOutcome
		}
	}
	n.called(l.kind, o, waited)
	f := l.client.opts.Trace.Acquired
	if f == nil {
		return err
	}
	a := Acquisition{Lock: l.name, Kind: l.kind.name(), Outcome: o.name(), Waited: waited, Err: err, Group: l.group.name}
	a.Owner, a.Token = hold.Owner(), hold.Token()
	a.Contended, a.Tries = w.served != nil, w.course.tries
	a.Wakeups = Wakeups{w.course.by[byMessage], w.course.by[byTimer], w.course.by[byReconnect]}
	l.client.observe(func() { f(w.ctx, a) })
	return err
}

// failure is the outcome of a failed call. After a cancellation by the caller, that is the outcome,
// whatever Redis or another holder did.
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

// reportWaiting notes the refusal of a request.
func (l *Lock) reportWaiting(ctx context.Context, refusal *NotAcquiredError) {
	l.client.records.Notice()
	if f := l.client.opts.Trace.Waiting; f != nil {
		r := Refusal{l.name, l.kind.name(), refusal.Holder, refusal.TTL, time.Now()}
		l.client.report(func() { f(ctx, r) })
	}
}

// ended notes the end of the acquisition that ends with h, if any: at end, or now if that is zero, by an Unlock with the
// error err.
func (h *Hold) ended(ctx context.Context, end time.Time, err error) {
	if !h.ends {
		return
	}
	if end.IsZero() {
		end = time.Now()
	}
	g, o := h.grant, OutcomeReleased
	l, held := g.lock, end.Sub(g.began)
	switch {
	case errors.Is(err, ErrLeaseLost): // the trace has been told, by reportLost
		l.counters.kinds[l.kind].lost.Add(1)
		l.counters.holds.observe(held)
		return
	case err != nil:
		o = OutcomeUnavailable
	}
	l.client.countReleased(ctx, l.counters, l.kind, Release{
		Lock: l.name, Owner: g.owner, Token: g.token, Outcome: o, Held: held, HandedOff: g.run.count > 0, Group: l.group.name,
	})
}

// countReleased notes the end of an acquisition of a lock or a multi lock.
func (c *Client) countReleased(ctx context.Context, n *counters, kind kindNumber, r Release) {
	if k := &n.kinds[kind]; r.Outcome == OutcomeLost {
		k.lost.Add(1)
	} else {
		k.released.Add(1)
	}
	n.holds.observe(r.Held)
	if f := c.opts.Trace.Released; f != nil {
		r.Kind = kind.name()
		c.observe(func() { f(context.WithoutCancel(ctx), r) })
	}
}

// reportLost reports the loss of the grant, and counts the loss for so many acquisitions.
func (g *grant) reportLost(err *LostError, acquisitions int) {
	l, held := g.lock, time.Duration(0)
	if !g.began.IsZero() { // zero while the lock is kept
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
	case errors.Is(err.Err, ErrHeldTooLong), errors.Is(err.Err, ErrNoProgress):
		cause = limitOver
	}
	n := l.counters
	n.losses[cause].Add(int64(max(acquisitions, 1))) // a member of a multi lock has no acquisition, but the loss counts
	n.kinds[l.kind].lost.Add(int64(acquisitions))
	for range acquisitions {
		n.holds.observe(held)
	}
	attrs := []any{"lock", err.Name, "owner", err.Owner, "error", err.Err}
	if err.Token != 0 {
		attrs = append(attrs, "token", err.Token)
	}
	if cause == closedUnder {
		l.client.log.Warn("rlock: the client was closed before the lock was unlocked; its lease is not renewed any more", attrs...)
	} else { // after Close the record goes, and the lock is held until the lease ends
		l.client.log.Warn("rlock: lease lost", attrs...)
		l.client.records.lost(g, cause.name())
	}
	if f := l.client.opts.Trace.Lost; f != nil {
		loss := Loss{l.name, l.kind.name(), cause.name(), held, err, l.group.name}
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

// report has a function of the trace called by the goroutine for reports: locks depend on the caller.
func (c *Client) report(call func()) {
	c.reports.Do(func() { c.observe(call) })
}

// LogValue is the lock, in the log lines of the watchdog.
func (g *grant) LogValue() slog.Value { return slog.StringValue(g.lock.name) }

// warn says that the waiter has waited for longer than a lease: for a grant of its own client,
// mine, or for somebody else. The log says so again when a wait of the queue is twice as long. queues.mu is held.
func (w *waiter) warn(mine *grant) {
	l := w.lock
	if mine != nil {
		l.client.warnOwnWaits.Do(func() {
			l.client.log.Warn("rlock: a call has waited for longer than a lease for a lock that its own client holds; if it is made by the holder, it waits for itself: under a lock, use the context that Lock returned or Do passed on",
				"lock", l.name, "owner", mine.owner)
		})
		return
	}
	waited := time.Since(w.since)
	n := &w.asker.queue.news
	refusal := n.refusal
	if refusal != nil && waited >= 2*n.warned && l.client.mayWarn() {
		n.warned = waited
		l.client.background(func() { l.client.warnWaiting(l, refusal.Holder, waited) })
	}
}

// mayWarn reports whether a long wait can be logged now: one in a second, because each line costs a look at a record
// of up to 1000 locks. If a client waits for thousands of locks, all of their waits become long at the same time. A
// wait that is not logged now can be logged when its asker wakes up next.
func (c *Client) mayWarn() bool {
	now, newest := time.Now().UnixMilli(), c.warnedAt.Load()
	return now-newest >= time.Second.Milliseconds() && c.warnedAt.CompareAndSwap(newest, now)
}

// warnWaiting says for how long a call has waited for somebody else's lock, with that client's
// record on the server, if any.
func (c *Client) warnWaiting(l *Lock, holder string, waited time.Duration) {
	attrs := []any{"lock", l.name, "waited", waited.Round(time.Second)}
	if holder != "" {
		attrs = append(attrs, "owner", holder)
		ctx, cancel := context.WithTimeout(context.Background(), l.bound)
		defer cancel()
		id, _, _ := strings.Cut(holder, ":")
		fields, _ := c.server.RDB.HGetAll(ctx, record.Key(c.opts.Prefix, id)).Result() // without a record, the owner has to do
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

// Stats returns the client's counts so far. It sends nothing to Redis, and is safe for concurrent use.
// While it reads the locks in use, lock calls can be delayed for a very short time. If an event happens
// during the call, it may be contained in only some of the counts. If nothing happens, all counts are
// consistent.
//
// To publish the counts with package expvar:
//
//	expvar.Publish("rlock", expvar.Func(func() any { return client.Stats() }))
func (c *Client) Stats() Stats {
	all := slices.Collect(maps.Values(*c.groups.all.Load()))
	s := sum(all...)
	if c.opts.Group != nil {
		s.Groups = make(map[string]GroupStats)
		for _, g := range all {
			if part := sum(g); len(part.Kinds) > 0 {
				s.Groups[g.name] = GroupStats{part.Kinds, part.Waits, part.FailedWaits, part.Holds}
			}
		}
	}
	now := time.Now()
	for i := range c.queues.shards {
		wait, hold := c.queues.shards[i].oldest(now)
		s.OldestWait, s.OldestHold = max(s.OldestWait, wait), max(s.OldestHold, hold)
	}
	return s
}

// sum sums up the counts of groups.
func sum(of ...*group) Stats {
	s := Stats{Losses: make(map[LossCause]int64)}
	for _, g := range of {
		for i := range g.counters {
			g.counters[i].addTo(&s)
		}
	}
	for n := range kinds {
		if k := sumOfKind(n, of); k != nil {
			s.Kinds = append(s.Kinds, *k)
		}
	}
	return s
}

// sumOfKind sums up the counts of a kind, nil without any. Ends are read before beginnings: no end lacks
// a beginning.
func sumOfKind(number kindNumber, of []*group) *KindStats {
	s := &KindStats{Kind: number.name(), Calls: make(map[Outcome]int64)}
	var started, ended int64
	for _, g := range of {
		for i := range g.counters {
			n := &g.counters[i].kinds[number]
			s.Released += n.released.Load()
			s.Lost += n.lost.Load()
			for o := range outcomes {
				s.Calls[o.name()] += n.calls[o].Load()
				ended += n.calls[o].Load()
			}
			started += n.started.Load()
		}
	}
	if started == 0 {
		return nil
	}
	s.Held, s.Waiting = max(s.Acquired()-s.Released-s.Lost, 0), max(started-ended, 0)
	return s
}

// Callers is for hooks of go-redis. One request can serve several lock calls, and the context of such a
// request has the values of none of them. For the context of such a request, Callers returns the
// contexts of these calls. Each is the context that Start in [Trace] has returned for the call. If
// there is no Start function, Callers returns nil. A request for a single call has the values of the
// context of that call, and Callers returns nil.
func Callers(ctx context.Context) []context.Context { return request.Callers(ctx) }

// oldest returns for how long the oldest waiter has waited, and the oldest grant is held.
func (qs *queues) oldest(now time.Time) (wait, hold time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.byKey {
		for _, a := range q.askers {
			if a.asking && a.cancel == nil { // a call that asks by itself
				wait = max(wait, now.Sub(a.since))
			}
			if a.first != nil { // the waiters behind came later
				wait = max(wait, now.Sub(a.first.since))
			}
		}
		for _, g := range q.grants {
			g.mu.Lock()
			if g.state == owned && !g.began.IsZero() { // zero while the grant is parked
				hold = max(hold, now.Sub(g.began))
			}
			g.mu.Unlock()
		}
	}
	return wait, hold
}
