package rlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
)

// ShardedPubSub says by which channels the clients of a Redis Cluster tell each
// other that a lock is free. Those of PUBLISH reach every node, and so every
// waiter, for the price of a message to every node; those of SPUBLISH stay on the
// node of the lock. Who listens to one does not hear the other.
//
// A mismatch does no harm to exclusion: who does not hear of a release notices it
// when the holder's lease would have ended. A fleet that is about to change sets
// ShardedBoth everywhere, which hears and tells all, then what it changes to. So
// do Go processes beside Redisson ones that do not agree. Redisson's own setting,
// shardedSubscriptionMode, has the values and the rule of Auto, On and Off; it
// asks the first node that it reaches, once, when it starts.
type ShardedPubSub int

const (
	// ShardedAuto is ShardedOn in a cluster whose servers have sharded channels
	// (Redis 7 or later) and permit PUBSUB SHARDNUMSUB, and otherwise ShardedOff.
	// The client asks once, beside its first requests; until it knows, it announces
	// releases in both ways.
	ShardedAuto ShardedPubSub = iota
	// ShardedOn uses SPUBLISH and SSUBSCRIBE, in a cluster only.
	ShardedOn
	// ShardedOff uses PUBLISH and SUBSCRIBE.
	ShardedOff
	// ShardedBoth uses all of them, in a cluster only. Each message is sent twice,
	// and heard twice by clients that do the same.
	ShardedBoth
)

var errFamily = errors.New("it is not known yet whether the cluster has sharded channels")

// family finds out which channels a client uses. It is what the hub asks for their
// servers.
type family struct {
	client  *Client
	cluster *redis.ClusterClient // to be asked; nil if there is nothing to ask
	probe   string

	found  atomic.Pointer[place] // nil as long as it is not known
	asking atomic.Bool           // in the background
}

// place is a family, and its servers.
type place struct {
	lua.Family
	pubsub.Servers
}

// newFamily does not ask yet.
func newFamily(c *Client, mode ShardedPubSub) (*family, error) {
	// The probe's channel has the form of an unlock channel, so that an ACL rule
	// for those covers it.
	f := &family{client: c, probe: related("redisson_lock__channel", "rlock-probe:"+c.id)}
	cluster, ok := c.rdb.(*redis.ClusterClient)
	switch {
	case mode < ShardedAuto || mode > ShardedBoth:
		return nil, fmt.Errorf("%w: Options.ShardedPubSub: there is no %d", ErrInvalidOption, mode)
	case !ok && (mode == ShardedOn || mode == ShardedBoth):
		return nil, fmt.Errorf("%w: Options.ShardedPubSub: sharded channels are those of a cluster: use a ClusterClient", ErrInvalidOption)
	case !ok || mode == ShardedOff:
		f.found.Store(&place{lua.Ordinary, pubsub.Redis(c.rdb, f.probe)})
	case mode == ShardedBoth:
		f.found.Store(&place{lua.Both, pubsub.Both(cluster, f.shardProbe())})
	case mode == ShardedOn:
		f.found.Store(&place{lua.Sharded, pubsub.Sharded(cluster, f.shardProbe())})
	default:
		f.cluster = cluster
	}
	return f, nil
}

// shardProbe is what the names of sharded probes begin with; a hash tag follows.
func (f *family) shardProbe() string {
	return "redisson_lock__channel:rlock-probe:" + f.client.id + ":"
}

// now returns the family in which to announce something. It does not wait: while
// the answer is not known, whoever listens is told.
func (f *family) now() lua.Family {
	if p := f.found.Load(); p != nil {
		return p.Family
	}
	if f.asking.CompareAndSwap(false, true) {
		f.client.background(func() {
			defer f.asking.Store(false)
			ctx, cancel := context.WithTimeout(context.Background(), maxAttempt)
			defer cancel()
			f.Refresh(ctx)
		})
	}
	return lua.Both
}

// Find fails until Refresh has found out.
func (f *family) Find(ctx context.Context, channel string) (string, error) {
	if p := f.found.Load(); p != nil {
		return p.Find(ctx, channel)
	}
	return "", errFamily
}

// Refresh asks the cluster if its answer is not known.
func (f *family) Refresh(ctx context.Context) {
	if p := f.found.Load(); p != nil {
		p.Refresh(ctx)
		return
	}
	sharded, err := pubsub.HasSharded(ctx, f.cluster)
	switch {
	case err != nil: // no answer
	case sharded:
		f.found.CompareAndSwap(nil, &place{lua.Sharded, pubsub.Sharded(f.cluster, f.shardProbe())})
	default:
		f.found.CompareAndSwap(nil, &place{lua.Ordinary, pubsub.Redis(f.cluster, f.probe)})
	}
}

// Open is called for what Find has found.
func (f *family) Open(ctx context.Context, server, channel string) (pubsub.Source, error) {
	return f.found.Load().Open(ctx, server, channel)
}

// echoes is how often a client hears its own message.
func (f *family) echoes() int64 {
	if p := f.found.Load(); p != nil && p.Family == lua.Both {
		return 2
	}
	return 1
}

// A client asks who the masters are so often at once, as a question may hang on the
// very node that has failed, but not more often than every reloadPause.
const (
	maxReloads  = 12
	reloadPause = 200 * time.Millisecond
)

// reloads are questions who the masters are.
type reloads struct {
	mu     sync.Mutex
	open   int
	newest time.Time
}

// begin reports whether another one is due; if so, end must follow.
func (r *reloads) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == maxReloads || time.Since(r.newest) < reloadPause {
		return false
	}
	r.open++
	r.newest = time.Now()
	return true
}

func (r *reloads) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
}

// reload has a cluster's client look for the masters anew, in the background,
// because a request got no answer. go-redis does so only before it repeats a
// request, which it must not do here; its own map may be a minute old. Its
// ReloadState waits for a question that hangs.
func (c *Client) reload(rdb redis.UniversalClient) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok || !c.reloads.begin() {
		return
	}
	c.background(func() {
		defer c.reloads.end()
		_ = cluster.ForEachMaster(context.Background(), func(context.Context, *redis.Client) error { return nil }) // loads the map
	})
}

// leavePause is how often an attempt without an answer looks for another master.
const leavePause = 100 * time.Millisecond

// leave ends an attempt to reach the lock when its master has been replaced, as the
// former one may stay silent. The caller stops the timer when the attempt is over.
func (l *Lock) leave(attempt context.Context, cluster *redis.ClusterClient, end func()) *time.Timer {
	master := func() *redis.Client {
		rdb, _ := cluster.MasterForKey(attempt, l.client.opts.Prefix+l.name)
		return rdb
	}
	former := master()
	return time.AfterFunc(leavePause, func() {
		l.client.background(func() {
			for attempt.Err() == nil && master() == former {
				l.client.reload(cluster)
				select {
				case <-time.After(leavePause):
				case <-attempt.Done():
				}
			}
			end()
		})
	})
}
