package topology

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// outlast has a lock held and waited for while strike replaces its master: the
// hold is renewed on the new one, nests there, and its Unlock wakes the waiter.
func outlast(t *testing.T, dial func() redis.UniversalClient, replicas int, strike func()) {
	opts := &rlock.Options{LeaseTime: 12 * time.Second}
	rdb := dial()
	mu, other := clientOn(t, rdb, opts).NewLock("a"), clientOn(t, dial(), opts).NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	got := wait(t, other)
	written(t, rdb, replicas)
	strike()
	until := hold.Until()
	redistest.Eventually(t, "it is renewed on the new master", func() bool { return hold.Until().After(until) })
	require.NoError(t, held.Err())
	nested, inner := lock(t, held, mu)
	require.NoError(t, inner.Unlock(nested))
	since := time.Now()
	require.NoError(t, hold.Unlock(held))
	served(t, got, since)
}

// written returns when the replicas have all that the lock's master has.
func written(t *testing.T, rdb redis.UniversalClient, replicas int) {
	t.Helper()
	node, ok := rdb.(*redis.Client)
	if !ok {
		var err error
		node, err = rdb.(*redis.ClusterClient).MasterForKey(t.Context(), "a")
		require.NoError(t, err)
	}
	acknowledged := redis.NewIntCmd(t.Context(), "wait", replicas, 2000)
	_, err := node.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Set(t.Context(), "{a}written", 1, 0)
		return p.Process(t.Context(), acknowledged)
	})
	require.NoError(t, err)
	require.EqualValues(t, replicas, acknowledged.Val())
}

func TestClusterFailover(t *testing.T) {
	redistest.Long(t, "a cluster of six, and its failovers")
	t.Parallel()
	for name, strike := range map[string]func(*redistest.Server){
		"SIGKILL": (*redistest.Server).Kill,
		"SIGSTOP": (*redistest.Server).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 1)
			slot := c.Slot("a")
			old := c.Owner(slot)
			outlast(t, func() redis.UniversalClient { return c.Client(t) },
				1, func() {
					strike(old)
					c.AwaitFailover(old, slot)
				})
		})
	}
}

func TestSentinelFailover(t *testing.T) {
	redistest.Long(t, "six servers, and four failovers")
	t.Parallel()
	for name, strike := range map[string]func(*redistest.Sentinels, *redistest.Server){
		"manual":  func(s *redistest.Sentinels, _ *redistest.Server) { s.Failover() },
		"SIGKILL": func(_ *redistest.Sentinels, old *redistest.Server) { old.Kill() },
		"SIGSTOP": func(_ *redistest.Sentinels, old *redistest.Server) { old.Stop() },
		"deposed": func(s *redistest.Sentinels, _ *redistest.Server) { s.Depose() }, // it goes on answering
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.StartSentinels(t)
			outlast(t, func() redis.UniversalClient { return s.Client(t) },
				2, func() {
					old := s.Master()
					strike(s, old)
					s.AwaitSwitch(old)
				})
		})
	}
}
