package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// A thousand clients of one host are told apart, keep to their two requests in ten
// seconds, and leave nothing when they close.
func TestRecordsOfAThousandClients(t *testing.T) {
	redistest.Long(t, "a thousand clients hold locks for half a minute")
	srv := newServer(t, "--maxclients", "5000")
	rdb, ctx := srv.Client(t), t.Context()
	const n = 1000
	clients := make([]*rlock.Client, n)
	holds := make([]*rlock.Hold, n)
	var all sync.WaitGroup
	for i := range n {
		own := srv.Client(t, func(o *redis.Options) { o.PoolSize, o.PipelinePoolSize = 1, 1 })
		var err error
		clients[i], err = rlock.New(own, &rlock.Options{LeaseTime: time.Minute, Identity: rlock.Identity{Host: "same", PID: 1}})
		require.NoError(t, err)
		all.Go(func() {
			_, hold, err := clients[i].NewLock(fmt.Sprint("lock", i), rlock.WithoutRenewal()).Lock(ctx)
			if err != nil {
				t.Error(err)
			}
			holds[i] = hold
		})
	}
	all.Wait()
	inTime := time.Now().Add(time.Minute)
	for len(listed(t, rdb, "")) < n {
		require.True(t, time.Now().Before(inTime), "%d have a record", len(listed(t, rdb, "")))
		time.Sleep(100 * time.Millisecond)
	}
	before, began := srv.CommandCalls(t)["evalsha"], time.Now()
	<-time.After(20 * time.Second)
	sent, took := srv.CommandCalls(t)["evalsha"]-before, time.Since(began)
	t.Logf("%d scripts of %d clients in %v", sent, n, took.Round(time.Millisecond))
	require.LessOrEqual(t, sent, int64(2*n*(1+int(took/(10*time.Second)))))
	require.Positive(t, sent)
	for i := range n {
		all.Go(func() {
			if err := errors.Join(holds[i].Unlock(context.Background()), closeSoon(clients[i])); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Empty(t, rdb.Keys(ctx, "*").Val())
}

// In a cluster the record and the list are on different nodes.
func TestRecordInACluster(t *testing.T) {
	redistest.Long(t, "starts a cluster")
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	rdb := cluster.Client(t)
	c, err := rlock.New(rdb, &rlock.Options{LeaseTime: 3 * time.Second})
	require.NoError(t, err)
	held, hold := lock(t, t.Context(), c.NewLock("a"))
	id := awaitRecord(t, rdb, "", record.Holds, "a")
	r, ttl := readRecord(t, rdb, "", id)
	require.NotEmpty(t, r.Host)
	require.Positive(t, ttl)
	require.NoError(t, hold.Unlock(held))
	require.NoError(t, closeSoon(c))
	require.Empty(t, listed(t, rdb, ""))
	require.Zero(t, rdb.Exists(t.Context(), record.Key("", id)).Val())
}

// A server that answers after 50 ms, or stands still while a record is written, delays no
// lock; a Close with little time comes back in time, and the record ends by itself.
func TestRecordOnASlowServer(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb, ctx := srv.Client(t), t.Context()
	proxy := netfault.New(t, srv.Addr())
	proxy.Delay(25*time.Millisecond, 25*time.Millisecond)
	slow := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Second})
	defer slow.Close()
	c, err := rlock.New(slow, &rlock.Options{LeaseTime: time.Minute})
	require.NoError(t, err)
	_, hold := lock(t, ctx, c.NewLock("a", rlock.WithoutRenewal(), rlock.WithLeaseTime(30*time.Second)))
	id := awaitRecord(t, rdb, "", record.Holds, "a")
	require.NoError(t, hold.Unlock(ctx))
	srv.Stop()
	over, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	began := time.Now()
	require.NoError(t, c.Close(over), "the record is no reason for an error")
	require.Less(t, time.Since(began), 30*time.Second)
	srv.Cont()
	require.LessOrEqual(t, rdb.PTTL(ctx, record.Key("", id)).Val(), record.Lasts)
}
