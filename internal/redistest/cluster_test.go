package redistest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func TestClusterOfOne(t *testing.T) {
	c := StartCluster(t, 1, 0)
	require.NoError(t, c.Client(t).Set(t.Context(), "k", "v", 0).Err())
	require.Same(t, c.Nodes[0], c.Owner(c.Slot("k")))
}

func TestClusterMigration(t *testing.T) {
	Long(t, "a cluster of three")
	c := StartCluster(t, 2, 0)
	rdb := c.Client(t)
	keys := []string{"{tag}1", "{tag}2"}
	for _, k := range keys {
		require.NoError(t, rdb.Set(t.Context(), k, "v", 0).Err())
	}
	slot := c.Slot("tag")
	from, to := c.Owner(slot), c.Another(slot)
	source := from.Client(t)

	m := c.BeginMove(slot, to)
	require.NoError(t, source.Get(t.Context(), keys[0]).Err(), "it is still there")
	require.ErrorContains(t, source.Get(t.Context(), "{tag}3").Err(), fmt.Sprintf("ASK %d %s", slot, to.Addr()))
	m.MoveKeys(keys[0])
	require.ErrorContains(t, source.Get(t.Context(), keys[0]).Err(), "ASK")
	require.ErrorContains(t, source.MGet(t.Context(), keys...).Err(), "TRYAGAIN")
	m.MoveKeys()
	m.Finish()
	require.ErrorContains(t, source.Get(t.Context(), keys[0]).Err(), fmt.Sprintf("MOVED %d %s", slot, to.Addr()))
	require.Equal(t, []any{"v", "v"}, rdb.MGet(t.Context(), keys...).Val())

	added := c.AddNode()
	c.MoveSlot(slot, added)
	require.Equal(t, []any{"v", "v"}, rdb.MGet(t.Context(), keys...).Val())
	c.MoveSlot(slot, from)
	c.RemoveNode(added)
	require.Len(t, strings.Split(strings.TrimSpace(source.ClusterNodes(t.Context()).Val()), "\n"), 2)
}

func TestClusterFailover(t *testing.T) {
	Long(t, "a cluster of six, and its failovers")
	c := StartCluster(t, 3, 1)
	rdb := c.Client(t)
	slot := c.Slot("k")
	require.NoError(t, rdb.Set(t.Context(), "k", "v", 0).Err())

	master := c.Owner(slot)
	replica := c.Replica(master)
	c.Failover(replica)
	require.Same(t, replica, c.Owner(slot))

	replica.Kill()
	require.Same(t, master, c.AwaitFailover(replica, slot))
	replica.Restart()
	c.AwaitHealthy()

	master.Stop()
	require.Same(t, replica, c.AwaitFailover(master, slot))
	master.Cont()
	c.AwaitHealthy()
	require.Equal(t, "v", c.Client(t).Get(t.Context(), "k").Val())
}

// Each way to lose a master, on one set of servers.
func TestSentinels(t *testing.T) {
	Long(t, "six servers, and four failovers")
	s := StartSentinels(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Set(t.Context(), "k", "v", 0).Err())
	require.EqualValues(t, 2, rdb.Wait(t.Context(), 2, limit).Val())

	old := s.Master()
	s.Failover()
	master := s.AwaitSwitch(old)
	require.NotSame(t, old, master)
	s.AwaitReplicas()

	master.Kill()
	next := s.AwaitSwitch(master)
	s.Rejoin(master)

	next.Stop()
	last := s.AwaitSwitch(next)
	next.Cont()
	s.AwaitReplicas()

	s.Depose()
	current := s.AwaitSwitch(last)
	deposed := redis.NewClient(&redis.Options{Addr: last.Addr(), Username: "app", Password: "any"})
	defer func() { require.NoError(t, deposed.Close()) }()
	require.NoError(t, deposed.Set(t.Context(), "k", "lost", 0).Err(), "it goes on accepting writes")
	s.Restore(last)
	require.Same(t, current, s.Master())

	require.Equal(t, "v", s.Client(t).Get(t.Context(), "k").Val())
}
