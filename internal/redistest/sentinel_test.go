package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

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
