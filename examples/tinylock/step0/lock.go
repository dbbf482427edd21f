// Package step0 locks and unlocks, and checks the owner.
package step0

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
)

// poll is how long a waiter sleeps between two requests.
const poll = 100 * time.Millisecond

// Lock is a key of one server. The key holds a hash of one field while somebody holds the lock: the owner.
type Lock struct {
	rdb   redis.UniversalClient
	key   string
	lease time.Duration
}

// New returns the lock of a key. If a holder dies, the lock is free after one lease.
func New(rdb redis.UniversalClient, key string, lease time.Duration) *Lock {
	return &Lock{rdb, key, lease}
}

// hold is one grant of the lock.
type hold struct {
	lock  *Lock
	grant lua.Grant
}

// Lock waits for the lock, as long as ctx allows. The caller works under the context held, and calls unlock.
func (l *Lock) Lock(ctx context.Context) (held context.Context, unlock func() error, err error) {
	// The owner is a new one for every call: no other call can release what this one gets.
	h := &hold{lock: l, grant: lua.Grant{Key: l.key, Owner: "tinylock:" + rand.Text()}}
	for {
		reply, err := lua.Acquire(ctx, l.rdb, h.grant, l.lease, 0)
		if err != nil {
			return nil, nil, err
		}
		if reply.Acquired {
			return ctx, h.unlock, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// unlock has the server delete the owner's field. If the field is another owner's, the error is lua.ErrNotOwner.
func (h *hold) unlock() error {
	ctx, cancel := context.WithTimeout(context.Background(), h.lock.lease)
	defer cancel()
	_, err := lua.Release(ctx, h.lock.rdb, h.grant, lua.Ending{})
	return err
}
