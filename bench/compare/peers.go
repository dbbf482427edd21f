package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/go-rlock/rlock/bench"
)

// peers are other libraries, each as its README shows it and as somebody sets it
// who has read its source. Those that renew nothing by themselves get the
// goroutine that their users would write, where locks outlive their lease.
func peers() []bench.Contender {
	return []bench.Contender{
		{
			Name: "redislock", About: "bsm/redislock, retrying every 100 ms as in its README", Renews: true,
			New: newRedislock(func() redislock.RetryStrategy { return redislock.LinearBackoff(100 * time.Millisecond) }),
		},
		{
			Name: "redislock-tuned", About: "the same, retrying every 2 ms", Renews: true,
			New: newRedislock(func() redislock.RetryStrategy { return redislock.LinearBackoff(2 * time.Millisecond) }),
		},
		{Name: "redsync", About: "go-redsync/redsync on one server, defaults: retries after 50 to 250 ms", Renews: true, New: newRedsync()},
		{
			Name: "redsync-tuned", About: "the same, retrying every 2 ms", Renews: true,
			New: newRedsync(redsync.WithRetryDelay(2 * time.Millisecond)),
		},
		{
			Name: "rueidislock", About: "rueidislock, defaults: 2 of 3 keys on one server", Renews: true,
			New: newRueidislock(rueidislock.LockerOption{}),
		},
		{
			Name: "rueidislock-tuned", About: "the same, 1 key and NoLoopTracking", Renews: true,
			New: newRueidislock(rueidislock.LockerOption{KeyMajority: 1, NoLoopTracking: true}),
		},
	}
}

type redislocker struct {
	target bench.Target
	rdb    *redis.Client
	client *redislock.Client
	retry  func() redislock.RetryStrategy
}

func newRedislock(retry func() redislock.RetryStrategy) func(bench.Target) (bench.Locker, error) {
	return func(t bench.Target) (bench.Locker, error) {
		rdb := redis.NewClient(t.Server.Options())
		return &redislocker{t, rdb, redislock.New(rdb), retry}, nil
	}
}

func (l *redislocker) Lock(ctx context.Context, name string) (context.Context, func(context.Context) error, error) {
	lock, err := l.client.Obtain(ctx, name, l.target.Lease, &redislock.Options{RetryStrategy: l.retry()})
	if err != nil {
		return ctx, nil, err
	}
	stop := keep(l.target, func(ctx context.Context) error { return lock.Refresh(ctx, l.target.Lease, nil) })
	return ctx, func(ctx context.Context) error {
		stop()
		return lock.Release(ctx)
	}, nil
}

func (l *redislocker) Close() error { return l.rdb.Close() }

type redsyncer struct {
	target bench.Target
	rdb    *redis.Client
	rs     *redsync.Redsync
	opts   []redsync.Option
}

func newRedsync(opts ...redsync.Option) func(bench.Target) (bench.Locker, error) {
	return func(t bench.Target) (bench.Locker, error) {
		rdb := redis.NewClient(t.Server.Options())
		return &redsyncer{t, rdb, redsync.New(goredis.NewPool(rdb)), append(opts[:len(opts):len(opts)], redsync.WithExpiry(t.Lease))}, nil
	}
}

// Lock goes on where redsync gives up, after 32 tries.
func (l *redsyncer) Lock(ctx context.Context, name string) (context.Context, func(context.Context) error, error) {
	m := l.rs.NewMutex(name, l.opts...)
	for {
		err := m.LockContext(ctx)
		if err == nil {
			break
		}
		var taken *redsync.ErrTaken
		if ctx.Err() != nil || !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
			return ctx, nil, err
		}
	}
	stop := keep(l.target, func(ctx context.Context) error {
		_, err := m.ExtendContext(ctx)
		return err
	})
	return ctx, func(ctx context.Context) error {
		stop()
		_, err := m.UnlockContext(ctx)
		return err
	}, nil
}

func (l *redsyncer) Close() error { return l.rdb.Close() }

// keep renews a lock every third of its lease, until stop.
func keep(t bench.Target, renew func(context.Context) error) (stop func()) {
	if !t.Renew {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends with stop, or with the lock
		defer close(done)
		tick := time.NewTicker(t.Lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if renew(ctx) != nil {
					return // the Unlock will say so
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

type rueidislocker struct{ rueidislock.Locker }

func newRueidislock(o rueidislock.LockerOption) func(bench.Target) (bench.Locker, error) {
	return func(t bench.Target) (bench.Locker, error) {
		opts := t.Server.Options()
		o := o
		o.KeyValidity = t.Lease
		o.ExtendInterval = t.Lease / 3
		o.ClientOption = rueidis.ClientOption{
			InitAddress: []string{opts.Addr}, Username: opts.Username, Password: opts.Password, SelectDB: opts.DB,
			TLSConfig: opts.TLSConfig, ForceSingleClient: true,
		}
		if t.Server.Pool > 0 { // one of many clients
			o.ClientOption.PipelineMultiplex = 1 // two connections
		}
		l, err := rueidislock.NewLocker(o)
		return rueidislocker{l}, err
	}
}

// Lock: what ends the lock reports no error, so a lock that was lost is found by
// its context. The one that WithContext is given bounds the hold as well as the
// wait, down to the TTL of the key, so it is not ctx, which may end meanwhile.
func (l rueidislocker) Lock(ctx context.Context, name string) (context.Context, func(context.Context) error, error) {
	holding, cancel := context.WithCancel(context.WithoutCancel(ctx))
	waiting := context.AfterFunc(ctx, cancel)
	held, unlock, err := l.WithContext(holding, name)
	if !waiting() || err != nil {
		cancel()
		if err == nil {
			unlock()
		}
		return ctx, nil, cmp.Or(ctx.Err(), err)
	}
	return held, func(context.Context) error {
		unlock()
		cancel()
		return nil
	}, nil
}

func (l rueidislocker) Close() error {
	l.Locker.Close()
	return nil
}
