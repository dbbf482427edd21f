package rlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// Every request, hand-overs by message and a loss, by either protocol, whoever obeys
// deadlines, and with a single connection.
func TestProtocols(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		for _, obeys := range []bool{false, true} {
			for _, connections := range []int{1, 0} { // 0: go-redis' default
				t.Run(fmt.Sprintf("RESP%d, ContextTimeoutEnabled %t, PoolSize %d", protocol, obeys, connections), func(t *testing.T) {
					t.Parallel()
					srv := newServer(t)
					client := func() *rlock.Client {
						return clientOn(t, srv.Client(t, func(o *redis.Options) {
							o.Protocol, o.ContextTimeoutEnabled, o.PoolSize, o.PipelinePoolSize = protocol, obeys, connections, connections
						}), &rlock.Options{LeaseTime: renewSoon})
					}
					one, another := client(), client()
					require.NoError(t, everyRequest(t.Context(), one, another, "a"))
					for _, typ := range []string{"normal", "pubsub"} {
						for _, conn := range srv.Clients(t, typ) {
							if resp := conn["resp"]; resp != "" { // old servers do not tell
								require.Equal(t, fmt.Sprint(protocol), resp, conn)
							}
						}
					}

					mu := one.NewLock("gone")
					held, hold := lock(t, t.Context(), mu)
					require.NoError(t, srv.Client(t).Del(t.Context(), "gone").Err())
					select {
					case <-held.Done():
					case <-time.After(20 * time.Second):
						require.FailNow(t, "the loss was not noticed")
					}
					require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
					require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
				})
			}
		}
	}
}
