package netfault_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestDelay(t *testing.T) {
	_, p := setup(t)
	for _, tc := range []struct{ up, down time.Duration }{
		{30 * time.Millisecond, 0},
		{0, 30 * time.Millisecond},
		{20 * time.Millisecond, 20 * time.Millisecond},
	} {
		p.Delay(tc.up, tc.down)
		c := dial(t, p)
		start := time.Now()
		c.send(t, "PING")
		c.expect(t, "+PONG")
		require.GreaterOrEqual(t, time.Since(start), tc.up+tc.down)
	}
}

func TestDelayKeepsThroughput(t *testing.T) {
	s, p := setup(t)
	rdb := through(t, s, p)
	const delay, batch = 20 * time.Millisecond, 1000
	p.Delay(delay, delay)
	start := time.Now()
	cmds, err := rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for range batch {
			pipe.Incr(t.Context(), "n")
		}
		return nil
	})
	require.NoError(t, err)
	for i, cmd := range cmds {
		require.EqualValues(t, i+1, cmd.(*redis.IntCmd).Val())
	}
	require.GreaterOrEqual(t, time.Since(start), 2*delay)
	require.Less(t, time.Since(start), batch*delay/4, "one after the other it would take 40 s")
}

func TestDelayKeepsOrder(t *testing.T) {
	_, p := setup(t)
	c := dial(t, p)
	c.send(t, "SET n 0")
	c.expect(t, "+OK")
	p.Delay(50*time.Millisecond, 0)
	c.send(t, "INCR n")
	redistest.Eventually(t, "the proxy has read it", func() bool { return p.Connections("incr") == 1 })
	p.Delay(0, 0)
	c.send(t, "INCR n", "INCR n")
	c.expect(t, ":1", ":2", ":3")
}
