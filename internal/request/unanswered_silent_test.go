package request

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// swallowing is a connection that swallows what is written, as long as it is told to.
type swallowing struct {
	net.Conn
	on *atomic.Bool
}

func (c *swallowing) Write(b []byte) (int, error) {
	if c.on.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A caller who leaves does not wait for go-redis, whatever that was told about time-outs:
// with -2 it sets no deadline at all, and so not that of a context either.
func TestFakeTimeLeavingASilentServer(t *testing.T) {
	for _, timeout := range []time.Duration{0, -1, -2} {
		for _, obeys := range []bool{false, true} {
			t.Run(fmt.Sprintf("ReadTimeout %d, ContextTimeoutEnabled %v", timeout, obeys), func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					server := miniredis.NewMiniRedis()
					var silent atomic.Bool
					rdb := redis.NewClient(&redis.Options{
						Addr: "127.0.0.1:1", ReadTimeout: timeout, ContextTimeoutEnabled: obeys,
						Dialer: func(context.Context, string, string) (net.Conn, error) {
							c, err := server.Dial()
							return &swallowing{c, &silent}, err
						},
					})
					g := groupOn(rdb)
					require.NoError(t, ask(t.Context(), g, "ping"))
					idle(t, g)
					silent.Store(true)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					start := time.Now()
					require.Error(t, ask(ctx, g, "ping"))
					require.LessOrEqual(t, time.Since(start), time.Second)
					require.NoError(t, rdb.Close())
					server.Close()
					idle(t, g)
				})
			})
		}
	}
}
