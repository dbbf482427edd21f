package request

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// A client that reads from replicas has connections on which a replica would execute a
// script. They are not, while a pipeline lasts.
func TestFakeTimeGuard(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(t, func(o *redis.ClusterOptions) { o.ReadOnly = true })
		require.NoError(t, f.ask(t.Context(), "b", "first"))
		require.NoError(t, f.ask(t.Context(), "b", "second"))
		l := f.line("10.0.0.1:1")
		require.True(t, l.asked("readwrite"))
		require.True(t, l.asked("readonly"))
		sizes := f.sizes("10.0.0.1:1")
		require.Equal(t, 3, sizes[len(sizes)-1], "one command, in between")
	})
}

// The time of a pipeline is that of its first command: how long the wait for a connection was says
// nothing about the server. Only one command notes it.
func TestFakeTimePipelineNotesWhenItIsSent(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, 0)
		n := note{since: time.Now()}
		m := &marking{UniversalClient: g.Client, note: &n}
		pipe := m.Pipeline()
		first, second := redis.NewCmd(t.Context(), "one"), redis.NewCmd(t.Context(), "bad")
		require.NoError(t, errors.Join(pipe.Process(t.Context(), first), pipe.Process(t.Context(), second)))
		require.False(t, n.sent())
		require.Zero(t, n.took())
		l.take(3*time.Second, time.Second) // first for a connection
		_, _ = pipe.Exec(t.Context())
		require.True(t, n.sent())
		require.Equal(t, 3*time.Second, n.took())
		require.Same(t, first, n.Cmder)
		require.NoError(t, first.Err())
		require.ErrorIs(t, second.Err(), errBad, "each command has its own error")
	})
}
