package rlock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// Sharded channels are those of a cluster. Nothing is sent to find that out.
func TestShardedPubSubOption(t *testing.T) {
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() {
		require.NoError(t, single.Close())
		require.NoError(t, cluster.Close())
	})
	for _, tc := range []struct {
		name string
		rdb  redis.UniversalClient
		mode rlock.ShardedPubSub
		ok   bool
	}{
		{"auto, single", single, rlock.ShardedAuto, true},
		{"off, single", single, rlock.ShardedOff, true},
		{"on, single", single, rlock.ShardedOn, false},
		{"both, single", single, rlock.ShardedBoth, false},
		{"auto, cluster", cluster, rlock.ShardedAuto, true},
		{"off, cluster", cluster, rlock.ShardedOff, true},
		{"on, cluster", cluster, rlock.ShardedOn, true},
		{"both, cluster", cluster, rlock.ShardedBoth, true},
		{"no such value", cluster, rlock.ShardedBoth + 1, false},
		{"negative", single, -1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := rlock.New(tc.rdb, &rlock.Options{ShardedPubSub: tc.mode})
			if !tc.ok {
				require.ErrorIs(t, err, rlock.ErrInvalidOption)
				require.ErrorContains(t, err, "ShardedPubSub")
				return
			}
			require.NoError(t, err)
			require.NoError(t, closeSoon(c))
		})
	}
}
