package rlock

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// plain is Redisson's RLock: its key, field, channel and message; with a
// counter, its RFencedLock.
type plain struct {
	client *Client
	grant  lua.Grant // without owner
}

func newPlain(c *Client, key string, fenced bool) *plain {
	p := &plain{client: c, grant: lua.Grant{Key: key, Channel: related("redisson_lock__channel", key)}}
	if fenced {
		p.grant.Counter = related("redisson_lock_token", key)
	}
	return p
}

func (p *plain) of(owner string) lua.Grant {
	g := p.grant
	g.Owner, g.Family = owner, p.client.family.now()
	return g
}

func (p *plain) asked(owner string, t terms) lua.Grant {
	g := p.of(owner)
	g.Spare = t.spare
	return g
}

func (p *plain) key() string { return p.grant.Key }

func (p *plain) acquire(ctx context.Context, owner string, lease time.Duration, t terms) (reply, error) {
	r, err := lua.Acquire(ctx, p.client.scripts, p.asked(owner, t), lease)
	return reply{Reply: r}, err
}

func (p *plain) count(ctx context.Context, owner string, lease time.Duration, n tally) error {
	return lua.Count(ctx, p.client.scripts, p.of(owner), lease, n.exclusive)
}

func (p *plain) release(ctx context.Context, owner string, _ []string) (lua.Released, error) {
	return lua.Release(ctx, p.client.scripts, p.of(owner))
}

func (p *plain) renewals(owner string, lease time.Duration) []renewal {
	return []renewal{{p.client.rdb, lua.Renewal{Grant: p.of(owner), Lease: lease}}}
}

func (p *plain) listen(string) ear { return p.client.hub.Join(p.grant.Channel) }

func (p *plain) force(ctx context.Context) (bool, error) {
	return lua.ForceRelease(ctx, p.client.rdb, p.of(""))
}

func (p *plain) inspect(ctx context.Context) (lua.State, error) {
	return lua.Inspect(ctx, p.client.rdb, p.of(""))
}
