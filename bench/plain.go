package bench

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/xid"

	"github.com/go-rlock/rlock/lua"
)

const plainName = "pubsub"

// plain is a lock that does the obvious: try, and if refused, wait for the
// message of a release. It is what this library has to be compared with where
// fairness is concerned, and, since it shares locks with it, the stranger that
// waits beside it. No renewal, no detection of anything.
type plain struct {
	rdb    *redis.Client
	id     string
	lease  time.Duration
	grants atomic.Int64

	mu    sync.Mutex
	names map[string]*line
}

// line is where the goroutines of this process wait for one lock.
type line struct {
	turn   chan struct{} // capacity 1; held from before Lock until after Unlock
	wake   chan struct{} // capacity 1; a release was announced
	listen sync.Once
	sub    *redis.PubSub // set by listen
}

func newPlain(t Target) (Locker, error) {
	return &plain{rdb: redis.NewClient(t.Server.Options()), id: "pubsub-" + xid.New().String(), lease: t.Lease, names: make(map[string]*line)}, nil
}

func (p *plain) Lock(ctx context.Context, name string) (context.Context, func(context.Context) error, error) {
	l := p.line(name)
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx, nil, ctx.Err()
	}
	g := lua.Grant{Key: name, Owner: p.id + ":" + strconv.FormatInt(p.grants.Add(1), 10)}
	for {
		reply, err := lua.Acquire(ctx, p.rdb, g, p.lease, 0)
		if err != nil {
			<-l.turn
			return ctx, nil, err
		}
		if reply.Acquired {
			return ctx, func(ctx context.Context) error {
				defer func() { <-l.turn }()
				_, err := lua.Release(ctx, p.rdb, g, lua.Ending{})
				return err
			}, nil
		}
		l.listen.Do(func() { l.subscribe(p.rdb, lua.UnlockChannel(name)) })
		select {
		case <-l.wake:
		case <-time.After(reply.TTL):
		case <-ctx.Done():
			<-l.turn
			return ctx, nil, ctx.Err()
		}
	}
}

func (p *plain) line(name string) *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.names[name]
	if l == nil {
		l = &line{turn: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
		p.names[name] = l
	}
	return l
}

// subscribe wakes the line with every message, and whenever a subscription is
// confirmed, as a message may have passed before.
func (l *line) subscribe(rdb *redis.Client, channel string) {
	l.sub = rdb.Subscribe(context.Background(), channel)
	go func() { // ends with sub
		for range l.sub.ChannelWithSubscriptions() {
			select {
			case l.wake <- struct{}{}:
			default:
			}
		}
	}()
}

func (p *plain) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, l := range p.names {
		if l.sub != nil {
			errs = append(errs, l.sub.Close())
		}
	}
	return errors.Join(append(errs, p.rdb.Close())...)
}
