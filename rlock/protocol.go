package rlock

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
)

// protocol is a kind of lock: everything that goes over the wire for it. The
// wait loop, holds, nesting, renewal and loss are the same for all kinds.
//
// Requests are made once and return the client's error as it is; [send] repeats
// them. Every one is safe to repeat and to arrive late, but force.
type protocol interface {
	// key is the lock's key. Within a client it identifies the lock: what nests,
	// and who queues behind whom.
	key() string
	// acquire takes the lock for owner, or tells how long to wait for a wake-up:
	// what is left of its holder's lease.
	acquire(ctx context.Context, owner string, lease time.Duration, t terms) (reply, error)
	// count makes n the hold count of owner; lua.ErrNotOwner if it holds nothing.
	count(ctx context.Context, owner string, lease time.Duration, n tally) error
	// release ends the grant of owner, and takes back what a refusal has left to it,
	// and to the heirs; lua.ErrNotOwner if it holds nothing.
	release(ctx context.Context, owner string, heirs []string) (lua.Released, error)
	// renewals is what extends the lease of owner, which most of them must do.
	renewals(owner string, lease time.Duration) []renewal
	// listen joins the channel where wake-ups for owner are announced, or returns
	// nil if there is none.
	listen(owner string) ear
	// force removes the lock whoever holds it.
	force(ctx context.Context) (bool, error)
	// inspect reads the lock.
	inspect(ctx context.Context) (lua.State, error)
}

// caller is a protocol whose wake-ups may say that the lock is the owner's.
type caller interface {
	// called returns what the newest wake-up has granted to owner, if that is
	// certain. Nothing is sent.
	called(owner string) (reply, bool)
}

// terms are on what a lock is asked for; the same for all attempts of an owner.
type terms struct {
	wait  bool  // if refused, the caller will wait
	spare int64 // fencing tokens to reserve beside the owner's own, for hand-offs
}

// reply is the answer to acquire.
type reply struct {
	lua.Reply
	queued bool          // the refusal has left something that a release takes back
	rest   time.Duration // if set, how long to wait for a wake-up, in place of TTL
	sent   time.Time     // if set, when the lease was asked for, in place of the time of the attempt
	owner  string        // if set, who has acquired it, in place of the owner that was to
	armed  time.Duration // if set, length of the lease until its first renewal
	next   []string      // owners of this client whose turn it is after that, on the server
}

// tally is a hold count. Only kinds with shared holds have both.
type tally struct{ exclusive, shared int }

// renewal is a request to extend a lease, and whom to ask.
type renewal struct {
	rdb redis.UniversalClient
	lua.Renewal
}

// ear hears wake-ups, as a [pubsub.Waiter] does.
type ear interface {
	C() <-chan struct{}
	Live() bool
	Leave()
}
