package kind

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// Plain is Redisson's RLock: the same key, field, channel and message; with a counter, Redisson's
// RFencedLock. Beside these data there may be the queue of this library's waiters.
type Plain struct {
	server *Server
	grant  lua.Grant // without owner
	fair   bool      // only the first in the queue may have the lock
}

// NewPlain returns a lock without a queue: a refused client asks again.
func NewPlain(s *Server, key string, fenced bool) *Plain {
	p := &Plain{server: s, grant: lua.Grant{Key: key}}
	if fenced {
		p.grant.Counter = lua.Related("redisson_lock_token", key)
	}
	return p
}

// NewQueued returns a plain lock with a queue on the server.
func NewQueued(s *Server, key string, fenced bool) *Plain {
	p := NewPlain(s, key, fenced)
	p.grant.Queue = lua.QueueOf(key)
	return p
}

// NewFair returns a queued lock for strict order: only the first in the queue gets the lock. The
// keys of Redisson's own fair lock are a conflict.
func NewFair(s *Server, key string, fenced bool) *Plain {
	p := NewQueued(s, key, fenced)
	p.fair = true
	p.grant.Rivals = [2]string{lua.Related("redisson_lock_queue", key), lua.Related("redisson_lock_timeout", key)}
	return p
}

// Of returns the grant of an owner, for scripts over several locks.
func (p *Plain) Of(owner string) lua.Grant {
	g := p.grant
	g.Owner, g.ChannelKind = owner, p.server.Channels.Now()
	return g
}

// shareOf is Of for a share of a quorum lock.
func (p *Plain) shareOf(owner string) lua.Grant {
	g, hears := p.Of(owner), p.server.Channels.Hearing()
	g.Uncounted = hears == lua.Deaf || hears == lua.Uncounted
	return g
}

// Key implements [Kind], as the methods below do.
func (p *Plain) Key() string { return p.grant.Key }

// Joint reports whether the script for several locks may take this lock. The script
// looks at no queue, and has the keys of all locks.
func (p *Plain) Joint() bool { return p.Gathers(true) && !p.fair }

// Gathers is false without a queue: a proxy may spread the keys.
func (p *Plain) Gathers(bool) bool { return p.grant.Queue != "" }

// Acquire takes a free lock. An owner without a ticket takes a plain lock even past waiters.
// Otherwise the queue decides, and a refusal leaves the ticket.
func (p *Plain) Acquire(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o Options) (lua.Reply, error) {
	if o.Ticket.Claim == 0 && !p.fair {
		// Of also makes the client ask a cluster whether it has sharded channels: the release
		// needs to know.
		return lua.Acquire(ctx, r, p.Of(owner), lease, o.Spare)
	}
	reply, err := lua.Ask(ctx, r, p.Of(owner), lease, o.Ticket, o.Spare)
	if !p.fair && moving(err) {
		return p.takeApart(ctx, r, owner, lease, o)
	}
	return reply, err
}

func (p *Plain) SetCount(ctx context.Context, r lua.Runner, owner string, lease time.Duration, n Count) (lua.Released, error) {
	return lua.Released{}, lua.Count(ctx, r, p.Of(owner), lease, n.Exclusive)
}

// Retain notes an idle grant on the server: the owner keeps the lock without a hold. The grant
// is not kept if somebody waits.
func (p *Plain) Retain(ctx context.Context, r lua.Runner, owner string) (kept bool, err error) {
	return lua.Retain(ctx, r, p.Of(owner))
}

func (p *Plain) Release(ctx context.Context, r lua.Runner, owner string, e lua.Ending) (lua.Released, error) {
	released, err := lua.Release(ctx, r, p.Of(owner), e)
	if p.grant.Queue != "" && moving(err) {
		return p.releaseApart(ctx, r, owner, e)
	}
	return released, err
}

func (p *Plain) Renewals(owner string, lease time.Duration) []Renewal {
	return []Renewal{{RDB: p.server.RDB, Renewal: lua.Renewal{Grant: p.Of(owner), Lease: lease}}}
}

func (p *Plain) Subscribe(e Events) Subscription {
	return p.server.Hub.Subscribe(p.GrantChannel(), e.Message, e.Changed)
}

func (p *Plain) GrantChannel() string { return lua.GrantChannel(p.grant.Key, p.server.ID) }

func (p *Plain) UnlockChannel() string { return lua.UnlockChannel(p.grant.Key) }

func (p *Plain) Force(ctx context.Context) (bool, error) {
	was, err := lua.ForceRelease(ctx, p.server.RDB, p.Of(""))
	if p.grant.Queue != "" && moving(err) {
		return p.forceApart(ctx)
	}
	return was, err
}

func (p *Plain) Inspect(ctx context.Context) (lua.State, error) {
	s, err := lua.Inspect(ctx, p.server.RDB, p.Of(""))
	if p.grant.Queue != "" && moving(err) {
		return p.inspectApart(ctx)
	}
	return s, err
}

// SubscribeToUnlocks joins the channel of Redisson's release messages, as Redisson's clients know
// nothing of tickets. The messages of a lock with a queue, -0 and +1, are meant for Redisson, and
// ignored.
func (s *Server) SubscribeToUnlocks(channel string, message, changed func()) Subscription {
	return s.Hub.Subscribe(channel, func(payload string) {
		if payload != "-0" && payload != "+1" {
			message()
		}
	}, changed)
}
