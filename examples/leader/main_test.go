package main

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlocktest"
)

// Three hosts lead one after the other, and each has stopped before the next one begins.
func TestShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, out := rlocktest.NewServer(t), new(strings.Builder)
		require.NoError(t, show(t.Context(), out, func() *redis.Client { return server.Client() }))
		events := regexp.MustCompile(`(host-.)  leads(?:, in term (\d+)| (no more))`).FindAllStringSubmatch(out.String(), -1)
		require.Len(t, events, 6)
		for i := 0; i < len(events); i += 2 {
			begin, end := events[i], events[i+1]
			require.NotEmpty(t, begin[2], out)
			require.Equal(t, "no more", end[3], out)
			require.Equal(t, begin[1], end[1], out)
			if i > 0 { // numbers of one length
				require.Greater(t, begin[2], events[i-2][2], "a later term has a greater number")
			}
		}
	})
}
