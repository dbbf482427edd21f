package bench

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/rlock"
)

const rlockName = "rlock"

// Contenders returns the contenders of this package: the locks of this library, and a plain lock with the same
// data in Redis, for comparison. A contender that differs from the default lock only in one respect takes part
// only in the scenarios that show this difference.
func Contenders() []Contender {
	return append([]Contender{
		{
			Name: rlockName, About: "this library, default options",
			New:       newKind(func(c *rlock.Client, name string) *rlock.Lock { return c.NewLock(name) }),
			Reentrant: true, Redisson: true, Renews: true, Cluster: true,
		},
		{
			Name: "no-handoff", About: "the same, every release goes to the server",
			New:      newKind(func(c *rlock.Client, name string) *rlock.Lock { return c.NewLock(name, rlock.WithoutHandoff()) }),
			Redisson: true, Cluster: true, Kinds: []Kind{Contend, Wakeup, Foreign},
		},
		{
			Name: "polling", About: "the same without pub/sub, default pauses: 50 ms to 1 s",
			New: newKind(func(c *rlock.Client, name string) *rlock.Lock {
				return c.NewLock(name, rlock.WithPolling(rlock.Polling{}))
			}),
			Cluster: true, Kinds: []Kind{Contend, Wakeup, Idle},
		},
		{
			Name: "fair", About: "this library's fair lock",
			New:       newKind(func(c *rlock.Client, name string) *rlock.Lock { return c.NewFairLock(name) }),
			Reentrant: true, Cluster: true, Kinds: []Kind{Cycle, Contend, Wide, Kill, Wakeup, Idle},
		},
		{
			Name: "readers", About: "readers of this library's read/write lock",
			New:    newKind(func(c *rlock.Client, name string) *rlock.Lock { return c.NewRWLock(name).Reader() }),
			Shared: true, Cluster: true,
		},
		{
			Name: "multi", About: "two locks of this library as one",
			New: newKind(func(c *rlock.Client, name string) *rlock.MultiLock {
				return rlock.NewMultiLock(c.NewLock("{"+name+"}:1"), c.NewLock("{"+name+"}:2"))
			}),
			Cluster: true, Kinds: []Kind{Cycle},
		},
		{
			Name: "retained", About: "this library, locks that are kept for the client's next Lock for up to a second",
			New: newKind(func(c *rlock.Client, name string) *rlock.Lock {
				return c.NewLock(name, rlock.WithRetention(time.Second))
			}),
			Reentrant: true, Redisson: true, Cluster: true, Kinds: []Kind{Cycle, Contend, Wakeup, Foreign},
		},
		quorumContender(),
		{Name: plainName, About: "the same scripts with one subscription, FIFO inside the process, nothing else", New: newPlain, Redisson: true},
	}, budgets()...)
}

// kind is a lock of this library.
type kind struct {
	rdb    redis.UniversalClient
	client *rlock.Client
	lock   func(ctx context.Context, c *rlock.Client, name string) (held context.Context, unlock func(context.Context) error, err error)
}

// locker is a Lock or a MultiLock, with its type of hold.
type locker[H interface{ Unlock(context.Context) error }] interface {
	Lock(ctx context.Context) (context.Context, H, error)
}

func newKind[H interface{ Unlock(context.Context) error }, L locker[H]](of func(*rlock.Client, string) L) func(Target) (Locker, error) {
	lock := func(ctx context.Context, c *rlock.Client, name string) (context.Context, func(context.Context) error, error) {
		held, hold, err := of(c, name).Lock(ctx)
		if err != nil {
			return ctx, nil, err
		}
		return held, hold.Unlock, nil
	}
	return func(t Target) (Locker, error) {
		rdb := t.Dial()
		client, err := rlock.New(rdb, &rlock.Options{LeaseTime: t.Lease})
		return &kind{rdb, client, lock}, err
	}
}

func (k *kind) Lock(ctx context.Context, name string) (context.Context, func(context.Context) error, error) {
	return k.lock(ctx, k.client, name)
}

func (k *kind) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	err := k.client.Close(ctx)
	_ = k.rdb.Close()
	return err
}
