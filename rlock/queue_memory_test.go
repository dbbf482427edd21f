package rlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A server short of memory keeps no ticket, and so tells nobody. The waiter asks again,
// and does not sleep until the holder's lease is over.
func TestWaiterWithoutATicket(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	holder, waiter := newClient(t, srv, nil).NewLock("lock"), newClient(t, srv, nil).NewLock("lock")
	held, hold, err := holder.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	got := make(chan error, 1)
	go func() {
		ctx, mine, err := waiter.Lock(t.Context())
		if err == nil {
			err = mine.Unlock(ctx)
		}
		got <- err
	}()
	redistest.Eventually(t, "it listens, or may not", func() bool {
		refused := strings.Contains(admin.Info(t.Context(), "commandstats").Val(), "cmdstat_subscribe:calls=0,") // Redis 8.10 does
		return refused || len(admin.PubSubChannels(t.Context(), "rlock_channel:*").Val()) > 0
	})
	time.Sleep(200 * time.Millisecond)
	require.Zero(t, admin.Exists(t.Context(), lua.QueueOf("lock")).Val())
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.NoError(t, hold.Unlock(held))
	select {
	case err := <-got:
		require.NoError(t, err)
	case <-time.After(time.Second + slack):
		require.Fail(t, "it sleeps beside a free lock")
	}
}
