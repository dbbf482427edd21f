package kind

import (
	"context"
	"errors"
	"time"

	"github.com/go-rlock/rlock/lua"
)

// Joinable is a kind with holds for several clients to join: the server tells by one key
// whether an owner holds the lock, and for how long.
type Joinable interface {
	Kind
	// Confirm returns the rest of the lease of owner, negative for a lease without end;
	// [lua.ErrNotOwner] if owner holds nothing.
	Confirm(ctx context.Context, r lua.Runner, owner string) (time.Duration, error)
	// Joined is the kind of the lock for a client in a joined hold.
	Joined() Kind
}

// Confirm implements [Joinable], as Joined does.
func (p *Plain) Confirm(ctx context.Context, r lua.Runner, owner string) (time.Duration, error) {
	return lua.Confirm(ctx, r, p.Of(owner))
}

func (p *Plain) Joined() Kind { return joined{p} }

// joined is a lock held by another process, for a client in the joined hold. The client
// sends only confirmations: the holder alone acquires, counts, renews and releases.
type joined struct{ *Plain }

var errHolders = errors.New("the lock was joined: only its holder can do that")

func (joined) Acquire(context.Context, lua.Runner, string, time.Duration, Options) (lua.Reply, error) {
	return lua.Reply{}, errHolders
}

func (joined) SetCount(context.Context, lua.Runner, string, time.Duration, Count) (lua.Released, error) {
	return lua.Released{}, errHolders
}

// Release succeeds: there is nothing to give back.
func (joined) Release(context.Context, lua.Runner, string, lua.Ending) (lua.Released, error) {
	return lua.Released{}, nil
}

func (j joined) Renewals(owner string, _ time.Duration) []Renewal {
	return []Renewal{{RDB: j.server.RDB, Renewal: lua.Confirmation(j.Of(owner))}}
}
