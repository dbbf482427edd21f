package request

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// A connection may take far longer to be made than an answer of the server: it is made
// all the same, as long as somebody asks.
func TestFakeTimeSlowConnection(t *testing.T) {
	for _, obeys := range []bool{false, true} {
		for _, takes := range []time.Duration{loneBound + 1, least + 1, most / 2} {
			t.Run(takes.String(), func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					server := miniredis.NewMiniRedis()
					rdb := redis.NewClient(&redis.Options{
						Addr: "127.0.0.1:1", ContextTimeoutEnabled: obeys, ConnMaxIdleTime: time.Second,
						Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
						OnConnect: func(ctx context.Context, _ *redis.Conn) error {
							select {
							case <-time.After(takes):
								return nil
							case <-ctx.Done():
								return ctx.Err()
							}
						},
					})
					g := groupOn(rdb)
					require.NoError(t, ask(t.Context(), g, "ping"))
					time.Sleep(time.Minute) // the connection is too old by then
					for start := time.Now(); ask(t.Context(), g, "ping") != nil; idle(t, g) {
						require.Less(t, time.Since(start), 2*most)
					}
					require.NoError(t, rdb.Close())
					server.Close()
					idle(t, g)
				})
			})
		}
	}
}
