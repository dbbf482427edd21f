package rlock

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// One script takes members up to the first that it must not take: it looks at no queue, and
// knows nothing of what this client holds or waits for.
func TestFakeTimeTogether(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, held, f := newFake(t)
		a, b, busy := c.NewLock("x"), c.NewLock("y"), c.NewLock("busy")
		w, _ := busy.queues.enter(busy, time.Now())
		defer w.leave()
		ctx, hold, err := held.Lock(t.Context())
		require.NoError(t, err)
		mine := c.NewLock(held.name)
		for name, tt := range map[string]struct {
			next []*Lock
			want int
		}{
			"all":                    {[]*Lock{a, b, c.NewLock("z", WithFencing())}, 3},
			"one":                    {[]*Lock{a}, 1},
			"the same twice":         {[]*Lock{a, a, b}, 1},
			"another client's":       {[]*Lock{a, clientAt(t, "127.0.0.1:2", nil).NewLock("y")}, 1},
			"a fair one":             {[]*Lock{a, c.NewFairLock("f"), b}, 1},
			"a fair one first":       {[]*Lock{c.NewFairLock("f"), b}, 0},
			"a reader":               {[]*Lock{a, c.NewRWLock("r").Reader()}, 1},
			"one that polls":         {[]*Lock{a, c.NewLock("p", WithPolling(Polling{}))}, 1},
			"one for replicas":       {[]*Lock{a, c.NewLock("r", WithReplicas(1, time.Second))}, 1},
			"one that is waited for": {[]*Lock{a, busy, b}, 1},
			"one that is held":       {[]*Lock{a, mine, b}, 1},
		} {
			require.Len(t, together(t.Context(), tt.next), tt.want, name)
		}
		require.Len(t, together(ctx, []*Lock{a, mine}), 1)
		require.NoError(t, hold.Unlock(ctx))
		require.Len(t, together(t.Context(), []*Lock{a, mine}), 2, "it is free again")

		f.renewals = hooked(t, renewing(int64(0)))
		ctx, hold, err = held.Lock(t.Context())
		require.NoError(t, err)
		<-ctx.Done()
		require.Len(t, together(t.Context(), []*Lock{a, mine}), 2)
		require.Len(t, together(context.WithoutCancel(ctx), []*Lock{a, mine}), 1, "under that context nobody can have it")
		require.ErrorIs(t, hold.Unlock(ctx), ErrLeaseLost)
	})
}

// On a single server all keys are together; in a cluster those with the same hash tag are.
func TestSameSlot(t *testing.T) {
	single := clientAt(t, "127.0.0.1:1", nil)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { _ = rdb.Close() }()
	cluster, err := New(rdb, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, cluster.Close(context.Background())) }()
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"{x}a", "{x}b", true},
		{"{x}a", "b{x}", true},
		{"{x}", "x", true},
		{"{x}a", "{y}a", false},
		{"{x}{y}", "{x}{z}", true},
	} {
		require.Equal(t, tt.same, sameSlot(cluster, tt.a, tt.b), "%s and %s", tt.a, tt.b)
		require.True(t, sameSlot(single, tt.a, tt.b))
	}
}
