// Package step1 renews the lease, and tells of a loss.
package step1

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
)

// Causes of the end of a context that Lock has returned.
var (
	ErrLost     = errors.New("tinylock: the lock was lost")
	ErrUnlocked = errors.New("tinylock: unlocked")
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
	life  context.Context   // of the renewals: ends with the hold
	end   func(cause error) // ends it, and the context of the work
}

// Lock waits for the lock, as long as ctx allows. The caller works under the context held, and calls unlock.
func (l *Lock) Lock(ctx context.Context) (held context.Context, unlock func() error, err error) {
	// The owner is a new one for every call: no other call can release what this one gets.
	h := &hold{lock: l, grant: lua.Grant{Key: l.key, Owner: "tinylock:" + rand.Text()}}
	for {
		sent := time.Now() // the server's lease begins later
		reply, err := lua.Acquire(ctx, l.rdb, h.grant, l.lease, 0)
		if err != nil {
			return nil, nil, err
		}
		if reply.Acquired {
			return h.keep(ctx, sent), h.unlock, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// keep renews the lease until the end, and returns the context of the work. The renewals do not stop with ctx: whoever
// is told to stop works on for a moment.
func (h *hold) keep(ctx context.Context, sent time.Time) (held context.Context) {
	held, end := context.WithCancelCause(ctx)
	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	h.life, h.end = life, func(cause error) { stop(cause); end(cause) }
	// The server may give the lock away one lease after the newest request that it has answered. The context ends
	// a tenth earlier: for clocks that differ in rate, and for work that takes time to stop.
	lease := h.lock.lease
	left := func() time.Duration { return time.Until(sent.Add(lease * 9 / 10)) }
	lapse := time.AfterFunc(left(), func() { h.end(ErrLost) })
	go func() {
		defer lapse.Stop()
		for {
			select {
			case <-life.Done():
				return
			case <-time.After(lease / 3):
			}
			now := time.Now()
			ctx, cancel := context.WithTimeout(life, lease/3)
			err := lua.Renew(ctx, h.lock.rdb, []lua.Renewal{{Grant: h.grant, Lease: lease}})[0]
			cancel()
			if err == nil {
				sent = now
				lapse.Reset(left())
			} else if errors.Is(err, lua.ErrNotOwner) { // the key was deleted
				h.end(ErrLost)
			}
		}
	}()
	return held
}

// unlock has the server delete the owner's field. If the field is another owner's, the error is lua.ErrNotOwner.
func (h *hold) unlock() error {
	// First, as the next holder may come at once. The cause of a context that has ended stays what it was.
	h.end(ErrUnlocked)
	ctx, cancel := context.WithTimeout(context.Background(), h.lock.lease)
	defer cancel()
	_, err := lua.Release(ctx, h.lock.rdb, h.grant, lua.Ending{})
	if errors.Is(context.Cause(h.life), ErrLost) {
		return ErrLost
	}
	return err
}
