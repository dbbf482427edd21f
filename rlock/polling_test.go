package rlock_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
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

func TestPollingOptionsThatCannotWork(t *testing.T) {
	c := newClient(t, newServer(t), nil)
	for _, p := range []rlock.Polling{
		{First: -1},
		{Longest: -1},
		{Tries: -1},
		{First: 2 * time.Second, Longest: time.Second},
	} {
		mu := c.NewLock("a", rlock.WithPolling(p))
		_, _, err := mu.Lock(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption, "%+v", p)
		_, _, err = mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption, "%+v", p)
		_, err = mu.Inspect(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption, "%+v", p)
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
