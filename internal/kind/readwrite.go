package kind

import (
	"context"
	"strings"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// Times of a waiting writer's intent. It is repeated in time to be there all the
// while, and costs one request for each.
const (
	intentTTL   = 10 * time.Second
	intentEvery = intentTTL / 2
)

// ReadWrite is Redisson's RReadWriteLock, and an intent. Its sides differ in how
// they acquire, as a grant of the writer may have holds of both.
type ReadWrite struct {
	server *Server
	grant  lua.RW // without owner
	shared bool
}

// NewReadWrite returns one side of a read/write lock, the one that many may hold at once
// if shared is set.
func NewReadWrite(s *Server, key string, fenced, shared bool) *ReadWrite {
	p := &ReadWrite{server: s, shared: shared, grant: lua.RW{
		Grant:  lua.Grant{Key: key, Channel: lua.Related("redisson_rwlock", key)},
		Intent: lua.Own("rlock_rwlock_intent", key),
		Holds:  key + ":",
	}}
	if !strings.Contains(key, "{") { // Redisson's rule for what is behind a name
		p.grant.Holds = "{" + key + "}:"
	}
	if fenced {
		p.grant.Counter = lua.Related("redisson_lock_token", key)
	}
	return p
}

func (p *ReadWrite) of(owner string) lua.RW {
	g := p.grant
	g.Owner, g.ChannelKind = owner, p.server.Channels.now()
	return g
}

// Key is not that of a plain lock: under its context a read/write lock does not nest,
// and the server tells of the conflict.
func (p *ReadWrite) Key() string { return apart + "rw:" + p.grant.Key }

func (p *ReadWrite) Gathers() bool { return true }

func (p *ReadWrite) Acquire(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o Options) (Answer, error) {
	if p.shared {
		reply, err := lua.AcquireRead(ctx, r, p.of(owner), lease)
		return answer(reply), err
	}
	intent := intentTTL
	if !o.Wait {
		intent = 0
	}
	reply, kept, err := lua.AcquireWrite(ctx, r, p.of(owner), lease, intent)
	a := answer(reply)
	if kept {
		a.Leftover, a.AskIn = true, intentEvery
	}
	return a, err
}

func (p *ReadWrite) SetCount(ctx context.Context, r lua.Runner, owner string, lease time.Duration, n Count) error {
	return lua.CountRW(ctx, r, p.of(owner), lease, n.Exclusive, n.Shared)
}

func (p *ReadWrite) Release(ctx context.Context, r lua.Runner, owner string, _ lua.Ending) (lua.Released, error) {
	return lua.ReleaseRW(ctx, r, p.of(owner))
}

func (p *ReadWrite) Renewals(owner string, lease time.Duration) []Renewal {
	return []Renewal{{p.server.RDB, lua.RenewalRW(p.of(owner), lease)}}
}

// Subscribe hears every message: what lets one reader in lets in all.
func (p *ReadWrite) Subscribe(func(string), func()) Signal {
	return p.server.Hub.Join(p.grant.Channel)
}

func (p *ReadWrite) Force(ctx context.Context) (bool, error) {
	return lua.ForceReleaseRW(ctx, p.server.RDB, p.of(""))
}

func (p *ReadWrite) Inspect(ctx context.Context) (lua.State, error) {
	return lua.InspectRW(ctx, p.server.RDB, p.of(""))
}
