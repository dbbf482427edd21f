package rlock_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
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

// The server's user may not publish, and each of 50 clients writes again and again. The lock does not lie free
// until the first ticket asks of its own accord, and those who wait do not ask all the time.
func TestManyWritersWhomNobodyMayTell(t *testing.T) {
	redistest.Long(t, "50 clients take turns for some seconds")
	t.Parallel()
	srv := newServer(t)
	admin := srv.Client(t)
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-publish", "-spublish").Err())
	const clients, warm, grants = 50, 50, 150
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	var scripts, before, after int64 // before and after the grants that count
	var n int
	var freed, began time.Time
	var took time.Duration
	var gaps []time.Duration
	var inside sync.Mutex // guards what is above, for the race detector
	var counts []*atomic.Int64
	for range clients {
		rdb := srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "mute", "any" })
		counts = append(counts, countScripts(rdb))
		mu := clientOn(t, rdb, nil).NewRWLock("a").Writer()
		wg.Go(func() {
			for {
				_, hold, err := mu.Lock(ctx)
				if err != nil {
					return
				}
				inside.Lock()
				if n++; n == warm || n == warm+grants {
					scripts = 0
					for _, c := range counts {
						scripts += c.Load()
					}
					before, after = after, scripts
					began, took = time.Now(), time.Since(began)
				}
				if n > warm && !freed.IsZero() {
					gaps = append(gaps, time.Since(freed))
				}
				time.Sleep(5 * time.Millisecond)
				freed = time.Now()
				last := n >= warm+grants
				inside.Unlock()
				assert.NoError(t, hold.Unlock(t.Context()))
				if last {
					cancel()
				}
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, n, warm+grants)
	slices.Sort(gaps)
	t.Logf("free for %v, at most %v; %.1f scripts a grant", gaps[len(gaps)/2], gaps[len(gaps)-1], float64(after-before)/grants)
	require.Less(t, gaps[len(gaps)/2], time.Second)
	// Besides three for each grant, as the next call is refused at first: on a slow machine a grant takes longer.
	require.Less(t, float64(after-before-3*grants)/took.Seconds(), 150.0, "requests a second of those who wait")
}
