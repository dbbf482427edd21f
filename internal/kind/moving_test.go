package kind

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// clusterServer is a cluster as a client sees it that does all at once.
func clusterServer(rdb *redis.ClusterClient) *Server {
	return &Server{ID: "me", RDB: rdb, Scripts: rdb, Channels: NewChannels(rdb, "me", nil, ShardingOff), Background: func(f func()) { f() }}
}

// A release while the slot moves has the first in the queue ask, which is not the owner
// that is released, whose ticket another request may be about to take out.
func TestReleaseApartPassesItsOwnTicketOver(t *testing.T) {
	cluster, ctx := redistest.StartCluster(t, 2, 0), t.Context()
	rdb := cluster.Client(t)
	p := NewQueued(clusterServer(rdb), "lock", false)
	require.NoError(t, rdb.HSet(ctx, "lock", "me:1", 1).Err())
	for i, owner := range []string{"me:1", "you:1"} {
		place := float64(i+1)*32768 + 6000*4 + float64(lua.Uncounted)
		require.NoError(t, rdb.ZAdd(ctx, lua.QueueOf("lock"), redis.Z{Score: place, Member: owner}).Err())
	}
	sub := rdb.Subscribe(ctx, lua.GrantChannel("lock", "you"))
	defer func() { require.NoError(t, sub.Close()) }()
	_, err := sub.Receive(ctx)
	require.NoError(t, err)

	slot := cluster.Slot("lock")
	move := cluster.BeginMove(slot, cluster.Another(slot))
	move.MoveKeys("lock")
	_, err = p.Release(ctx, rdb, "me:1", lua.Ending{})
	require.NoError(t, err)
	msg, err := sub.ReceiveTimeout(ctx, 5*time.Second)
	require.NoError(t, err)
	require.Equal(t, "you:1", msg.(*redis.Message).Payload)
	require.Equal(t, []string{"you:1"}, rdb.ZRange(ctx, lua.QueueOf("lock"), 0, -1).Val())
	move.MoveKeys()
	move.Finish()
}

// A slot may stay open for long, if its move was interrupted. The lock can be looked at, and
// removed by force, as long as its key is on one of the nodes.
func TestForceAndInspectWhileTheSlotMoves(t *testing.T) {
	cluster, ctx := redistest.StartCluster(t, 2, 0), t.Context()
	rdb := cluster.Client(t)
	for _, moved := range []bool{false, true} {
		for name, k := range map[string]Kind{
			"plain":  NewQueued(clusterServer(rdb), "lock", false),
			"writer": NewReadWrite(clusterServer(rdb), "lock", false, false),
		} {
			t.Run(fmt.Sprintf("%s, moved %t", name, moved), func(t *testing.T) {
				fields := []any{"you:1", 1}
				if name == "writer" {
					fields = []any{"mode", "write", "you:1:write", 1}
				}
				require.NoError(t, rdb.HSet(ctx, "lock", fields...).Err())
				slot := cluster.Slot("lock")
				move := cluster.BeginMove(slot, cluster.Another(slot))
				if moved {
					move.MoveKeys("lock")
				}
				s, inspected := k.Inspect(ctx)
				was, forced := k.Force(ctx)
				again, free := k.Force(ctx)
				move.Finish()
				require.NoError(t, inspected)
				require.Equal(t, map[string]int64{"you:1": 1}, s.Holds)
				require.NoError(t, forced)
				require.True(t, was)
				require.NoError(t, free)
				require.False(t, again)
				require.Zero(t, rdb.Exists(ctx, "lock").Val())
			})
		}
	}
}
