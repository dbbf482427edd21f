package kind

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// refusing is a client of a server that is not there.
type refusing struct{}

func (refusing) Process(context.Context, redis.Cmder) error { return errors.New("not there") }
func (refusing) Pipeline() redis.Pipeliner                  { panic("nobody asks for one") }

// The first request of a client has the cluster asked by which channels releases are
// announced, so that its first release need not be announced by both.
func TestAcquireHasTheClusterAsked(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { _ = cluster.Close() }()
	asked := 0
	s := &Server{RDB: cluster, Channels: NewChannels(cluster, "id", func(func()) { asked++ }, ShardingAuto)}
	_, err := NewQueued(s, "a", false).Acquire(t.Context(), refusing{}, "me:1", time.Minute, Options{})
	require.Error(t, err)
	require.Equal(t, 1, asked)
}
