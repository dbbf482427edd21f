package kind

import (
	"context"
	"strings"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// ReadWrite is one side of Redisson's RReadWriteLock, with a queue of this library's waiters for
// both sides. A grant of the writer may have holds of both sides, so the sides differ in Acquire
// only.
type ReadWrite struct {
	server *Server
	grant  lua.RW // without owner
}

// NewReadWrite returns one side of a read/write lock: the side for many holders at once
// if shared is set.
func NewReadWrite(s *Server, key string, fenced, shared bool) *ReadWrite {
	rw := &ReadWrite{server: s, grant: lua.RW{
		Grant:  lua.Grant{Key: key, Queue: lua.QueueOfRW(key), Channel: lua.UnlockChannelRW(key)},
		Holds:  key + ":",
		Shared: shared,
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
	g.Owner, g.ChannelKind = owner, rw.server.Channels.Now()
	return g
}

// Key is not that of a plain lock: under its context a read/write lock does not nest,
// and the server tells of the conflict.
func (rw *ReadWrite) Key() string { return notPlain + "rw:" + rw.grant.Key }

func (rw *ReadWrite) Gathers(bool) bool { return true }

// Acquire leaves the decision to the queue: an owner without a ticket passes nobody.
func (rw *ReadWrite) Acquire(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o Options) (lua.Reply, error) {
	return lua.AskRW(ctx, r, rw.of(owner), lease, o.Ticket)
}

func (rw *ReadWrite) SetCount(ctx context.Context, r lua.Runner, owner string, lease time.Duration, n Count) (lua.Released, error) {
	released, err := lua.CountRW(ctx, r, rw.of(owner), lease, n.Exclusive, n.Shared)
	rw.serveMore(ctx, released.More)
	return released, err
}

func (rw *ReadWrite) Release(ctx context.Context, r lua.Runner, owner string, e lua.Ending) (lua.Released, error) {
	released, err := lua.ReleaseRW(ctx, r, rw.of(owner), e)
	rw.serveMore(ctx, released.More)
	return released, err
}

// serveMore serves the rest of a long queue in the background, a portion for each request: by a release
// of an owner without a hold. If such a request fails, the waiters' own requests serve the queue.
func (rw *ReadWrite) serveMore(ctx context.Context, more bool) {
	if !more {
		return
	}
	rw.server.Background(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), MaxAttempt)
		defer cancel()
		for more && ctx.Err() == nil {
			released, _ := lua.ReleaseRW(ctx, rw.server.Scripts, rw.of(rw.server.Owner()), lua.Ending{})
			more = released.More
		}
	})
}

func (rw *ReadWrite) Renewals(owner string, lease time.Duration) []Renewal {
	return []Renewal{{RDB: rw.server.RDB, Renewal: lua.RenewalRW(rw.of(owner), lease)}}
}

func (rw *ReadWrite) Subscribe(e Events) Subscription {
	return rw.server.Hub.Subscribe(rw.GrantChannel(), e.Message, e.Changed)
}

func (rw *ReadWrite) GrantChannel() string {
	return lua.GrantChannelRW(rw.grant.Key, rw.server.ID)
}

func (rw *ReadWrite) UnlockChannel() string { return rw.grant.Channel }

func (rw *ReadWrite) Force(ctx context.Context) (bool, error) {
	return lua.ForceReleaseRW(ctx, rw.server.RDB, rw.of(""))
}

// Inspect reads the lock. While the slot of the lock moves, the number of waiters may be unknown.
func (rw *ReadWrite) Inspect(ctx context.Context) (lua.State, error) {
	s, err := lua.InspectRW(ctx, rw.server.RDB, rw.of(""))
	if !moving(err) {
		return s, err
	}
	alone := rw.of("")
	alone.Queue = ""
	s, err = lua.InspectRW(ctx, rw.server.RDB, alone)
	s.Waiters = -1
	return s, err
}
