package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlocktest"
)

// Three messages are delivered again, and count once.
func TestShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, out := rlocktest.NewServer(t), new(strings.Builder)
		require.NoError(t, show(t.Context(), out, func() *redis.Client { return server.Client() }))
		require.Equal(t, 3, strings.Count(out.String(), "dies before it says so"), out)
		require.Contains(t, out.String(), "20 messages of 1 cent, 23 deliveries, 3 of them of what counted before: alice has 90 cents, bob has 90 cents")
	})
}
