package kind

import (
	"context"
	"fmt"
	"slices"
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

// errMoving is how a node answers to a script that has only some of its keys.
const errMoving = replyError("TRYAGAIN Multiple keys request during rehashing of slot")

// While its slot moves a plain lock is taken and released without its queue, which is served
// apart. A fair lock waits for the end of the move, or its order would be lost.
func TestFakeTimeLockWithoutItsQueueWhileTheSlotMoves(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, "me")
		f.answers(func(_ context.Context, words []any) any {
			if words[2].(int) > 1 {
				return errMoving
			}
			return int64(1)
		})
		all := func() (keys [][]any) {
			time.Sleep(time.Second) // the queue is served in the background
			for _, words := range f.commands() {
				keys = append(keys, keysOf(words))
			}
			return keys
		}
		lock, queue := []any{"lock"}, []any{"rlock_queue:{lock}"}
		both := slices.Concat(lock, queue)
		ticket := Options{Ticket: lua.Ticket{Claim: time.Second}}
		p := NewQueued(f.Server, "lock", false)
		a, err := p.Acquire(t.Context(), f.Scripts, "me:1", time.Minute, ticket)
		require.NoError(t, err)
		require.True(t, a.Acquired)
		require.Equal(t, [][]any{both, lock, queue}, all())
		_, err = p.Release(t.Context(), f.Scripts, "me:1", lua.Ending{})
		require.NoError(t, err)
		require.Equal(t, [][]any{both, lock, queue}, all())
		was, err := p.Force(t.Context())
		require.NoError(t, err)
		require.True(t, was)
		require.Equal(t, [][]any{both, lock, queue}, all())
		f.answers(func(_ context.Context, words []any) any {
			if words[2].(int) > 1 {
				return errMoving
			}
			return []any{int64(1), int64(-2), int64(0), int64(3)}
		})
		s, err := p.Inspect(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, -1, s.Waiters, "how many wait is not known")
		require.Equal(t, [][]any{both, lock}, all())

		f.answers(func(_ context.Context, words []any) any {
			if words[2].(int) > 1 {
				return errMoving
			}
			return []any{int64(0), int64(5000), "you:1"}
		})
		a, err = p.Acquire(t.Context(), f.Scripts, "me:1", time.Minute, ticket)
		require.NoError(t, err)
		require.False(t, a.Acquired)
		require.GreaterOrEqual(t, a.AskIn, 50*time.Millisecond, "it does not queue")
		require.Less(t, a.AskIn, 100*time.Millisecond)
		require.Equal(t, [][]any{both, lock}, all(), "nobody is passed on")

		_, err = NewFair(f.Server, "lock", false).Acquire(t.Context(), f.Scripts, "me:1", time.Minute, ticket)
		require.Equal(t, errMoving, err)
		require.Len(t, all(), 1)
	})
}
