package pubsub_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

// A server that is busy with somebody's script refuses everything for a while: SUBSCRIBE,
// and the PING of those whose probes it refuses. What was subscribed stays so, and the rest
// is soon when the script has ended. The probe interval is long, as a server that stands
// still for 8 of them loses its connections.
func TestRedisBusyServer(t *testing.T) {
	redistest.Long(t, "servers that compute for seconds")
	t.Parallel()
	s := redistest.Start(t, "--lua-time-limit", "20")
	protocols(t, func(t *testing.T, edit func(*redis.Options)) {
		rdb := s.Client(t, edit, func(o *redis.Options) { o.MaxRetries = -1 })
		h := hub(t, rdb, pubsub.Options{})
		e := listen(h, "a")
		redistest.Eventually(t, "a is subscribed", e.told)
		id := s.Clients(t, "pubsub")[0]["id"]
		other := hub(t, rdb, pubsub.Options{})

		busy := make(chan struct{})
		go func() {
			defer close(busy)
			_ = rdb.Eval(context.Background(), "while true do end", nil).Err()
		}()
		redistest.Eventually(t, "the server is busy", func() bool {
			return redis.HasErrorPrefix(rdb.Publish(t.Context(), "x", "").Err(), "BUSY")
		})
		b, c := newWaiter(h, "b"), newWaiter(other, "c")
		start := time.Now()
		redistest.Eventually(t, "6 probe intervals", func() bool { return time.Since(start) > 3*time.Second })
		assert.False(t, b.Live())
		assert.False(t, c.Live())
		require.NoError(t, rdb.ScriptKill(t.Context()).Err())
		<-busy

		live(t, b)
		live(t, c)
		assert.Equal(t, id, s.Clients(t, "pubsub")[0]["id"], "no reconnection")
		assert.Equal(t, 1, e.total(), "a was never lost")
		before, _ := calls(t, rdb, "publish")
		redistest.Eventually(t, "the probes are published again", func() bool {
			after, _ := calls(t, rdb, "publish")
			return after > before
		})
	})
}
