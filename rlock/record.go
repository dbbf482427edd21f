package rlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// Bounds of what a record shows.
const (
	longWait  = time.Second
	longHold  = 10 * time.Second // or a third of the lease, if that is shorter; zero for Identity.Prompt
	maxLosses = 100
)

// records keep the record of a client.
type records struct {
	*record.Writer // nil for an anonymous client

	mu     sync.Mutex // guards losses
	losses []record.Entry
}

// keepRecords has the client keep a record, unless it is anonymous.
func (c *Client) keepRecords() {
	id, started := c.opts.Identity, time.Now()
	if id.anonymous {
		return
	}
	c.records.Writer = record.NewWriter(record.Source{
		Who:  func() record.Who { return id.who(started) },
		Take: c.snapshot,
		Send: c.sendRecord,
		Final: func(err error) bool {
			_, final := c.classify(err)
			return final && !errors.Is(err, redis.ErrClosed) // which its user did
		},
		Refused: func(err error) {
			c.log.Warn("rlock: the server refuses the record of who this client is: rlock top and inspect will not know; locks are as before: see rlock doctor", "error", err)
		},
	})
}

// sendRecord writes the record, or removes it. Record and list may be on different nodes
// of a cluster, so that is two requests.
func (c *Client) sendRecord(ctx context.Context, r *record.Record) (listed int64, err error) {
	var fields []any
	var lasts time.Duration
	if r != nil {
		fields, lasts = r.Fields(), r.Lasts
	}
	rdb := c.server.RDB
	err = lua.WriteRecord(ctx, rdb, record.Key(c.opts.Prefix, c.id), lasts, fields)
	if o, _ := request.Classify(err); r != nil && o != request.Answered {
		return 0, err
	}
	listed, refusal := lua.Enlist(ctx, rdb, record.List(c.opts.Prefix), c.id, lasts)
	return listed, cmp.Or(err, refusal)
}

// taken is told of a hold that may have to be in the record before the first renewal.
func (r *records) taken(g *grant) {
	if g.run.count == 0 && g.lock.longUnnoticed() {
		r.Notice()
	}
	if g.lock.client.opts.Identity.Prompt {
		r.Hurry()
	}
}

// lost adds a loss to the record.
func (r *records) lost(g *grant, cause LossCause) {
	if r.Writer == nil {
		return
	}
	e := g.recorded(record.Lost, time.Now())
	e.Cause = string(cause)
	r.mu.Lock()
	if len(r.losses) == maxLosses {
		r.losses = slices.Delete(r.losses, 0, 1)
	}
	r.losses = append(r.losses, e)
	r.mu.Unlock()
	r.Notice()
}

// recent returns the losses that a record still shows: those of the time that a record lasts.
func (r *records) recent(now time.Time, lasts time.Duration) []record.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losses = slices.DeleteFunc(r.losses, func(e record.Entry) bool { return now.Sub(e.Since) > lasts })
	return slices.Clone(r.losses)
}

// snapshot is what the record says now: long holds, long waits and losses, one entry of each for
// a name, the oldest first, and the hottest names.
func (c *Client) snapshot(now time.Time, lasts time.Duration) record.Snapshot {
	v := view{now: now, entries: make(map[entryKey]*record.Entry), hot: make(map[string]record.Hot)}
	for i := range c.queues.shards {
		c.queues.shards[i].show(&v)
	}
	for _, e := range c.records.recent(now, lasts) {
		v.add(e)
	}
	s := record.Snapshot{Next: v.next, Hot: v.hottest()}
	if len(v.entries)+len(s.Hot) == 0 {
		return s
	}
	for _, e := range v.entries {
		s.Entries = append(s.Entries, *e)
	}
	slices.SortFunc(s.Entries, func(a, b record.Entry) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.What, b.What))
	})
	stats := c.Stats()
	for i := range stats.Kinds {
		s.Rates.Acquired += stats.Kinds[i].Acquired()
		s.Rates.Lost += stats.Kinds[i].Lost
	}
	return s
}

// view is a snapshot that is being made.
type view struct {
	now     time.Time
	entries map[entryKey]*record.Entry
	next    time.Time // when the next hold or wait becomes a long one
	hot     map[string]record.Hot
}

// entryKey tells the entries of a record apart.
type entryKey struct {
	what record.What
	name string
}

// add adds an entry to those of the same lock.
func (v *view) add(e record.Entry) {
	key := entryKey{e.What, e.Name}
	known := v.entries[key]
	if known == nil {
		v.entries[key] = &e
		return
	}
	merged := *known
	if e.Since.Before(known.Since) {
		merged = e
	}
	merged.Count, merged.Under, merged.Cycle = known.Count+e.Count, known.Under, cmp.Or(known.Cycle, e.Cycle)
	merged.AddUnder(e.Under...)
	*known = merged
}

// long reports whether a hold or wait since then has lasted for bound. If it has not, and
// nothing else will notice when it has, the record is made again at that time.
func (v *view) long(since time.Time, bound time.Duration, unnoticed bool) bool {
	if v.now.Sub(since) >= bound {
		return true
	}
	if at := since.Add(bound); unnoticed && (v.next.IsZero() || at.Before(v.next)) {
		v.next = at
	}
	return false
}

// grant adds a grant if it is held, or kept, for long.
func (v *view) grant(g *grant, what record.What, since time.Time) {
	l := g.lock
	bound := min(l.terms.lease/3, longHold)
	if l.client.opts.Identity.Prompt {
		bound = 0
	}
	renewed := v.now.Sub(since) > bound/2 // the first renewal, which is made a little early, may be why the record is made
	if v.long(since, bound, l.longUnnoticed() || renewed) {
		v.add(g.recorded(what, since))
	}
}

// show adds the long holds and waits of some queues, and their hot names.
func (qs *queues) show(v *view) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, q := range qs.byKey {
		for _, g := range q.grants {
			if since := g.heldSince(); !since.IsZero() { // otherwise it is not taken yet
				v.grant(g, record.Holds, since)
			}
		}
		q.showParked(v)
		for _, a := range q.askers {
			if a.asking && a.cancel == nil && v.long(a.since, longWait, true) { // a call that asks by itself
				v.add(a.lock.entry(record.Waits, "", a.since))
			}
			for w := a.first; w != nil; w = w.next {
				if v.long(w.since, longWait, true) {
					v.add(w.recorded())
				}
			}
			qs.hot.waits(a, v.now)
		}
	}
	qs.hot.show(v)
}

// heldSince returns when the grant, or the newest in its run, was taken; zero if nobody holds it.
func (g *grant) heldSince() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.began
}

// recorded is the entry of a grant. Its purpose is that of a hold, as the grant may
// have been acquired by a waiter with another purpose.
func (g *grant) recorded(what record.What, since time.Time) record.Entry {
	e := g.lock.entry(what, g.owner, since)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.holds) > 0 {
		e.Purpose = g.holds[0].lock.purpose
	}
	return e
}

func (l *Lock) entry(what record.What, owner string, since time.Time) record.Entry {
	return record.Entry{What: what, Name: l.name, Kind: string(l.kind.name()), Purpose: l.purpose, Owner: owner, Since: since, Count: 1}
}
