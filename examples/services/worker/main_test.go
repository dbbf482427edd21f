package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
)

// Three workers share the locks, each has metrics, and all end when they are asked to.
func TestWorkers(t *testing.T) {
	memory := miniredis.RunT(t)
	memory.ClockTTL(true)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	var addrs []string
	for range 3 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		addrs = append(addrs, listener.Addr().String())
		go func() { ended <- run(ctx, "redis://"+memory.Addr(), listener) }()
	}
	acquired := regexp.MustCompile(`(?m)^rlock_calls_total\{[^}]*outcome="acquired"[^}]*\} (\d+)$`)
	for _, addr := range addrs {
		for n := 0; n < 3; { // until it has had locks
			resp, err := http.Get("http://" + addr + "/metrics")
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			n = 0
			for _, match := range acquired.FindAllSubmatch(text, -1) {
				some, err := strconv.Atoi(string(match[1]))
				require.NoError(t, err)
				n += some
			}
			require.NoError(t, t.Context().Err())
		}
	}
	stop()
	for range addrs {
		require.NoError(t, <-ended)
	}
}
