package pubsub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sharded returns what [NewHub] needs for sharded channels, SSUBSCRIBE and
// SPUBLISH, in a cluster of Redis 7 or later. There is one connection to each
// master that serves a channel somebody waits on.
//
// probe is the beginning of names that nobody else uses for channels, without
// braces. It is used as in [Redis], with the hash tag of a channel behind it:
// such a probe is in the slot of the channel, and so on its server.
func Sharded(cluster *redis.ClusterClient, probe string) Servers {
	return &masters{cluster: cluster, probe: probe}
}

// Both is a [Sharded] that hears ordinary channels as well, SUBSCRIBE and
// PUBLISH, for a fleet that does not agree on the kind. What is published in
// both is heard twice.
func Both(cluster *redis.ClusterClient, probe string) Servers {
	return &masters{cluster: cluster, probe: probe, both: true}
}

// Plain returns what [NewHub] needs for ordinary channels of several servers that are no
// cluster, among which [redis.ClusterOptions.ClusterSlots] divides the slots: PUBLISH reaches
// nobody at another of them. There is one connection to each, as in [Sharded].
func Plain(cluster *redis.ClusterClient, probe string) Servers {
	return &masters{cluster: cluster, probe: probe, plain: true}
}

// HasSharded reports whether the servers form a cluster with sharded channels,
// and let this user ask. An error is no answer: it is worth asking again.
func HasSharded(ctx context.Context, cluster *redis.ClusterClient) (bool, error) {
	for _, ask := range []func() error{
		// Not everything behind a ClusterClient is a cluster. Valkey 9 answers CLUSTER
		// KEYSLOT also where it is none; the slots have owners only in one.
		func() error { return cluster.Do(ctx, "cluster", "slots").Err() },
		func() error { return cluster.PubSubShardNumSub(ctx, "0").Err() },
	} {
		err := ask()
		reply, answer := errors.AsType[redis.Error](err)
		switch {
		case err == nil:
		case !answer, passing(reply):
			return false, err
		default:
			return false, nil
		}
	}
	return true, nil
}

// passing tells of an error reply that says nothing of sharded channels: the server is busy,
// or this user does not exist yet.
func passing(reply redis.Error) bool {
	code, _, _ := strings.Cut(reply.Error(), " ")
	switch code {
	case "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "NOAUTH", "WRONGPASS":
		return true
	}
	return false
}

// masters are those of a cluster, called by their addresses.
type masters struct {
	cluster *redis.ClusterClient
	probe   string
	both    bool
	plain   bool // ordinary channels, and no sharded ones
}

func (m *masters) Find(ctx context.Context, channel string) (string, error) {
	rdb, err := m.cluster.MasterForKey(ctx, channel)
	if err != nil {
		return "", err
	}
	return rdb.Options().Addr, nil
}

// Refresh loads the client's map of the slots, which otherwise is a minute old
// unless a command was redirected. ForEachMaster does, and no other exported
// method waits for it. A map that was long in coming may be that of a node which
// had stood still, and older than the one it replaces: then another is loaded.
func (m *masters) Refresh(ctx context.Context) {
	asked := time.Now()
	m.load(ctx)
	if time.Since(asked) > time.Second {
		m.load(ctx)
	}
}

func (m *masters) load(ctx context.Context) {
	_ = m.cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
}

// Open uses the client of the node, because a PubSub of the cluster's would go
// wherever it thinks that its first channel is.
func (m *masters) Open(ctx context.Context, server, channel string) (Source, error) {
	rdb, err := m.cluster.MasterForKey(ctx, channel)
	if err != nil {
		return nil, err
	}
	if addr := rdb.Options().Addr; addr != server {
		return nil, fmt.Errorf("%w: %s", errElsewhere, addr)
	}
	ps := rdb.Subscribe(ctx) // without channels: no I/O
	s := &redisSource{
		rdb: m.cluster, ps: ps, probe: m.probe + "{" + tag(channel) + "}", counts: true,
		subscribe: ps.SSubscribe, unsubscribe: ps.SUnsubscribe, publish: redis.Pipeliner.SPublish,
	}
	if m.plain {
		s.subscribe, s.unsubscribe, s.publish = ps.Subscribe, ps.Unsubscribe, redis.Pipeliner.Publish
	}
	s.counted.Store(true)
	if err := s.begin(ctx); err != nil || !m.both {
		return s, err
	}
	return &bothSource{redisSource: s}, nil
}

// tag returns the part of a name that decides its slot.
func tag(name string) string {
	if _, rest, ok := strings.Cut(name, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return name
}
