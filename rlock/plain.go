package rlock

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// plain is Redisson's RLock: its key, field, channel and message; with a
// counter, its RFencedLock.
type plain struct {
	runner lua.Runner
	grant  lua.Grant // without owner
}

func newPlain(r lua.Runner, key string, fenced bool) *plain {
	p := &plain{runner: r, grant: lua.Grant{Key: key, Channel: related("redisson_lock__channel", key)}}
	if fenced {
		p.grant.Counter = related("redisson_lock_token", key)
	}
	return p
}

func (p *plain) of(owner string) lua.Grant {
	g := p.grant
	g.Owner = owner
	return g
}

func (p *plain) key() string { return p.grant.Key }

func (p *plain) channel() string { return p.grant.Channel }

func (p *plain) acquire(ctx context.Context, owner string, lease time.Duration) (lua.Reply, error) {
	return lua.Acquire(ctx, p.runner, p.of(owner), lease)
}

func (p *plain) count(ctx context.Context, owner string, lease time.Duration, n int) error {
	return lua.Count(ctx, p.runner, p.of(owner), lease, n)
}

func (p *plain) release(ctx context.Context, owner string) (lua.Released, error) {
	return lua.Release(ctx, p.runner, p.of(owner))
}

func (p *plain) renewal(owner string, lease time.Duration) lua.Renewal {
	return lua.Renewal{Grant: p.of(owner), Lease: lease}
}

func (p *plain) force(ctx context.Context) (bool, error) {
	return lua.ForceRelease(ctx, p.runner, p.grant)
}

func (p *plain) inspect(ctx context.Context) (lua.State, error) {
	return lua.Inspect(ctx, p.runner, p.grant)
}
