package pubsub_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

func TestBothFamilies(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	admin := c.Nodes[0].Client(t)
	rdb := c.Client(t)
	h := pubsub.NewHub(pubsub.Both(rdb, "probe:"), pubsub.Options{}.Lingering(-1))
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	w, other := newWaiter(h, "lock:{a}"), newWaiter(h, "lock:{b}")
	for range 10 {
		live(t, w)
		live(t, other)
		for awake(w) {
		}
		require.EqualValues(t, 1, rdb.SPublish(t.Context(), "lock:{a}", "0").Val())
		wake(t, w)
		require.EqualValues(t, 1, rdb.Publish(t.Context(), "lock:{a}", "0").Val())
		wake(t, w)
		assert.False(t, awake(other))
		other.Leave()
		redistest.Eventually(t, "both are unsubscribed", func() bool {
			return rdb.Publish(t.Context(), "lock:{b}", "0").Val()+rdb.SPublish(t.Context(), "lock:{b}", "0").Val() == 0
		})
		require.EqualValues(t, 1, admin.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Val())
		other = newWaiter(h, "lock:{b}")
		for w.Live() {
			wake(t, w)
		}
	}
}

// A waiter is live only if it hears both.
func TestBothFamiliesOneRefused(t *testing.T) {
	redistest.Since7(t, "sharded channels")
	t.Parallel()
	c := redistest.StartCluster(t, 1, 0)
	admin := c.Nodes[0].Client(t)
	for _, denied := range []string{"-subscribe", "-ssubscribe", "-subscribe -ssubscribe"} {
		t.Run(denied, func(t *testing.T) {
			rules := append([]string{"reset", "on", "nopass", "+@all", "allkeys", "allchannels"}, strings.Fields(denied)...)
			require.NoError(t, admin.ACLSetUser(t.Context(), "u", rules...).Err())
			rdb := c.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "u", "x" })
			h := pubsub.NewHub(pubsub.Both(rdb, "probe:"), pubsub.Options{})
			defer func() { require.NoError(t, h.Close(context.Background())) }()
			for _, channel := range []string{"a", "b"} {
				w := newWaiter(h, channel)
				wake(t, w)
				assert.False(t, w.Live())
			}
		})
	}
}
