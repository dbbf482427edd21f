package kind

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A redirection names a node in the form of the server, which is not always that of an address.
func TestEndpoint(t *testing.T) {
	for addr, want := range map[string]string{
		"10.0.0.2:7000": "10.0.0.2:7000", "node.example:7000": "node.example:7000",
		"::1:7000": "[::1]:7000", "[::1]:7000": "[::1]:7000", "fe80::1:2:7000": "[fe80::1:2]:7000",
		":7000": "10.0.0.1:7000", "?:7000": "10.0.0.1:7000",
	} {
		require.Equal(t, want, endpoint(addr, "10.0.0.1:6379"), addr)
	}
	require.Equal(t, "[::1]:7000", endpoint(":7000", "[::1]:6379"))
}

// The client of another node has the time-outs that its user has set.
func TestLikeThose(t *testing.T) {
	for _, d := range []time.Duration{-2, -1, 0, time.Second} {
		first := redis.NewClient(&redis.Options{ReadTimeout: d, WriteTimeout: d, Username: "u"})
		second := redis.NewClient(likeThose(first.Options()))
		require.Equal(t, first.Options().ReadTimeout, second.Options().ReadTimeout, d)
		require.Equal(t, first.Options().WriteTimeout, second.Options().WriteTimeout, d)
		require.Equal(t, "u", second.Options().Username)
		require.Zero(t, second.Options().MaxRetries)
		require.NoError(t, first.Close())
		require.NoError(t, second.Close())
	}
}
