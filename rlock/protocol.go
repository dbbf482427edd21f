package rlock

import (
	"context"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// protocol is a kind of lock: everything that goes over the wire for it. The
// wait loop, holds, nesting, renewal and loss are the same for all kinds.
//
// Requests are made once and return the client's error as it is; [send] repeats
// them. Every one is safe to repeat and to arrive late, but force.
type protocol interface {
	// key is the lock's key. Within a client it identifies the lock.
	key() string
	// channel is where a release of the lock is announced.
	channel() string
	// acquire takes the lock for owner, or tells how long its holder's lease
	// still lasts.
	acquire(ctx context.Context, owner string, lease time.Duration) (lua.Reply, error)
	// count makes n the hold count of owner; lua.ErrNotOwner if it holds nothing.
	count(ctx context.Context, owner string, lease time.Duration, n int) error
	// release ends the grant of owner; lua.ErrNotOwner if it holds nothing.
	release(ctx context.Context, owner string) (lua.Released, error)
	// renewal is what extends the lease of owner.
	renewal(owner string, lease time.Duration) lua.Renewal
	// force removes the lock whoever holds it.
	force(ctx context.Context) (bool, error)
	// inspect reads the lock.
	inspect(ctx context.Context) (lua.State, error)
}
