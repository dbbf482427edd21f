package kind

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// While a cluster slot moves, which takes longer the more keys it has, a script with two keys is
// refused unless both exist on one of the nodes. A queue that nobody waits in does not exist. A
// request with a single key always finds it, so the lock and its queue are then served one after
// the other:
//
//   - A release frees the lock, and makes the first in the queue ask.
//   - A waiter takes the lock if it is free, otherwise it asks again soon. It does not queue. A
//     fair lock waits for the end of the move, or its order would be lost.

// moving reports whether a server has refused a request because a slot moves.
func moving(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && request.HasCode(reply, "TRYAGAIN")
}

// movePause is how long a waiter sleeps while it cannot queue.
func movePause() time.Duration { return 50*time.Millisecond + rand.N(50*time.Millisecond) }

// takeApart asks for the lock without its queue. If the owner gets it, a ticket that it may have
// in the queue is removed.
func (p *Plain) takeApart(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o Options) (lua.Reply, error) {
	g := p.Of(owner)
	reply, err := lua.Acquire(ctx, r, g, lease, o.Spare)
	if err == nil && reply.Acquired {
		p.serveApart(ctx, g, []string{owner}, false)
	}
	reply.AskIn = movePause()
	return reply, err
}

// releaseApart frees the lock, and serves its queue. If that fails, the waiters find out by
// themselves that the lock is free.
func (p *Plain) releaseApart(ctx context.Context, r lua.Runner, owner string, e lua.Ending) (lua.Released, error) {
	g := p.Of(owner)
	alone := g
	alone.Queue, alone.Counter = "", ""
	released, err := lua.Release(ctx, r, alone, e)
	if err == nil || errors.Is(err, lua.ErrNotOwner) { // an earlier attempt may have been executed
		p.serveApart(ctx, g, append(slices.Clip(e.Tickets), owner), true) // takeApart may not have removed the owner's ticket yet
	}
	return released, err
}

// forceApart removes the lock whoever holds it, and serves its queue. The request before it was
// refused, so the lock is removed only once.
func (p *Plain) forceApart(ctx context.Context) (bool, error) {
	g := p.Of("")
	alone := g
	alone.Queue, alone.Counter = "", ""
	was, err := lua.ForceRelease(ctx, p.server.RDB, alone)
	if was {
		p.serveApart(ctx, g, nil, true)
	}
	return was, err
}

// inspectApart reads the lock without its queue: how many wait is not known.
func (p *Plain) inspectApart(ctx context.Context) (lua.State, error) {
	alone := p.Of("")
	alone.Queue = ""
	s, err := lua.Inspect(ctx, p.server.RDB, alone)
	s.Waiters = -1
	return s, err
}

// serveApart serves the queue in the background, as its node may be slow, or silent.
func (p *Plain) serveApart(ctx context.Context, g lua.Grant, tickets []string, released bool) {
	p.server.Background(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), MaxAttempt)
		defer cancel()
		_ = lua.ServeApart(ctx, p.server.Scripts, g, tickets, released)
	})
}
