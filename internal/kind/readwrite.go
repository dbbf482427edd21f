package kind

import (
	"context"
	"strings"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// Times of a waiting writer's intent. The intent is repeated before its end, at the cost
// of one request each time.
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
	rw := &ReadWrite{server: s, shared: shared, grant: lua.RW{
		Grant:  lua.Grant{Key: key, Channel: lua.Related("redisson_rwlock", key)},
		Intent: lua.Own("rlock_rwlock_intent", key),
		Holds:  key + ":",
	}}
	if !strings.Contains(key, "{") { // Redisson's rule for what is behind a name
		rw.grant.Holds = "{" + key + "}:"
	}
	if fenced {
		rw.grant.Counter = lua.Related("redisson_lock_token", key)
	}
	return rw
}

func (rw *ReadWrite) of(owner string) lua.RW {
	g := rw.grant
	g.Owner, g.ChannelKind = owner, rw.server.Channels.now()
	return g
}

// Key is not that of a plain lock: under its context a read/write lock does not nest,
// and the server tells of the conflict.
func (rw *ReadWrite) Key() string { return notPlain + "rw:" + rw.grant.Key }

func (rw *ReadWrite) Gathers(bool) bool { return true }

func (rw *ReadWrite) Acquire(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o Options) (lua.Reply, error) {
	if rw.shared {
		return lua.AcquireRead(ctx, r, rw.of(owner), lease)
	}
	intent := intentTTL
	if !o.Wait {
		intent = 0
	}
	reply, err := lua.AcquireWrite(ctx, r, rw.of(owner), lease, intent)
	if reply.Leftover {
		reply.AskIn = intentEvery
	}
	return reply, err
}

func (rw *ReadWrite) SetCount(ctx context.Context, r lua.Runner, owner string, lease time.Duration, n Count) (lua.Released, error) {
	return lua.Released{}, lua.CountRW(ctx, r, rw.of(owner), lease, n.Exclusive, n.Shared)
}

func (rw *ReadWrite) Release(ctx context.Context, r lua.Runner, owner string, _ lua.Ending) (lua.Released, error) {
	return lua.ReleaseRW(ctx, r, rw.of(owner))
}

func (rw *ReadWrite) Renewals(owner string, lease time.Duration) []Renewal {
	return []Renewal{{RDB: rw.server.RDB, Renewal: lua.RenewalRW(rw.of(owner), lease)}}
}

// Subscribe hears every message: what lets one reader in lets in all.
func (rw *ReadWrite) Subscribe(e Events) Subscription {
	return rw.server.Hub.Subscribe(rw.grant.Channel, func(string) { e.Released() }, e.Changed)
}

func (rw *ReadWrite) GrantChannel() string { return "" }

func (rw *ReadWrite) UnlockChannel() string { return rw.grant.Channel }

func (rw *ReadWrite) Force(ctx context.Context) (bool, error) {
	return lua.ForceReleaseRW(ctx, rw.server.RDB, rw.of(""))
}

func (rw *ReadWrite) Inspect(ctx context.Context) (lua.State, error) {
	return lua.InspectRW(ctx, rw.server.RDB, rw.of(""))
}
