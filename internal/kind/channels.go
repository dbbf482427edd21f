package kind

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/pubsub"
)

var errUnknownChannels = errors.New("it is not known yet whether the cluster has sharded channels")

// Sharding says by which channels the clients of a cluster send each other messages.
type Sharding int

// Ways of sharding. They are explained where package rlock exports them.
const (
	ShardingAuto Sharding = iota
	ShardingOn
	ShardingOff
	ShardingBoth
)

// Channels finds out which kind of channels a client uses. The hub asks it for their servers.
type Channels struct {
	rdb        redis.UniversalClient
	id         string
	background func(func())
	cluster    *redis.ClusterClient // nil if the client is not that of one
	probe      string

	found  atomic.Pointer[channelSet] // nil as long as it is not known
	asking atomic.Bool                // in the background
}

// channelSet is a kind of channel, and its servers.
type channelSet struct {
	lua.ChannelKind
	pubsub.Servers
}

// NewChannels does not ask yet. id is that of the client, background runs a function in
// a goroutine that the client waits for. Only a cluster has sharded channels.
func NewChannels(rdb redis.UniversalClient, id string, background func(func()), mode Sharding) *Channels {
	// The probe's channel has the form of an unlock channel, so that an ACL rule
	// for those covers it.
	c := &Channels{rdb: rdb, id: id, background: background, probe: lua.Related("redisson_lock__channel", "rlock-probe:"+id)}
	cluster, _ := rdb.(*redis.ClusterClient)
	c.cluster = cluster
	switch {
	case cluster == nil || mode == ShardingOff:
		c.found.Store(c.ordinary())
	case mode == ShardingBoth:
		c.found.Store(&channelSet{lua.Both, pubsub.Both(cluster, c.shardProbe())})
	case mode == ShardingOn:
		c.found.Store(&channelSet{lua.Sharded, pubsub.Sharded(cluster, c.shardProbe())})
	}
	return c
}

// ordinary are channels that are not sharded. With a ClusterSlots function the servers may be no
// cluster, so that a message stays on the server where it is published.
func (c *Channels) ordinary() *channelSet {
	if c.cluster != nil && c.cluster.Options().ClusterSlots != nil {
		return &channelSet{lua.Ordinary, pubsub.Plain(c.cluster, c.shardProbe())}
	}
	return &channelSet{lua.Ordinary, pubsub.Redis(c.rdb, c.probe)}
}

// shardProbe is what the names of sharded probes begin with; a hash tag follows.
func (c *Channels) shardProbe() string {
	return "redisson_lock__channel:rlock-probe:" + c.id + ":"
}

// now returns the kind of channel to announce something on. It does not block: while the answer
// of the cluster is not known, messages are sent on both.
func (c *Channels) now() lua.ChannelKind {
	if p := c.found.Load(); p != nil {
		return p.ChannelKind
	}
	if c.asking.CompareAndSwap(false, true) {
		c.background(func() {
			defer c.asking.Store(false)
			ctx, cancel := context.WithTimeout(context.Background(), MaxAttempt)
			defer cancel()
			c.Refresh(ctx)
		})
	}
	return lua.Both
}

// Find fails until Refresh has found out.
func (c *Channels) Find(ctx context.Context, channel string) (string, error) {
	if p := c.found.Load(); p != nil {
		return p.Find(ctx, channel)
	}
	return "", errUnknownChannels
}

// Refresh asks the cluster if its answer is not known.
func (c *Channels) Refresh(ctx context.Context) {
	if p := c.found.Load(); p != nil {
		p.Refresh(ctx)
		return
	}
	sharded, err := pubsub.HasSharded(ctx, c.cluster)
	switch {
	case err != nil: // no answer
	case sharded:
		c.found.CompareAndSwap(nil, &channelSet{lua.Sharded, pubsub.Sharded(c.cluster, c.shardProbe())})
	default:
		c.found.CompareAndSwap(nil, c.ordinary())
	}
}

// Open is called for what Find has found.
func (c *Channels) Open(ctx context.Context, server, channel string) (pubsub.Source, error) {
	return c.found.Load().Open(ctx, server, channel)
}

// Hearing is how the client receives grants; Deaf as long as that is not known.
func (c *Channels) Hearing() lua.Hearing {
	switch p := c.found.Load(); {
	case p == nil:
		return lua.Deaf
	case p.ChannelKind != lua.Ordinary:
		return lua.ShardHeard
	case c.cluster != nil:
		return lua.Uncounted
	}
	return lua.Counted
}
