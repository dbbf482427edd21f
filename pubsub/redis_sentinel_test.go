package pubsub_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

// However the master changes, a waiter is awake soon after it, and soon hears
// what is published to the new one.
func TestSentinel(t *testing.T) {
	redistest.Long(t, "six servers, and four failovers")
	s := redistest.StartSentinels(t)
	rdb := s.Client(t)
	h := hub(t, rdb, pubsub.Options{})
	w := newWaiter(h, "a")
	live(t, w)
	for _, event := range []struct {
		name string
		do   func(master *redistest.Server)
		undo func(old *redistest.Server)
	}{
		{"manual", func(*redistest.Server) { s.Failover() }, func(*redistest.Server) { s.AwaitReplicas() }},
		{"SIGKILL", (*redistest.Server).Kill, s.Rejoin},
		{"SIGSTOP", (*redistest.Server).Stop, func(old *redistest.Server) { old.Cont(); s.AwaitReplicas() }},
		{"deposed", func(*redistest.Server) { s.Depose() }, s.Restore},
	} {
		for awake(w) {
		}
		require.True(t, w.Live(), event.name)
		old := s.Master()
		require.NoError(t, rdb.Publish(t.Context(), "a", "0").Err())
		wake(t, w) // nothing is wrong yet
		start := time.Now()
		event.do(old)
		next := s.AwaitSwitch(old)
		switched, stalls := time.Now(), redistest.WatchStalls()
		wake(t, w)
		doubt := time.Since(switched) - stalls.Total()
		stalls.Stop()
		subscribed := func() bool {
			app := redis.NewClient(&redis.Options{Addr: next.Addr(), Username: "app", Password: "any"})
			defer func() { _ = app.Close() }()
			return app.PubSubNumSub(t.Context(), "a").Val()["a"] > 0
		}
		redistest.Eventually(t, "the new master has the subscription", subscribed)
		for !w.Live() {
			wake(t, w)
		}
		t.Logf("%s: switched after %v, woken %v and live %v after that", event.name, switched.Sub(start), doubt, time.Since(switched))
		assert.Less(t, doubt, 2500*time.Millisecond, event.name) // a probe in 2 s, when the wait is long
		for awake(w) {
		}
		require.NoError(t, rdb.Publish(t.Context(), "a", "0").Err())
		wake(t, w)
		event.undo(old)
	}
}
