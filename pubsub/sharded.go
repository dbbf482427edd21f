package pubsub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sharded returns the [Servers] of sharded channels, which use SSUBSCRIBE and SPUBLISH in a cluster of Redis 7
// or later. The [Hub] opens one connection to each master on which it has subscribed to a channel.
//
// probe is the prefix of the names of further channels, with which only the hub tests its connections, as
// described at [Redis]. The text probe must not contain braces. The hub appends the hash tag of a channel to
// this prefix, so the test channel is in the same slot, and therefore on the same server, as that channel.
func Sharded(cluster *redis.ClusterClient, probe string) Servers {
	return &masters{cluster: cluster, probe: probe}
}

// Both returns [Servers] that subscribe to each channel twice: as a sharded and as an ordinary channel. Use it while a fleet of services
// changes from SUBSCRIBE and PUBLISH to the sharded commands. A message that is published in both kinds of
// channels is received twice. probe is the same as for [Sharded].
func Both(cluster *redis.ClusterClient, probe string) Servers {
	return &masters{cluster: cluster, probe: probe, both: true}
}

// Plain returns the [Servers] of ordinary channels on several servers that are not a cluster. ClusterSlots in
// [redis.ClusterOptions] divides the slots among these servers, and a PUBLISH reaches only the subscribers of
// the server to which it is sent. As with [Sharded], there is one connection to each server, and probe is a
// prefix.
func Plain(cluster *redis.ClusterClient, probe string) Servers {
	return &masters{cluster: cluster, probe: probe, plain: true}
}

// HasSharded reports whether the servers form a cluster with sharded channels. It also returns false if the
// Redis user has no permission to find this out. After an error, the answer is not known, and a later call may
// succeed.
func HasSharded(ctx context.Context, cluster *redis.ClusterClient) (bool, error) {
	for _, ask := range []func() error{
		// Not everything behind a ClusterClient is a cluster. A Valkey 9 without a cluster
		// answers CLUSTER KEYSLOT all the same; slots have owners only in a cluster.
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

// passing reports whether an error reply says nothing of sharded channels: the server is busy, or
// this user does not exist yet.
func passing(reply redis.Error) bool {
	code, _, _ := strings.Cut(reply.Error(), " ")
	switch code {
	case "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "NOAUTH", "WRONGPASS":
		return true
	}
	return false
}

// masters are the masters of a cluster, named by their addresses.
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

// Refresh loads the client's map of the slots: unless a command was redirected, the map is up
// to a minute old. ForEachMaster loads the map and waits, as no other exported method does. A
// map after a long wait may come from a node back from standing still, and be older
// than the map before: then Refresh loads the map once more.
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

// Open uses the client of the node: a PubSub of the cluster client would choose a node by its
// first channel.
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

// tag returns the part of a name that decides the slot.
func tag(name string) string {
	if _, rest, ok := strings.Cut(name, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return name
}
