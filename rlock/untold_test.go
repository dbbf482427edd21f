package rlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// The server's user may not publish, so no waiter can be told that the lock is free, and the first
// ticket is that of another goroutine than the first one in memory. All get the lock.
func TestWaitersWhomNobodyMayTell(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	require.NoError(t, srv.Client(t).Do(t.Context(), "ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-publish", "-spublish").Err())
	for name, newLock := range map[string]func(c *rlock.Client, name string, n int) *rlock.Lock{
		"fair":  func(c *rlock.Client, name string, _ int) *rlock.Lock { return c.NewFairLock(name) },
		"plain": func(c *rlock.Client, name string, _ int) *rlock.Lock { return c.NewLock(name, rlock.WithoutHandoff()) },
		"both": func(c *rlock.Client, name string, n int) *rlock.Lock {
			if n%2 == 0 {
				return c.NewLock(name, rlock.WithoutHandoff())
			}
			return c.NewFairLock(name)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const clients, each = 4, 5
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			var mu sync.Mutex
			var freed time.Time // guarded by mu
			var longest time.Duration
			for range clients {
				c := clientOn(t, srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "mute", "any" }), nil)
				for n := range each {
					wg.Go(func() {
						assert.NoError(t, newLock(c, name, n).Do(ctx, func(context.Context) error {
							mu.Lock()
							defer mu.Unlock()
							if !freed.IsZero() {
								longest = max(longest, time.Since(freed))
							}
							time.Sleep(5 * time.Millisecond)
							freed = time.Now()
							return nil
						}))
					})
				}
			}
			wg.Wait()
			t.Logf("free beside a waiter for %v at most", longest)
		})
	}
}
