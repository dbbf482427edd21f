package request

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// witness notes what the context of a command has.
type witness struct {
	*line
	value    any
	deadline bool
}

type witnessKey struct{}

func (w *witness) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.value = ctx.Value(witnessKey{})
		_, w.deadline = ctx.Deadline()
		return next(ctx, cmd)
	}
}

func (w *witness) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A batch that is used again has nothing of the call that it was used for before.
func TestFakeTimeBatchUsedAgain(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l := &line{started: make(map[string]bool)}
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
		defer func() { _ = rdb.Close() }()
		w := &witness{line: l}
		rdb.AddHook(w)
		rdb.AddHook(l)
		g := groupOn(rdb)
		for i, takes := range []time.Duration{time.Millisecond, swift, time.Millisecond, time.Millisecond} {
			l.take(takes, 0)
			require.NoError(t, ask(context.WithValue(t.Context(), witnessKey{}, i), g, "good"))
			idle(t, g)
			require.Equal(t, i, w.value, "that of its own caller")
			require.Equal(t, i == 1 || i == 3, w.deadline, "in the goroutine of its caller, after a fast answer")
			require.Equal(t, takes, g.pace.took, "measured from when it was sent itself")
			require.Len(t, g.used, 1)
			time.Sleep(time.Minute)
		}
	})
}
