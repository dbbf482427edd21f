package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// crowd is many clients that hold locks, and wait for some.
type crowd struct {
	t       *testing.T
	srv     *redistest.Server
	clients []*rlock.Client
	done    sync.WaitGroup
	leave   context.CancelFunc
}

// newCrowd has clients hold so many locks each, named lock:<client>:<n>, and wait, all
// together, for so many of other clients.
func newCrowd(t *testing.T, srv *redistest.Server, clients, held, waiters int) *crowd {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	c := &crowd{t: t, srv: srv, leave: leave}
	for i := range clients {
		rdb := srv.Client(t, func(o *redis.Options) { o.PoolSize, o.PipelinePoolSize = 2, 2 })
		client, err := rlock.New(rdb, &rlock.Options{LeaseTime: 30 * time.Second, Identity: rlock.Identity{Host: fmt.Sprint("host", i%10), Program: "crowd", PID: i + 1}})
		require.NoError(t, err)
		c.clients = append(c.clients, client)
		c.done.Go(func() {
			for n := range held {
				_, _, err := client.NewLock(fmt.Sprintf("lock:%d:%d", i, n), rlock.WithPurpose("crowded")).Lock(ctx)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	c.done.Wait()
	for i := range waiters {
		mu := c.clients[i%clients].NewLock(fmt.Sprintf("lock:%d:%d", (i+1)%clients, i/clients), rlock.WithPurpose("patient"))
		c.done.Go(func() { _, _, _ = mu.Lock(ctx) })
	}
	t.Cleanup(c.end)
	return c
}

// end closes the clients. What they hold ends with its lease, or with the server.
func (c *crowd) end() {
	c.leave()
	var all sync.WaitGroup
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, client := range c.clients {
		all.Go(func() { _ = client.Close(over) })
	}
	all.Wait()
	c.done.Wait()
}

// await returns when all that is held and waited for is told.
func (c *crowd) await(held, waiters int) {
	c.t.Helper()
	rdb := c.srv.Client(c.t)
	s := &server{rdb: rdb}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		records, err := s.records(c.t.Context())
		require.NoError(c.t, err)
		h, w := 0, 0
		for _, r := range records {
			for _, e := range r.Entries {
				switch e.What {
				case record.Holds:
					h += e.Count
				case record.Waits:
					w += e.Count
				}
			}
		}
		if h == held && w == waiters {
			return
		}
		require.True(c.t, time.Now().Before(deadline), "%d held, %d wait", h, w)
	}
}

// TestTopOfMany looks at 100 clients that hold 100 locks each, while 200 calls wait: it
// shows all of them, in few round trips, and a million other keys make no difference.
func TestTopOfMany(t *testing.T) {
	redistest.Long(t, "10,000 locks have to be held for ten seconds")
	srv := redistest.Start(t)
	newCrowd(t, srv, 100, 100, 200).await(10_000, 200)
	look := func() (time.Duration, topView) {
		best := time.Hour
		var v topView
		for range 5 {
			start := time.Now()
			r := outcome(t, srv.URL(), "top", "--once", "--json")
			best = min(best, time.Since(start))
			require.Zero(t, r.code, r.stderr)
			v = topView{}
			require.NoError(t, json.Unmarshal([]byte(r.stdout), &v))
		}
		return best, v
	}
	before := srv.CommandCalls(t)
	took, v := look()
	after := srv.CommandCalls(t)
	require.Len(t, v.Clients, 100)
	require.Len(t, v.Locks, 10_000)
	waiters := 0
	for _, l := range v.Locks {
		require.Len(t, l.Holders, 1, l.Name)
		require.Equal(t, "crowded", l.Holders[0].Purpose)
		require.NotNil(t, l.Holders[0].HeldMS)
		require.NotNil(t, l.TTL)
		require.Equal(t, "crowd", l.Holders[0].Program)
		require.Equal(t, "plain", l.Kind)
		waiters += l.Waiters
	}
	require.Equal(t, 200, waiters)
	require.Equal(t, before["scan"], after["scan"], "the keyspace is not scanned")
	require.Equal(t, before["keys"], after["keys"])

	require.NoError(t, srv.Client(t).Do(t.Context(), "debug", "populate", 1_000_000).Err())
	million, v := look()
	require.Len(t, v.Locks, 10_000)
	require.True(t, slices.ContainsFunc(v.Locks, func(l *topLock) bool { return l.Waiters == 2 || l.Waiters == 1 }))
	t.Logf("rlock top --once --json of 10,000 locks: %v; beside a million keys: %v", took, million)
}
