package request

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// Questions who the masters are may hang on the node that is gone, for as long as go-redis
// tries to reach it. Others are asked all the same, so that its successor is found.
func TestFakeTimeQuestionsThatHang(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var master atomic.Int32 // the last number of its address
		master.Store(1)
		node := miniredis.NewMiniRedis()
		back := make(chan struct{}) // closed when the node that is gone comes back
		rdb := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{"10.0.0.2:1"}, DialTimeout: time.Minute, PoolSize: 1000, DisableRoutingPolicies: true,
			Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
				if addr == "10.0.0.1:1" {
					select {
					case <-back:
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				return node.Dial()
			},
		})
		require.NoError(t, startWith(node, func(c *server.Peer, cmd string, _ ...string) bool {
			if cmd != "CLUSTER" {
				return false
			}
			first := int(master.Load())
			c.WriteLen(1)
			c.WriteLen(8)
			c.WriteInt(0)
			c.WriteInt(16383)
			for i := range 6 {
				c.WriteLen(3)
				c.WriteBulk("10.0.0." + strconv.Itoa((first-1+i)%6+1))
				c.WriteInt(1)
				c.WriteBulk("id" + strconv.Itoa(i))
			}
			return true
		}))
		var questions sync.WaitGroup
		r := Reloads{Background: questions.Go}
		ask := func(d time.Duration) {
			for range int(d / reloadPause) {
				r.Reload(rdb)
				time.Sleep(reloadPause)
			}
		}
		ask(time.Minute)
		master.Store(2)
		ask(10 * time.Second)
		successor, err := rdb.MasterForKey(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, "10.0.0.2:1", successor.Options().Addr)
		r.mu.Lock()
		require.Less(t, r.open, 100)
		r.mu.Unlock()
		close(back)
		questions.Wait()
		require.NoError(t, rdb.Close())
		node.Close()
	})
}

// startWith starts a server, with a hook before each command.
func startWith(node *miniredis.Miniredis, hook server.Hook) error {
	c, err := node.Dial()
	if err != nil {
		return err
	}
	node.Server().SetPreHook(hook)
	return c.Close()
}
