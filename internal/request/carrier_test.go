package request

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// A cluster has a group for each master, any other client is one server.
func TestCarrierFitsTheClient(t *testing.T) {
	options := &redis.Options{Addr: "127.0.0.1:1"}
	single, cluster := redis.NewClient(options), redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{options.Addr}})
	defer func() { require.NoError(t, errors.Join(single.Close(), cluster.Close())) }()
	for _, tt := range []struct {
		client redis.UniversalClient
		want   Carrier
	}{{single, &Group{}}, {cluster, &Masters{}}, {struct{ redis.UniversalClient }{single}, &Group{}}} {
		require.IsType(t, tt.want, NewCarrier(Config{Client: tt.client}))
	}
}

// Whoever leaves while a command that goes by itself waits for a connection knows that nothing was
// sent. Once it is sent, or if it failed for another reason, nobody can know.
func TestFakeTimeCommandByItself(t *testing.T) {
	for name, tt := range map[string]struct {
		takes, full time.Duration
		name        string
		want        error
	}{
		"it is answered":              {time.Millisecond, 0, "good", nil},
		"it is refused":               {time.Millisecond, 0, "bad", errBad},
		"its caller leaves it":        {2 * time.Second, 0, "bad", errBad},
		"no connection is free":       {time.Millisecond, time.Minute, "good", ErrNotSent},
		"a connection is free, later": {time.Millisecond, time.Second / 2, "good", nil},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				l, g := newLine(t, tt.takes)
				l.take(tt.takes, tt.full)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				cmd := redis.NewCmd(ctx, tt.name)
				require.Equal(t, tt.want, g.Process(ctx, cmd))
				require.Equal(t, tt.want, cmd.Err())
				require.Equal(t, tt.want != ErrNotSent, l.asked(tt.name))
			})
		})
	}
}
