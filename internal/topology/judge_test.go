package topology

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// figures are those of a kind of blow. What is under must be zero is so in every run.
type figures struct {
	blows                       int
	across, kept, told, unknown int
	waits                       int
	slept                       time.Duration
	lossy                       int
	late, dropped, missed       int // must be zero, up to the end
	violations, withWait, aside int
}

const heading = `| | blows | holds across | renewed | lost, told in their window | no answer to Unlock | waits | longest beside a free lock | two owners, as replication was behind | told late | lost although the new master still knew them | waits beside a free lock of more than 1 s | two owners otherwise | two owners with WithReplicas | bystanders lost |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
`

func (f *figures) row(kind string) string {
	cells := []any{kind, f.blows, f.across, f.kept, f.told, f.unknown, f.waits, f.slept.Round(time.Millisecond), f.lossy, f.late, f.dropped, f.missed, f.violations, f.withWait, f.aside}
	var row strings.Builder
	for _, c := range cells {
		fmt.Fprintf(&row, "| %v ", c)
	}
	return row.String() + "|\n"
}

// judge counts, and returns rows of the table. A blow's time is from its beginning
// to that of the next. The party has ended.
func judge(t *testing.T, p *party, blows []blow) string {
	table := make(map[string]*figures)
	var kinds []string
	end := time.Now()
	for i, b := range blows {
		f := table[b.kind]
		if f == nil {
			f = &figures{}
			table[b.kind] = f
			kinds = append(kinds, b.kind)
		}
		next := end
		if i+1 < len(blows) {
			next = blows[i+1].from
		}
		f.blows++
		c := &court{t: t, party: p, blow: b, next: next, all: blows, name: fmt.Sprintf("%s (%d)", b.kind, i)}
		if c.reachable = b.reachable; c.reachable.IsZero() {
			c.reachable = c.promotion()
		}
		for _, s := range p.subjects {
			c.waits(f, s)
			c.grants(f, s)
		}
	}
	require.NotEmpty(t, kinds)
	var rows strings.Builder
	kept := 0
	for _, kind := range kinds {
		f := table[kind]
		kept += f.kept
		rows.WriteString(f.row(kind))
		assert.Zero(t, f.late+f.dropped+f.missed+f.violations+f.withWait+f.aside, "%s: not everything that must be zero is", kind)
	}
	assert.Positive(t, kept, "nothing was held across a blow")
	return rows.String()
}

// court judges one blow.
type court struct {
	t         *testing.T
	party     *party
	blow      blow
	reachable time.Time // since when clients could find the new master
	next      time.Time
	all       []blow
	name      string
}

// promotion returns when the new master was first seen to serve.
func (c *court) promotion() time.Time {
	for _, s := range c.party.subjects {
		looks := c.party.during(place{c.blow.master, s.name}, c.blow.from, c.next)
		if i := slices.IndexFunc(looks, func(l look) bool { return l.serves }); i >= 0 && !s.bystander {
			return looks[i].ret
		}
	}
	return c.blow.switched
}

// waits judges the waits for a lock. Whenever it is free on the master that clients
// can find, a waiter has a second. The master before that one was looked at as part
// of the blow before. What needs replicas cannot be had until they follow the new
// master.
func (c *court) waits(f *figures, s subject) {
	from := c.reachable
	if s.replicas > 0 {
		from = later(from, c.blow.healed)
	}
	slept := c.party.slept(place{c.blow.master, s.name}, from, c.next)
	f.slept = max(f.slept, slept)
	if slept > prompt {
		f.missed++
		c.t.Logf("%s: somebody waited %v beside the free lock %s", c.name, slept, s.name)
	}
	for _, v := range c.party.vigils {
		if v.lock == s.name && v.granted && v.to.After(c.blow.from) && v.to.Before(c.next) {
			f.waits++
		}
	}
}

// grants judges the grants of a lock that ended in the blow's time.
func (c *court) grants(f *figures, s subject) {
	var before []stay
	for _, st := range c.party.stays {
		if st.lock != s.name {
			continue
		}
		if st.to.After(c.blow.from) && st.to.Before(c.next) {
			if s.bystander && st.lost {
				f.aside++
			}
			if !s.bystander && st.from.Before(c.blow.from) && (st.lost || st.to.After(c.blow.switched)) {
				c.across(f, st)
			}
			for _, other := range before {
				if other.to.After(st.from) && st.to.After(other.from) {
					c.overlap(f, s, other, st)
				}
			}
		}
		before = append(before, st)
	}
}

// across judges a grant from before the blow that ended after it.
func (c *court) across(f *figures, st stay) {
	f.across++
	switch {
	case !st.lost && st.unknown:
		f.unknown++
	case !st.lost:
		f.kept++
	case st.to.After(st.until):
		f.late++
		c.t.Logf("%s: %s was told of the loss of %s %v after its window", c.name, st.owner, st.lock, st.to.Sub(st.until))
	case st.until.Sub(st.to) < closing && c.saw(c.blow.master, st.owner, st.lock, st.to.Add(-blink)) && st.to.After(c.reachable.Add(prompt)):
		// In the second before that, the renewal looks for the new master. If it was the
		// server that said so, before the window closed, what was renewed in vain, on
		// the former master, had expired on this one.
		f.dropped++
		c.t.Logf("%s: %s lost %s %v after the new master could be found, which still knew it", c.name, st.owner, st.lock, st.to.Sub(c.reachable))
	default:
		f.told++
	}
}

// closing is when a holder is told before the end of its window, a tenth of the lease,
// and what a busy machine adds.
const closing = time.Second

// overlap judges two grants of a lock at the same time. It is none of replication's
// doing if a new master knew the first one, unless the second was given by the former
// master: while both served, or after it woke up and until it knew that it was
// replaced, which the others tell it within a second or so. That may be over between
// two looks.
func (c *court) overlap(f *figures, s subject, one, two stay) {
	first, second := one, two
	if two.from.Before(one.from) {
		first, second = two, one
	}
	behind := slices.ContainsFunc(c.all, func(b blow) bool {
		return !b.move && b.master != nil && b.from.Before(second.from) && first.from.Before(b.healed) &&
			(!c.saw(b.master, first.owner, s.name, b.from) || c.saw(b.old, second.owner, s.name, b.from) ||
				c.served(b.old, s.name, second.from) && c.served(b.master, s.name, second.from) ||
				b.woke && second.from.After(b.switched.Add(-blink)) && second.from.Before(b.healed.Add(blink)))
	})
	c.t.Logf("%s: two owners of %s, from %v to %v and from %v to %v after it began; replication was behind: %v", c.name, s.name,
		first.from.Sub(c.blow.from), first.to.Sub(c.blow.from), second.from.Sub(c.blow.from), second.to.Sub(c.blow.from), behind)
	switch {
	case s.replicas > 0:
		f.withWait++
	case behind:
		f.lossy++
	default:
		f.violations++
	}
}

// saw reports whether a server that served was seen to know of a grant after from.
func (c *court) saw(server *redistest.Server, owner, lock string, from time.Time) bool {
	looks := c.party.during(place{server, lock}, from, c.next)
	return slices.ContainsFunc(looks, func(l look) bool { return l.serves && l.owner == owner })
}

// served reports whether a server served a lock about that time.
func (c *court) served(server *redistest.Server, lock string, at time.Time) bool {
	looks := c.party.during(place{server, lock}, at.Add(-blink), at.Add(blink))
	return slices.ContainsFunc(looks, func(l look) bool { return l.serves })
}

// blink is longer than it takes to look.
const blink = 100 * time.Millisecond

// place is a lock on one of the servers.
type place struct {
	server *redistest.Server
	lock   string
}

// look is what one question from outside found: who holds the lock, "" if nobody.
type look struct {
	call, ret time.Time
	owner     string
	serves    bool // as the master of the lock, or there is nothing to see
}

func (l look) free() bool { return l.serves && l.owner == "" }

// watch looks at all locks on a server again and again, as whoever the server takes
// itself for: what a client would find there, whatever its own map says.
func (p *party) watch(server *redistest.Server) {
	p.done.Go(func() {
		rdb := redis.NewClient(&redis.Options{
			Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1,
			DialTimeout: 300 * time.Millisecond, ReadTimeout: 300 * time.Millisecond,
		})
		defer func() { _ = rdb.Close() }()
		for ; p.ctx.Err() == nil; pause(p.ctx, 15*time.Millisecond) {
			p.look(server, rdb)
		}
	})
}

func (p *party) look(server *redistest.Server, rdb *redis.Client) {
	ctx := context.Background()
	pipe := rdb.Pipeline()
	role := redis.NewSliceCmd(ctx, "role")
	_ = pipe.Process(ctx, role) // only queues
	var owners []*redis.StringSliceCmd
	for _, s := range p.subjects {
		owners = append(owners, pipe.HKeys(ctx, s.name)) // a node of a cluster refuses that if the slot is not its own
	}
	l := look{call: time.Now()}
	_, _ = pipe.Exec(ctx) // each command has its own error
	l.ret = time.Now()
	master := len(role.Val()) > 0 && role.Val()[0] == "master"
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.subjects {
		if l.serves = master && owners[i].Err() == nil; l.serves {
			l.owner = ""
			if fields := owners[i].Val(); len(fields) > 0 {
				l.owner = fields[0]
			}
		}
		at := place{server, s.name}
		p.looks[at] = append(p.looks[at], l)
	}
}

// during returns the looks at a place in this time.
func (p *party) during(at place, from, to time.Time) []look {
	all := p.looks[at]
	first, _ := slices.BinarySearchFunc(all, from, func(l look, t time.Time) int { return l.call.Compare(t) })
	last, _ := slices.BinarySearchFunc(all, to, func(l look, t time.Time) int { return l.call.Compare(t) })
	return all[first:max(first, last)]
}

// slept returns how long somebody waited at most while the lock was free on this
// server, between from and to. A server that serves no more, or cannot be reached,
// ends such a time: then it is not where the lock is to be had. The grants of others
// that come and go between two looks end one as well.
func (p *party) slept(at place, from, to time.Time) (longest time.Duration) {
	var grants []time.Time
	for _, v := range p.vigils {
		if v.lock == at.lock && v.granted {
			grants = append(grants, v.to)
		}
	}
	slices.SortFunc(grants, time.Time.Compare)
	came := func(from, to time.Time) bool {
		i, _ := slices.BinarySearchFunc(grants, from, time.Time.Compare)
		for i < len(grants) && !grants[i].After(from) {
			i++
		}
		return i < len(grants) && grants[i].Before(to)
	}
	for _, v := range p.vigils {
		if v.lock != at.lock || v.to.Before(from) || v.from.After(to) {
			continue
		}
		var since time.Time
		for _, l := range p.during(at, later(v.from, from), earlier(v.to, to)) {
			switch {
			case !l.free():
				since = time.Time{}
			case since.IsZero(), came(since, l.call):
				since = l.ret
			default:
				longest = max(longest, l.call.Sub(since))
			}
		}
		if end := earlier(v.to, to); !since.IsZero() && !came(since, end) {
			longest = max(longest, end.Sub(since))
		}
	}
	return longest
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
