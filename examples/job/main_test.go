package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlocktest"
)

func TestShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, out := rlocktest.NewServer(t), new(strings.Builder)
		require.NoError(t, show(t.Context(), out, func() *redis.Client { return server.Client() }))
		require.Equal(t, fires, strings.Count(out.String(), "the report of "), out)
	})
}
