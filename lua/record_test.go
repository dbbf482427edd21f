package lua_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A record is replaced as a whole, however large it is, and may be written and removed
// again and again.
func TestWriteRecord(t *testing.T) {
	rdb, ctx := redistest.Start(t).Client(t), t.Context()
	var fields []any
	want := make(map[string]string)
	for i := range 5000 {
		fields = append(fields, fmt.Sprint("f", i), fmt.Sprint(i))
		want[fmt.Sprint("f", i)] = fmt.Sprint(i)
	}
	for range 2 {
		require.NoError(t, lua.WriteRecord(ctx, rdb, "r", 30*time.Second, fields))
		require.Equal(t, want, rdb.HGetAll(ctx, "r").Val())
		require.InDelta(t, 30*time.Second, rdb.PTTL(ctx, "r").Val(), float64(5*time.Second))
	}
	require.NoError(t, lua.WriteRecord(ctx, rdb, "r", time.Second, []any{"a", "\xff\x00"}))
	require.Equal(t, map[string]string{"a": "\xff\x00"}, rdb.HGetAll(ctx, "r").Val())
	for range 2 {
		require.NoError(t, lua.WriteRecord(ctx, rdb, "r", 0, nil))
		require.Zero(t, rdb.Exists(ctx, "r").Val())
	}
}

func enlist(ctx context.Context, r lua.Runner, key, client string, lasts time.Duration) error {
	_, err := lua.Enlist(ctx, r, key, client, lasts)
	return err
}

// The list has the clients whose time is not over, and ends with the last of them.
func TestEnlist(t *testing.T) {
	rdb, ctx := redistest.Start(t).Client(t), t.Context()
	require.NoError(t, rdb.ZAdd(ctx, "l", redis.Z{Score: 1, Member: "dead"}).Err())
	for range 2 {
		require.NoError(t, enlist(ctx, rdb, "l", "a", 30*time.Second))
	}
	require.NoError(t, enlist(ctx, rdb, "l", "b", 30*time.Second))
	require.Equal(t, []string{"a", "b"}, rdb.ZRange(ctx, "l", 0, -1).Val())
	now, err := rdb.Time(ctx).Result()
	require.NoError(t, err)
	require.InDelta(t, now.Add(30*time.Second).UnixMilli(), rdb.ZScore(ctx, "l", "a").Val(), 5000)
	require.InDelta(t, 30*time.Second, rdb.PTTL(ctx, "l").Val(), float64(5*time.Second))
	for _, client := range []string{"a", "a", "b"} {
		require.NoError(t, enlist(ctx, rdb, "l", client, 0))
	}
	require.Zero(t, rdb.Exists(ctx, "l").Val())
}

// Each client is told how many there are. One whose record lasts for long is still there when another
// client comes whose record does not.
func TestEnlistTellsTheSizeOfTheList(t *testing.T) {
	rdb, ctx := redistest.Start(t).Client(t), t.Context()
	for i, lasts := range []time.Duration{30 * time.Second, 15 * time.Minute, 30 * time.Second} {
		listed, err := lua.Enlist(ctx, rdb, "l", fmt.Sprint(i), lasts)
		require.NoError(t, err)
		require.EqualValues(t, i+1, listed)
	}
	require.InDelta(t, 15*time.Minute, rdb.PTTL(ctx, "l").Val(), float64(5*time.Second))
	listed, err := lua.Enlist(ctx, rdb, "l", "0", 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, listed)
}

// A key that belongs to something else is left as it is.
func TestRecordConflicts(t *testing.T) {
	rdb, ctx := redistest.Start(t).Client(t), t.Context()
	require.NoError(t, rdb.Set(ctx, "k", "v", 0).Err())
	var conflict *lua.ConflictError
	require.ErrorAs(t, lua.WriteRecord(ctx, rdb, "k", time.Second, []any{"a", "b"}), &conflict)
	require.ErrorAs(t, lua.WriteRecord(ctx, rdb, "k", 0, nil), &conflict)
	require.ErrorAs(t, enlist(ctx, rdb, "k", "a", time.Second), &conflict)
	require.Equal(t, "string", conflict.Type)
	require.Equal(t, "v", rdb.Get(ctx, "k").Val())
}

// While its slot moves, a node makes no key anew that it has removed: the other one does.
func TestRecordWhileTheSlotMoves(t *testing.T) {
	cluster, ctx := redistest.StartCluster(t, 2, 0), t.Context()
	rdb := cluster.Client(t)
	require.NoError(t, lua.WriteRecord(ctx, rdb, "{r}", time.Minute, []any{"a", "1", "b", "2"}))
	require.NoError(t, enlist(ctx, rdb, "{r}:list", "a", time.Minute))
	slot := cluster.Slot("{r}")
	move := cluster.BeginMove(slot, cluster.Another(slot))
	written := lua.WriteRecord(ctx, rdb, "{r}", 30*time.Second, []any{"c", "3"})
	taken := enlist(ctx, rdb, "{r}:list", "a", 0)
	move.MoveKeys()
	move.Finish()
	require.NoError(t, written)
	require.NoError(t, taken)
	require.Equal(t, map[string]string{"c": "3"}, rdb.HGetAll(ctx, "{r}").Val())
	require.InDelta(t, 30*time.Second, rdb.PTTL(ctx, "{r}").Val(), float64(5*time.Second))
	require.Zero(t, rdb.Exists(ctx, "{r}:list").Val())
}
