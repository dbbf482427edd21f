package topology

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/redistest"
)

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
