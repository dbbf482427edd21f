package rlock_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// A user without any channel locks, waits and unlocks; nothing is subscribed to
// and nothing complained about.
func TestPollingWithoutChannels(t *testing.T) {
	srv := newServer(t)
	rdb := aclClient(t, srv, "+@all", "-@pubsub", "+publish", "~*", "resetchannels")
	var log logBuffer
	opts := &rlock.Options{Logger: log.logger()}
	polling := rlock.WithPolling(rlock.Polling{First: 5 * time.Millisecond, Longest: 20 * time.Millisecond})
	a, b := clientOn(t, rdb, opts).NewLock("a", polling), clientOn(t, rdb, opts).NewLock("a", polling)

	m := srv.Monitor(t)
	held, hold := lock(t, t.Context(), a)
	waited := make(chan error)
	for range 3 {
		go func() {
			waited <- b.Do(context.Background(), func(ctx context.Context) error {
				return b.Do(ctx, func(context.Context) error { return nil })
			})
		}()
	}
	refused := srv.CommandCalls(t)["evalsha"]
	redistest.Eventually(t, "the waiter asks again and again", func() bool {
		return srv.CommandCalls(t)["evalsha"] > refused+10
	})
	require.NoError(t, hold.Unlock(held))
	for range 3 {
		require.NoError(t, <-waited)
	}
	for _, c := range m.Commands() {
		require.NotContains(t, strings.ToLower(c.Args[0]), "subscribe")
	}
	require.Empty(t, log.String())
}

// Who listens is woken by a holder that polls.
func TestPollingHolderAnnouncesItsRelease(t *testing.T) {
	srv := newServer(t)
	poller := newClient(t, srv, nil).NewLock("a", rlock.WithPolling(rlock.Polling{}))
	held, hold := lock(t, t.Context(), poller)
	waited := make(chan error)
	go func() {
		waited <- newClient(t, srv, nil).NewLock("a").Do(context.Background(), func(context.Context) error { return nil })
	}()
	awaitListener(t, srv.Client(t), "a")
	require.NoError(t, hold.Unlock(held))
	require.NoError(t, <-waited)
}

// The pauses double as long as there is room for it.
func TestFakeTimePollingWithoutALongestPause(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.foreign(0)
		mu := f.client(t, nil).NewLock("a", rlock.WithPolling(rlock.Polling{Longest: math.MaxInt64}))
		_, _, err := mu.TryLockFor(t.Context(), 5*time.Minute)
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
	})
}

func TestFakeTimePollingPauses(t *testing.T) {
	ms := time.Millisecond
	for _, tt := range []struct {
		name    string
		polling rlock.Polling
		ttl     time.Duration
		longest []time.Duration // each pause is at most this, and at least half of it
	}{
		{"defaults", rlock.Polling{}, time.Hour, []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second}},
		{"own", rlock.Polling{First: 10 * ms, Longest: 35 * ms}, time.Hour, []time.Duration{10 * ms, 20 * ms, 35 * ms, 35 * ms}},
		{"first above the default of longest", rlock.Polling{First: 3 * time.Second}, time.Hour, []time.Duration{3 * time.Second, 3 * time.Second}},
		{"no TTL", rlock.Polling{First: 10 * ms, Longest: time.Minute}, 0, []time.Duration{10 * ms, 20 * ms, 40 * ms, 80 * ms}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.foreign(tt.ttl)
				mu := f.client(t, nil).NewLock("a", rlock.WithPolling(tt.polling))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { _, _, err := mu.Lock(ctx); done <- err }()
				for _, d := range tt.longest {
					time.Sleep(d)
				}
				synctest.Wait()
				cancel()
				require.ErrorIs(t, <-done, rlock.ErrNotAcquired)
				at := f.asked()[1:] // the server has learnt the script from the second
				require.Greater(t, len(at), len(tt.longest))
				for i, d := range pauses(at)[:len(tt.longest)] {
					require.LessOrEqual(t, d, tt.longest[i], "pause %d", i)
					require.GreaterOrEqual(t, d, tt.longest[i]/2, "pause %d", i)
				}
			})
		})
	}
}

// A waiter that polls asks when the lease of the holder ends, even if its next turn to
// ask is an hour away.
func TestFakeTimePollingLooksWhenTheLeaseEnds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.foreign(time.Second)
		mu := f.client(t, nil).NewLock("a", rlock.WithPolling(rlock.Polling{First: time.Hour}))
		held, hold := lock(t, t.Context(), mu)
		require.LessOrEqual(t, f.now(), time.Second+5*time.Millisecond)
		require.NoError(t, hold.Unlock(held))
	})
}

func TestFakeTimePollingTries(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.foreign(time.Hour)
		mu := f.client(t, nil).NewLock("a", rlock.WithPolling(rlock.Polling{Tries: 5}))
		for call := range 2 {
			before := len(f.asked())
			_, _, err := mu.Lock(t.Context())
			var refusal *rlock.NotAcquiredError
			require.ErrorAs(t, err, &refusal)
			require.ErrorContains(t, err, "no more tries: 5 were made")
			require.InDelta(t, time.Hour, refusal.TTL, float64(5*time.Second))
			tries := len(f.asked()) - before
			if call == 0 {
				tries-- // the server had to learn the script
			}
			require.Equal(t, 5, tries)
		}
	})
}

// Each goroutine has its tries, counted from when it is the first of those who wait, whoever was the first before, and why
// that one is no longer.
func TestFakeTimePollingTriesOfTheNext(t *testing.T) {
	polling := func(tries int) rlock.LockOption {
		return rlock.WithPolling(rlock.Polling{Tries: tries, Longest: time.Second})
	}
	tests := map[string]struct {
		tries, next int
		leaves      bool
	}{
		"no more tries":         {5, 5, false},
		"fewer tries":           {5, 3, false},
		"leaves":                {20, 3, true},
		"leaves, with the same": {20, 20, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.foreign(time.Hour)
				c := f.client(t, nil)
				first, leave := context.WithCancel(t.Context())
				defer leave()
				before := begin(first, c.NewLock("a", polling(test.tries)))
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				next := begin(ctx, c.NewLock("a", polling(test.next)))
				asked := test.tries + 1 // the server had to learn the script
				if test.leaves {
					time.Sleep(time.Second)
					asked = len(f.asked())
					leave()
				}
				<-before.done
				<-next.done
				require.ErrorContains(t, next.err, fmt.Sprintf("no more tries: %d were made", test.next))
				require.Equal(t, test.next, len(f.asked())-asked)
			})
		})
	}
}

// An option may be used for several locks, by several goroutines.
func TestPollingOptionIsShared(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	c := clientOn(t, rdb, nil)
	opt := rlock.WithPolling(rlock.Polling{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { _ = c.NewLock("a", opt) })
	}
	all.Wait() // the race detector has looked
}

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
	// Besides three for each grant, as the next call is refused at first: on a slow machine a grant takes longer. If each
	// of the 50 asked every 50 ms, there would be 1,000.
	require.Less(t, float64(after-before-3*grants)/took.Seconds(), 600.0, "requests a second of those who wait")
}
