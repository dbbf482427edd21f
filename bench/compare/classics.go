package main

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/xid"

	"github.com/go-rlock/rlock/bench"
)

// classics are what one finds in articles, in their few lines: SET NX PX and a
// compare-and-delete, which differ in what a refused caller does. None renews.
func classics() []bench.Contender {
	return []bench.Contender{
		{Name: "poll-200ms", About: "SETNX, and sleep 200 ms", New: newClassic(pollSlowly)},
		{Name: "spin", About: "SETNX, again and again", New: newClassic(spin)},
		{Name: "subscribe", About: "SETNX, and a subscription of its own for every Lock that waits", New: newClassic(subscribe)},
	}
}

type classic struct {
	rdb   *redis.Client
	id    string
	lease time.Duration
	n     atomic.Int64
	wait  func(ctx context.Context, c *classic, name string, try func() (bool, error)) error
}

func newClassic(wait func(context.Context, *classic, string, func() (bool, error)) error) func(bench.Target) (bench.Locker, error) {
	return func(t bench.Target) (bench.Locker, error) {
		return &classic{rdb: redis.NewClient(t.Server.Options()), id: xid.New().String(), lease: t.Lease, wait: wait}, nil
	}
}

// unlock announces the release, for those that subscribe.
var unlock = redis.NewScript(`
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[1], '')
return 1`)

func (c *classic) Lock(ctx context.Context, name string) (context.Context, func(context.Context) error, error) {
	value := c.id + strconv.FormatInt(c.n.Add(1), 10)
	try := func() (bool, error) { return c.rdb.SetNX(ctx, name, value, c.lease).Result() }
	ok, err := try()
	if err == nil && !ok {
		err = c.wait(ctx, c, name, try)
	}
	if err != nil {
		return ctx, nil, err
	}
	return ctx, func(ctx context.Context) error { return unlock.Run(ctx, c.rdb, []string{name}, value).Err() }, nil
}

func (c *classic) Close() error { return c.rdb.Close() }

func spin(ctx context.Context, _ *classic, _ string, try func() (bool, error)) error {
	for {
		if ok, err := try(); ok || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func pollSlowly(ctx context.Context, _ *classic, _ string, try func() (bool, error)) error {
	for {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if ok, err := try(); ok || err != nil {
			return err
		}
	}
}

func subscribe(ctx context.Context, c *classic, name string, try func() (bool, error)) error {
	sub := c.rdb.Subscribe(ctx, name)
	defer func() { _ = sub.Close() }()
	if _, err := sub.Receive(ctx); err != nil { // the confirmation
		return err
	}
	for {
		if ok, err := try(); ok || err != nil {
			return err
		}
		select {
		case <-sub.Channel():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
