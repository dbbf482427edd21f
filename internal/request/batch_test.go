package request

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

type witnessKey struct{}

// What a hook of the client has seen stays as it was, for as long as the hook keeps it: a
// batch is not used again for another call.
func TestFakeTimeHookKeepsWhatItSaw(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l := &line{started: make(map[string]bool)}
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
		defer func() { _ = rdb.Close() }()
		var contexts []context.Context
		var commands []redis.Cmder
		rdb.AddHook(redistest.Sees(func(ctx context.Context, cmd redis.Cmder) {
			contexts, commands = append(contexts, ctx), append(commands, cmd)
		}))
		rdb.AddHook(redistest.Answers(l.serve))
		g := groupOn(rdb)
		for i, takes := range []time.Duration{time.Millisecond, fastAnswer, time.Millisecond, time.Millisecond} {
			l.take(takes, 0)
			require.NoError(t, ask(context.WithValue(t.Context(), witnessKey{}, i), g, "good"))
			idle(t, g)
			require.Equal(t, takes, g.pace.took, "measured from when it was sent itself")
			time.Sleep(time.Minute)
		}
		for i, ctx := range contexts {
			require.Equal(t, i, ctx.Value(witnessKey{}), "that of its own caller")
			_, deadline := ctx.Deadline()
			require.Equal(t, i == 1 || i == 3, deadline, "in the goroutine of its caller, after a fast answer")
			require.Equal(t, "good", commands[i].Name())
		}
	})
}
