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

// Sharding selects the channels for messages between the clients of a cluster.
type Sharding int

// Ways of sharding. Package rlock exports and explains the constants.
const (
	ShardingAuto Sharding = iota
	ShardingOn
	ShardingOff
	ShardingBoth
)

// Channels finds out the kind of a client's channels. The hub asks Channels for their servers.
type Channels struct {
	rdb        redis.UniversalClient
	id         string
	background func(func())
	cluster    *redis.ClusterClient // nil without a cluster
	probe      string

	found  atomic.Pointer[channelSet] // nil as long as the kind is unknown
	asking atomic.Bool                // in the background
}

// channelSet is a kind of channel, how a client receives grants there, and the servers of the channels.
type channelSet struct {
	lua.ChannelKind
	hearing lua.Hearing
	pubsub.Servers
}

// NewChannels does not ask the cluster yet. id is the client's id. background runs a function in
// a goroutine; the client's Close waits for the goroutine. Only a cluster has sharded channels.
func NewChannels(rdb redis.UniversalClient, id string, background func(func()), mode Sharding) *Channels {
	// The probe's channel has the form of an unlock channel, so an ACL rule for
	// unlock channels covers the probe.
	c := &Channels{rdb: rdb, id: id, background: background, probe: lua.Related("redisson_lock__channel", "rlock-probe:"+id)}
	cluster, _ := rdb.(*redis.ClusterClient)
	c.cluster = cluster
	switch {
	case cluster == nil || mode == ShardingOff:
		c.found.Store(c.ordinary())
	case mode == ShardingBoth:
		c.found.Store(&channelSet{lua.Both, lua.ShardHeard, pubsub.Both(cluster, c.shardProbe())})
	case mode == ShardingOn:
		c.found.Store(&channelSet{lua.Sharded, lua.ShardHeard, pubsub.Sharded(cluster, c.shardProbe())})
	}
	return c
}

// ordinary returns unsharded channels. With a ClusterSlots function the servers may be no
// cluster; then a published message stays on one server.
func (c *Channels) ordinary() *channelSet {
	switch {
	case c.cluster == nil:
		return &channelSet{lua.Ordinary, lua.Counted, pubsub.Redis(c.rdb, c.probe)}
	case c.cluster.Options().ClusterSlots != nil:
		return &channelSet{lua.Ordinary, lua.Uncounted, pubsub.Plain(c.cluster, c.shardProbe())}
	}
	return &channelSet{lua.Ordinary, lua.Uncounted, pubsub.Redis(c.rdb, c.probe)}
}

// shardProbe is the prefix in the names of sharded probes; a hash tag follows.
func (c *Channels) shardProbe() string {
	return "redisson_lock__channel:rlock-probe:" + c.id + ":"
}

// Now returns the kind of channel for a message. Now does not block: until the cluster has
// answered, messages go to both kinds.
func (c *Channels) Now() lua.ChannelKind {
	if p := c.found.Load(); p != nil {
		return p.ChannelKind
	}
	c.findOut()
	return lua.Both
}

// findOut asks the cluster in the background, unless a question is under way.
func (c *Channels) findOut() {
	if !c.asking.CompareAndSwap(false, true) {
		return
	}
	c.background(func() {
		defer c.asking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), MaxAttempt)
		defer cancel()
		c.Refresh(ctx)
	})
}

// Find fails until Refresh has found out the kind of channel.
func (c *Channels) Find(ctx context.Context, channel string) (string, error) {
	if p := c.found.Load(); p != nil {
		return p.Find(ctx, channel)
	}
	return "", errUnknownChannels
}

// Refresh asks the cluster, unless the cluster has answered already.
func (c *Channels) Refresh(ctx context.Context) {
	if p := c.found.Load(); p != nil {
		p.Refresh(ctx)
		return
	}
	sharded, err := pubsub.HasSharded(ctx, c.cluster)
	switch {
	case err != nil: // no answer
	case sharded:
		c.found.CompareAndSwap(nil, &channelSet{lua.Sharded, lua.ShardHeard, pubsub.Sharded(c.cluster, c.shardProbe())})
	default:
		c.found.CompareAndSwap(nil, c.ordinary())
	}
}

// Open is called with a server from Find.
func (c *Channels) Open(ctx context.Context, server, channel string) (pubsub.Source, error) {
	return c.found.Load().Open(ctx, server, channel)
}

// Hearing is how the client receives grants; Deaf as long as the kind of channel is unknown.
func (c *Channels) Hearing() lua.Hearing {
	if p := c.found.Load(); p != nil {
		return p.hearing
	}
	return lua.Deaf
}
