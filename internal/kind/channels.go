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
	id         string
	background func(func())
	cluster    *redis.ClusterClient // nil if the client is not that of one
	probe      string

	found  atomic.Pointer[place] // nil as long as it is not known
	asking atomic.Bool           // in the background
}

// place is a kind of channel, and its servers.
type place struct {
	lua.ChannelKind
	pubsub.Servers
}

// NewChannels does not ask yet. id is that of the client, background runs a function in
// a goroutine that the client waits for. Only a cluster has sharded channels.
func NewChannels(rdb redis.UniversalClient, id string, background func(func()), mode Sharding) *Channels {
	// The probe's channel has the form of an unlock channel, so that an ACL rule
	// for those covers it.
	f := &Channels{id: id, background: background, probe: lua.Related("redisson_lock__channel", "rlock-probe:"+id)}
	cluster, _ := rdb.(*redis.ClusterClient)
	f.cluster = cluster
	switch {
	case cluster == nil || mode == ShardingOff:
		f.found.Store(&place{lua.Ordinary, pubsub.Redis(rdb, f.probe)})
	case mode == ShardingBoth:
		f.found.Store(&place{lua.Both, pubsub.Both(cluster, f.shardProbe())})
	case mode == ShardingOn:
		f.found.Store(&place{lua.Sharded, pubsub.Sharded(cluster, f.shardProbe())})
	}
	return f
}

// shardProbe is what the names of sharded probes begin with; a hash tag follows.
func (f *Channels) shardProbe() string {
	return "redisson_lock__channel:rlock-probe:" + f.id + ":"
}

// now returns the kind of channel to announce something on. It does not block: while the answer
// of the cluster is not known, messages are sent on both.
func (f *Channels) now() lua.ChannelKind {
	if p := f.found.Load(); p != nil {
		return p.ChannelKind
	}
	if f.asking.CompareAndSwap(false, true) {
		f.background(func() {
			defer f.asking.Store(false)
			ctx, cancel := context.WithTimeout(context.Background(), MaxAttempt)
			defer cancel()
			f.Refresh(ctx)
		})
	}
	return lua.Both
}

// Find fails until Refresh has found out.
func (f *Channels) Find(ctx context.Context, channel string) (string, error) {
	if p := f.found.Load(); p != nil {
		return p.Find(ctx, channel)
	}
	return "", errUnknownChannels
}

// Refresh asks the cluster if its answer is not known.
func (f *Channels) Refresh(ctx context.Context) {
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
func (f *Channels) Open(ctx context.Context, server, channel string) (pubsub.Source, error) {
	return f.found.Load().Open(ctx, server, channel)
}

// Hearing is how the client receives grants; Deaf as long as that is not known.
func (f *Channels) Hearing() lua.Hearing {
	switch p := f.found.Load(); {
	case p == nil:
		return lua.Deaf
	case p.ChannelKind != lua.Ordinary:
		return lua.ShardHeard
	case f.cluster != nil:
		return lua.Uncounted
	}
	return lua.Counted
}
