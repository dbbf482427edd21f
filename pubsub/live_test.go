package pubsub_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/go-rlock/rlock/pubsub"
)

// hub returns a hub on rdb, closed with the test.
func hub(t *testing.T, rdb redis.UniversalClient, opts pubsub.Options) *pubsub.Hub {
	h := pubsub.NewHub(pubsub.Redis(rdb, "probe"), opts)
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	return h
}

// wake fails the test if w does not wake up, with what a busy machine may need.
func wake(t *testing.T, w *waiter) {
	t.Helper()
	select {
	case <-w.C():
	case <-time.After(30 * time.Second):
		t.Fatal("no wake-up within 30 s")
	}
}

// live waits for the wake-up with which w becomes live.
func live(t *testing.T, w *waiter) {
	t.Helper()
	for wake(t, w); !w.Live(); {
		wake(t, w)
	}
}

// protocols runs a test with either version of the protocol.
func protocols(t *testing.T, test func(t *testing.T, edit func(*redis.Options))) {
	for _, version := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", version), func(t *testing.T) {
			test(t, func(o *redis.Options) { o.Protocol = version })
		})
	}
}

// dialler counts connections, and may be told where to.
type dialler struct {
	addr  atomic.Value // of string; overrides the client's address
	dials atomic.Int64
	hang  atomic.Bool // further dials hang until their context ends
}

func (d *dialler) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.dials.Add(1)
	if d.hang.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if a, ok := d.addr.Load().(string); ok {
		addr = a
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}
