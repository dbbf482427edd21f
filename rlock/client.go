package rlock

import (
	"context"
	"fmt"
	"hash/maphash"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/xid"

	"github.com/go-rlock/rlock/pubsub"
	"github.com/go-rlock/rlock/watchdog"
)

// Client makes locks on one Redis. Its waiters share one subscription
// connection and its leases one watchdog; both start with the first need and end
// when idle. It is safe for concurrent use.
type Client struct {
	id      string
	rdb     redis.UniversalClient
	scripts *commits // sends what callers wait for
	opts    Options
	grants  atomic.Uint64 // owner names given out
	hub     *pubsub.Hub
	family  *family
	reloads reloads
	dog     *watchdog.Scheduler[*grant]
	gates   [16]gates
	seed    maphash.Seed // by which a key has one of gates
	janitor janitor
	peer    peer
	tickets tickets

	active  atomic.Int64  // calls, grants and goroutines that Close waits for
	quiet   chan struct{} // capacity 1; told when active falls to zero
	closing chan struct{} // closed by the first Close
	closed  atomic.Bool

	warnPublish sync.Once // of a refused PUBLISH
}

// New returns a client that locks on rdb, which stays the caller's: its options
// are neither changed nor copied, and Close leaves it open. nil opts means
// defaults. Nothing is sent.
//
// A client with [redis.Options].ContextTimeoutEnabled is a little faster: go-redis
// then ends a request in time by itself, and if nothing else is under way it needs no
// goroutine of its own.
//
// rdb must lead to one server, a set of Sentinels or a cluster. A proxy that spreads
// keys over servers is for locks with [WithPolling] only: the scripts of other locks
// may have the keys of several.
//
// A [redis.Ring] is refused, because it moves keys to other shards when one is
// down, and so is a [redis.AutoPipeliner], because it repeats commands on its
// own; give the client underneath it. The error is [ErrInvalidOption].
func New(rdb redis.UniversalClient, opts *Options) (*Client, error) {
	switch rdb.(type) {
	case *redis.Ring:
		return nil, fmt.Errorf("%w: a Ring moves keys between shards, so that two owners could hold one lock: use a Client or a ClusterClient", ErrInvalidOption)
	case *redis.AutoPipeliner:
		return nil, fmt.Errorf("%w: an AutoPipeliner repeats whole batches on its own: give the client underneath it", ErrInvalidOption)
	}
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w: the Redis client is nil", ErrInvalidOption)
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{
		id:      xid.New().String(),
		rdb:     rdb,
		opts:    o,
		quiet:   make(chan struct{}, 1),
		closing: make(chan struct{}),
		seed:    maphash.MakeSeed(),
	}
	c.scripts = newCommits(rdb, c.background)
	c.janitor = janitor{client: c, wake: make(chan struct{}, 1)}
	if c.family, err = newFamily(c, o.ShardedPubSub); err != nil {
		return nil, err
	}
	c.hub = pubsub.NewHub(c.family, pubsub.Options{Logger: o.Logger})
	c.dog = watchdog.New(c.renew, watchdog.Options{Logger: o.Logger})
	return c, nil
}

// NewLock returns the lock of that name. It cannot fail and sends nothing; an
// invalid name or option is [ErrInvalidOption] from every method. Locks of the
// same name and client are the same lock; a Lock is safe for concurrent use and
// need not be kept.
//
// The name, behind the client's prefix, is the key in Redis. Names longer than
// 64 KiB, empty ones, and those whose braces would put key and channel into
// different cluster slots are invalid.
func (c *Client) NewLock(name string, opts ...LockOption) *Lock {
	l := c.newLock(name, opts)
	l.inTurn, l.grouped = true, l.replicas.n == 0 && l.polling == nil // behind a proxy, perhaps
	l.handoff = l.handoff.withDefaults(l.fixed)
	p := newPlain(c, c.opts.Prefix+name, l.fenced)
	l.protocol = p
	if l.replicas.n > 0 {
		l.protocol = newReplicated(l, p)
	}
	return l
}

// newLock returns a lock without a protocol yet.
func (c *Client) newLock(name string, opts []LockOption) *Lock {
	l := &Lock{client: c, gates: c.gatesOf(c.opts.Prefix + name), name: name, lease: c.opts.LeaseTime}
	for _, opt := range opts {
		opt(l)
	}
	err := checkName(c.opts.Prefix, name)
	if err == nil {
		err = checkLease(l.lease)
	}
	if err != nil {
		l.refuse(err)
	}
	l.lease = l.lease.Truncate(time.Millisecond) // what goes over the wire is what is trusted
	return l
}

// refuse makes every method of the lock return err as [ErrInvalidOption].
func (l *Lock) refuse(err error) {
	l.err = &lockError{l.name, ErrInvalidOption, err}
}

// owner returns a name for a new grant.
func (c *Client) owner() string {
	return c.id + ":" + strconv.FormatUint(c.grants.Add(1), 10)
}

// Close ends the client gracefully. Waiting calls return [ErrClosed] and held
// contexts end with it as their cause; holders unlock as always, and until they
// have, their leases are renewed. What callers left behind is released at once.
// Close returns when all of that is done, or when ctx is over, with its cause;
// then renewal stops and what is still held ends with its lease. Do not call it
// while holding a lock in the same goroutine. Calling it again waits again.
//
// A request that hangs inside go-redis ends by the time-outs of that client.
func (c *Client) Close(ctx context.Context) error {
	if c.closed.CompareAndSwap(false, true) {
		close(c.closing)
		for i := range c.gates {
			c.gates[i].rouse()
			for _, g := range c.gates[i].all() {
				g.interrupt(ErrClosed)
			}
		}
		c.janitor.flush()
	}
	err := c.wait(ctx)
	if dogErr := c.dog.Close(ctx); err == nil {
		err = dogErr
	}
	if hubErr := c.hub.Close(ctx); err == nil {
		err = hubErr
	}
	return err
}

func (c *Client) wait(ctx context.Context) error {
	for c.active.Load() != 0 {
		select {
		case <-c.quiet:
		case <-ctx.Done():
			return fmt.Errorf("rlock: close: %w", ended(ctx))
		}
	}
	c.signal() // for another Close that waits as well
	return nil
}

// begin admits a call; done is its end.
func (c *Client) begin() error {
	c.active.Add(1)
	if c.closed.Load() {
		c.done()
		return ErrClosed
	}
	return nil
}

func (c *Client) done() {
	if c.active.Add(-1) == 0 {
		c.signal()
	}
}

func (c *Client) signal() {
	select {
	case c.quiet <- struct{}{}:
	default:
	}
}

// background runs f in a goroutine that Close waits for.
func (c *Client) background(f func()) {
	c.active.Add(1)
	go func() {
		defer c.done()
		f()
	}()
}
