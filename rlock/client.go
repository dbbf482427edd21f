package rlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/xid"

	"github.com/go-rlock/rlock/internal/janitor"
	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/report"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/pubsub"
	"github.com/go-rlock/rlock/watchdog"
)

// Client makes locks on one Redis server, Sentinel deployment or cluster. Its methods are safe for
// concurrent use. All waiting calls of a client share one connection for messages, or one to each
// master in use if the cluster has sharded channels. One goroutine, the watchdog, renews all leases.
// The connection and the watchdog start when they are first needed, and end when they have been idle
// for a while.
type Client struct {
	id    string
	given atomic.Uint64 // owners named so far
	opts  Options

	server   kind.Server     // what the kinds see of the client
	scripts  request.Carrier // of what callers wait for
	sweeps   request.Carrier // of what callers have left behind
	reloads  request.Reloads
	copies   request.Copies
	classify func(error) (o request.Outcome, final bool) // outcomeOf: a field saves each request an allocation
	slotted  atomic.Bool                                 // a server that is no cluster for go-redis refuses keys of several slots

	queues  queueSet
	groups  groups
	calls   sync.Pool // of waiters: see waiter.free
	joins   queues    // of what was joined: nobody waits in them
	dog     *watchdog.Scheduler[*grant]
	places  kind.Places // for renewals
	janitor janitor.Janitor

	log          *slog.Logger // writes through reports
	reports      report.Queue
	records      records      // on the server
	warnPublish  sync.Once    // of a refused PUBLISH
	warnOwnWaits sync.Once    // of a client that waits for itself
	warnedAt     atomic.Int64 // when a long wait was logged last, in milliseconds: see mayWarn

	active  atomic.Int64  // calls, grants and goroutines that Close waits for
	quiet   chan struct{} // capacity 1; sent to when active falls to zero
	closing chan struct{} // closed by the first Close
	looking chan struct{} // capacity 1: holds the look for deadlocks in progress, see follow
	closed  atomic.Bool
}

// New returns a client that locks on rdb. Nil opts means the defaults. New sends nothing to Redis. It
// does not change or copy the options of rdb, and [Client.Close] does not close rdb.
//
// Set ContextTimeoutEnabled in the [redis.Options] of rdb, because this makes the client a little
// faster. go-redis then ends a request in time by itself, so the client can send a request from the
// calling goroutine if no other request is in progress. However, a hook of your application that blocks
// can then delay the return of a lock call beyond the end of its context.
//
// rdb must be connected to one server, one set of Sentinels or one cluster. With a proxy that
// distributes keys over several servers, use only locks made with [WithPolling], because the scripts of
// other locks use several keys.
//
// New returns [ErrInvalidOption] for three types of rdb. A [redis.Ring] moves keys to other shards when
// one is down. A [redis.AutoPipeliner] repeats commands, so pass the client underneath it. A cluster
// client must not have MaxRedirects -1 in its [redis.ClusterOptions]. New cannot look into a type of
// your own that wraps one of these clients, so New accepts it. You must make sure yourself that your
// type does not wrap a Ring, an AutoPipeliner, or a cluster client with MaxRedirects -1.
func New(rdb redis.UniversalClient, opts *Options) (*Client, error) {
	switch rdb.(type) {
	case *redis.Ring:
		return nil, fmt.Errorf("%w: a Ring moves keys between shards, so that two owners could hold one lock: use a Client or a ClusterClient", ErrInvalidOption)
	case *redis.AutoPipeliner:
		return nil, fmt.Errorf("%w: an AutoPipeliner repeats whole batches on its own: give the client underneath it", ErrInvalidOption)
	}
	switch v := reflect.ValueOf(rdb); {
	case !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil():
		return nil, fmt.Errorf("%w: the Redis client is nil", ErrInvalidOption)
	case !v.Comparable():
		return nil, fmt.Errorf("%w: a %T cannot be compared: give a pointer to it", ErrInvalidOption, rdb)
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok && cluster.Options().MaxRedirects <= 0 { // it was -1, or less
		return nil, fmt.Errorf("%w: redis.ClusterOptions.MaxRedirects: without redirections, locks in a slot that moves are lost: leave it at its default", ErrInvalidOption)
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{opts: o, calls: sync.Pool{New: newCall}}
	c.id = newID()
	c.queues.init()
	c.groups.init()
	c.joins.init()
	c.quiet, c.closing, c.looking = make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 1)
	c.server.RDB = rdb
	channels, err := c.channels(o.ShardedPubSub)
	if err != nil {
		return nil, err
	}
	c.reports.Dropped = func(n int) {
		o.Logger.Warn("rlock: what there was to report was too much for Logger and Trace, or they took too long", "dropped", n)
	}
	c.log = c.reports.Logger(o.Logger)
	hub := pubsub.NewHub(channels, pubsub.Options{Logger: c.log})
	c.reloads.Background, c.copies.Background = c.background, c.background
	c.classify = c.outcomeOf
	c.scripts, c.sweeps = newCarrier(c, maxSenders), newCarrier(c, maxSweeps)
	c.janitor.Hosting = janitor.Hosting{Begin: c.more, End: c.done, Classify: c.classify}
	c.server = kind.Server{
		ID: c.id, RDB: rdb, Log: c.log, Scripts: c.scripts, Trailed: newCarrier(c, maxTrailed), Hub: hub, Channels: channels,
		Owner: func() string { return c.newOwner("") }, Background: c.background, Sweep: c.sweep, Sleep: c.sleep,
		Closed: func() error {
			if c.closed.Load() {
				return ErrClosed
			}
			return nil
		},
	}
	c.dog = watchdog.New(c.renew, watchdog.Options{Logger: c.log})
	c.keepRecords()
	return c, nil
}

// newID returns the id of a client: an xid of which all but the time is random. Containers of
// one image often have the machine and the process number in common, so three random bytes of an
// ordinary one would be all that tells their clients apart. Two clients of one id could be one owner.
func newID() string {
	id := xid.New()
	const time = 4
	_, _ = rand.Read(id[time:]) // never fails
	return id.String()
}

// channels returns what finds the channels of the client, by the option of that name.
func (c *Client) channels(mode ShardedPubSub) (*kind.Channels, error) {
	_, cluster := c.server.RDB.(*redis.ClusterClient)
	switch {
	case mode < ShardedAuto || mode > ShardedBoth:
		return nil, fmt.Errorf("%w: Options.ShardedPubSub: there is no %d", ErrInvalidOption, mode)
	case !cluster && (mode == ShardedOn || mode == ShardedBoth):
		return nil, fmt.Errorf("%w: Options.ShardedPubSub: sharded channels are those of a cluster: use a ClusterClient", ErrInvalidOption)
	}
	return kind.NewChannels(c.server.RDB, c.id, c.background, kind.Sharding(mode)), nil // the same values
}

// NewLock returns the lock of a name. NewLock cannot fail and sends nothing to Redis. If the name or an
// option is invalid, every method of the lock returns [ErrInvalidOption]. Two locks of the same client
// with the same name are the same lock, so you need not keep a Lock. Its methods are safe for
// concurrent use.
//
// The key in Redis is the client's prefix followed by the name. A name must not be empty, and must not
// be longer than 64 KiB. A name must not contain braces that would put the key and the channel of the
// lock into different cluster slots.
//
// Clients that wait for the lock form a queue in Redis. A release passes the lock to the first client
// in the queue by one message. However, a call that finds the lock free acquires it even if other
// clients are queued. See the documentation of the package.
func (c *Client) NewLock(name string, opts ...LockOption) *Lock {
	l := c.newLock(name, plainKind, opts)
	l.terms.handoff = l.terms.handoff.withDefaults(l.terms.fixed)
	p := kind.NewPlain(&c.server, c.opts.Prefix+name, l.terms.fenced)
	if l.terms.tickets = !l.terms.polls; l.terms.tickets {
		p = kind.NewQueued(&c.server, c.opts.Prefix+name, l.terms.fenced)
	}
	l.use(p)
	if l.terms.replicas.n > 0 {
		l.use(l.replicated(p))
	}
	return l
}

// newLock returns a lock without its requests: see Lock.use.
func (c *Client) newLock(name string, kind kindNumber, opts []LockOption) *Lock {
	l := &Lock{client: c, name: name, kind: kind}
	o := lockOptions{terms: terms{lease: c.opts.LeaseTime}}
	for _, opt := range opts {
		if opt == nil {
			l.refuse(errors.New("an option is nil"))
		} else if err := opt(&o); err != nil {
			l.refuse(err)
		}
	}
	l.terms, l.purpose, l.endsDeadlock = o.terms, o.purpose, o.endsDeadlock
	if err := cmp.Or(checkName(c.opts.Prefix, name), checkLease(l.terms.lease)); err != nil {
		l.refuse(err)
	}
	l.terms.lease = l.terms.lease.Truncate(time.Millisecond) // what goes over the wire is what is trusted
	return l
}

// noLock is a lock of no client, for an error of its constructor.
func noLock(name string, kind kindNumber) *Lock {
	c := &Client{calls: sync.Pool{New: newCall}}
	return &Lock{client: c, name: name, kind: kind, queues: &c.queues.shards[0], group: &c.groups.none, counters: &c.groups.none.counters[0]}
}

// replicated adds what l.replicas asks for to its plain lock.
func (l *Lock) replicated(p *kind.Plain) kind.Kind {
	// An attempt may ask twice, if the server has to learn the script.
	if most := min(l.terms.lease/10, 500*time.Millisecond); l.terms.replicas.timeout > most && l.err == nil {
		l.refuse(fmt.Errorf("WithReplicas: %v is too long: at most a tenth of the lease of %v, and 500ms, so %v here", l.terms.replicas.timeout, l.terms.lease, most))
	}
	if most := readTimeout(l.client.server.RDB); most > 0 && l.terms.replicas.timeout >= most && l.err == nil {
		l.refuse(fmt.Errorf("WithReplicas: %v is too long for the ReadTimeout of the client, which is %v: go-redis would give the answer up", l.terms.replicas.timeout, most))
	}
	return &kind.Replicated{Plain: p, Want: l.terms.replicas.n, Timeout: l.terms.replicas.timeout}
}

// readTimeout is how long a client waits for an answer; 0 if that is not bounded, or not known.
func readTimeout(rdb redis.UniversalClient) time.Duration {
	switch rdb := rdb.(type) {
	case *redis.Client:
		return max(rdb.Options().ReadTimeout, 0)
	case *redis.ClusterClient:
		return max(rdb.Options().ReadTimeout, 0)
	}
	return 0
}

// refuse makes every method of the lock return err as [ErrInvalidOption].
func (l *Lock) refuse(err error) {
	l.err = &lockError{l.name, ErrInvalidOption, err}
}

// Close closes the client. First, waiting calls return [ErrClosed], and the contexts of all holds are
// canceled with the cause ErrClosed. The holders still have to unlock, and until they do, their leases
// are renewed. Requests that callers have abandoned are cleaned up in Redis at once. Close then waits
// until all locks are unlocked and nothing is left to clean up, and returns nil.
//
// If ctx ends first, Close returns the cause of ctx. The client then stops renewing leases, and each
// lock that is still held is lost and ends with its lease. If nothing is held and no request is in
// progress, Close succeeds even if ctx has ended. A second Close waits like the first. Do not call
// Close in a goroutine that holds a lock, or in a function of Logger or Trace, because Close would wait
// for its own caller.
//
// Pass a context with a timeout of its own. A context that a signal has already ended leaves the
// holders no time to unlock. Close does not let work finish, so wait for your work before you call
// Close.
//
// A request that hangs inside go-redis ends after the timeouts of that go-redis client. A release that
// Redis refuses or does not answer is repeated until Redis answers. After Close has been called, it is
// repeated only until the lease ends. The client repeats such releases even after Close has returned
// because of ctx, as long as the go-redis client is open.
func (c *Client) Close(ctx context.Context) error {
	var held []*grant
	if c.closed.CompareAndSwap(false, true) {
		close(c.closing)
		held = append(c.queues.close(), c.joins.close()...)
		for _, g := range held {
			g.interrupt(ErrClosed)
		}
		c.janitor.Flush()
	}
	err, rest := c.wait(ctx), ctx
	if ctx.Err() != nil { // what is left ends by itself
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		rest = grace
	}
	// All are called in any case. The renewals that the second ends may have a cluster's
	// masters looked for.
	err = cmp.Or(err, c.dog.Close(rest), c.server.Hub.Close(rest), c.wait(rest))
	c.records.Close(rest)
	what := stillHeld(held)
	if reportErr := c.reports.Wait(rest); err == nil && reportErr != nil {
		err, what = reportErr, "Logger or Trace: "
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = ended(ctx)
	}
	return fmt.Errorf("rlock: close: %s%w", what, err)
}

// stillHeld names the locks of grants with a hold that is not unlocked, for the error of
// Close; "" if there is none.
func stillHeld(grants []*grant) string {
	var names []string
	for _, g := range grants {
		if g.count() > 0 {
			names = append(names, strconv.Quote(g.lock.name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	names = slices.Compact(names)
	const most = 5
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	return "still held: " + strings.Join(names, ", ") + " (a missing Unlock?): "
}
