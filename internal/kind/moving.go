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

// While a cluster slot moves (longer for a slot with more keys), a script with two keys is
// refused unless both keys exist on one of the nodes. The key of an empty queue does not exist. A
// request with a single key always finds the key, so the lock and the queue are then served one
// after the other:
//
//   - A release frees the lock, and makes the first waiter in the queue ask.
//   - A waiter takes a free lock, otherwise asks again soon. The waiter does not queue. A
//     fair lock waits for the end of the move, or the order of the queue would be lost.

// moving reports whether a server has refused a request because a slot moves.
func moving(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && request.HasCode(reply, "TRYAGAIN")
}

// movePause is the sleep of a waiter without a place in the queue.
func movePause() time.Duration { return 50*time.Millisecond + rand.N(50*time.Millisecond) }

// takeApart asks for the lock without the queue. After a grant, the owner's ticket is removed
// from the queue, if there is a ticket.
func (p *Plain) takeApart(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o Options) (lua.Reply, error) {
	g := p.Of(owner)
	reply, err := lua.Acquire(ctx, r, g, lease, o.Spare)
	if err == nil && reply.Acquired {
		p.serveApart(ctx, g, []string{owner}, false)
	}
	reply.AskIn = movePause()
	return reply, err
}

// releaseApart frees the lock, and serves the queue. If serving fails, the waiters' own
// requests find the lock free.
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

// forceApart removes the lock, regardless of the owner, and serves the queue. The request before
// forceApart was refused, so the lock is removed only once.
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

// inspectApart reads the lock without the queue: the number of waiters is unknown.
func (p *Plain) inspectApart(ctx context.Context) (lua.State, error) {
	alone := p.Of("")
	alone.Queue = ""
	s, err := lua.Inspect(ctx, p.server.RDB, alone)
	s.Waiters = -1
	return s, err
}

// serveApart serves the queue in the background: the node may be slow, or silent.
func (p *Plain) serveApart(ctx context.Context, g lua.Grant, tickets []string, released bool) {
	p.server.Background(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), MaxAttempt)
		defer cancel()
		_ = lua.ServeApart(ctx, p.server.Scripts, g, tickets, released)
	})
}
