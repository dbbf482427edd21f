package rlock_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// What a call costs, by the commands that reach the server.
func TestRoundTrips(t *testing.T) {
	srv := newServer(t)
	ctx := t.Context()
	c := newClient(t, srv, nil)
	mu := c.NewLock("a")
	teach(t, srv)
	held, hold := lock(t, ctx, mu)
	_, nested := lock(t, held, mu)
	require.NoError(t, nested.Unlock(ctx))
	require.NoError(t, hold.Unlock(ctx))

	require.Equal(t, []string{"evalsha", "evalsha"}, sent(t, srv, func() {
		held, hold := lock(t, ctx, mu)
		require.NoError(t, hold.Unlock(held))
	}), "Lock and Unlock")

	require.Equal(t, []string{"evalsha", "evalsha"}, sent(t, srv, func() {
		require.NoError(t, c.NewLock("fenced", rlock.WithFencing()).Do(ctx, func(context.Context) error { return nil }))
	}), "Lock and Unlock with fencing")

	held, hold = lock(t, ctx, mu)
	require.Equal(t, []string{"evalsha", "evalsha"}, sent(t, srv, func() {
		_, nested := lock(t, held, mu)
		require.NoError(t, nested.Unlock(held))
	}), "nested Lock and Unlock")
	require.Empty(t, sent(t, srv, func() {
		require.Equal(t, 1, mu.HoldCount(held))
		_ = hold.Until()
	}), "local questions")

	require.Empty(t, sent(t, srv, func() {
		back, none, err := mu.TryLock(ctx)
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.Nil(t, none)
		require.Equal(t, ctx, back)
	}), "TryLock while a goroutine of this client holds the lock")

	theirs := newClient(t, srv, nil).NewLock("a")
	require.Equal(t, []string{"evalsha"}, sent(t, srv, func() {
		_, _, err := theirs.TryLock(ctx)
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		var refused *rlock.NotAcquiredError
		require.ErrorAs(t, err, &refused)
		require.InDelta(t, 30*time.Second, refused.TTL, float64(10*time.Second))
	}), "TryLock while another client holds the lock")

	for _, wait := range []time.Duration{0, -time.Second} {
		require.Equal(t, []string{"evalsha"}, sent(t, srv, func() {
			for _, mu := range []*rlock.Lock{mu, theirs} {
				back, none, err := mu.TryLockFor(ctx, wait)
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
				require.Nil(t, none)
				require.Equal(t, ctx, back)
			}
		}), "TryLockFor(%v)", wait)
	}
	require.NoError(t, hold.Unlock(held))
}

// An answer that has come counts, however close together things happen: nothing
// is asked twice.
func TestEveryAnswerCounts(t *testing.T) {
	const n = 300
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	require.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil }))
	_, err := mu.Inspect(t.Context())
	require.NoError(t, err)
	require.Len(t, sent(t, srv, func() {
		for range n {
			_, hold, err := mu.TryLock(t.Context())
			require.NoError(t, err)
			_, err = mu.Inspect(t.Context())
			require.NoError(t, err)
			require.NoError(t, hold.Unlock(t.Context()))
		}
	}), 3*n)
}

// A context that has ended is answered before anything is sent.
func TestEndedContext(t *testing.T) {
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	past, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		want error
	}{
		"cancelled": {cancelled, context.Canceled},
		"past":      {past, context.DeadlineExceeded},
	} {
		for method, call := range methods(mu) {
			t.Run(name+"/"+method, func(t *testing.T) {
				require.Empty(t, sent(t, srv, func() {
					err := call(tt.ctx)
					require.ErrorIs(t, err, tt.want)
					require.ErrorContains(t, err, `"a"`)
					switch method {
					case "Inspect", "ForceUnlock", "UnlockOwner":
						require.NotErrorIs(t, err, rlock.ErrNotAcquired, "nothing was to be acquired")
					default:
						require.ErrorIs(t, err, rlock.ErrNotAcquired)
					}
				}))
			})
		}
	}
}

// The race detector sees n; the server is asked who is inside.
func TestMutualExclusion(t *testing.T) {
	t.Run("with hand-off", func(t *testing.T) {
		total := 0
		for _, n := range excludeEachOther(t) {
			total += n
		}
		require.Equal(t, 160, total)
	})
	t.Run("without", func(t *testing.T) {
		require.Len(t, excludeEachOther(t, rlock.WithoutHandoff()), 160, "every grant has an owner of its own")
	})
}

// excludeEachOther has goroutines of two clients lock 160 times, and returns how
// often each owner was seen on the server.
func excludeEachOther(t *testing.T, opts ...rlock.LockOption) map[string]int {
	srv := newServer(t)
	rdb := srv.Client(t)
	var wg sync.WaitGroup
	inside, n := 0, make(map[string]int)
	for range 2 {
		mu := newClient(t, srv, nil).NewLock("a", opts...)
		for range 8 {
			wg.Go(func() {
				for range 10 {
					if err := mu.Do(t.Context(), func(ctx context.Context) error {
						inside++
						if inside != 1 {
							t.Errorf("%d inside", inside)
						}
						for owner := range hgetall(t, rdb, "a") {
							n[owner]++
						}
						inside--
						return ctx.Err()
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	return n
}

func BenchmarkLock(b *testing.B) { benchmarkLock(b, newClient(b, newServer(b), nil)) }

// A caller that is alone sends its request itself, if its client obeys deadlines.
func BenchmarkLockAlone(b *testing.B) {
	rdb := newServer(b).Client(b, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	benchmarkLock(b, clientOn(b, rdb, nil))
}

func benchmarkLock(b *testing.B, c *rlock.Client) {
	mu, ctx := c.NewLock("a"), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_, hold, err := mu.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := hold.Unlock(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// methods are those of a lock that may go to the server. What they acquire they
// give back.
func methods(mu *rlock.Lock) map[string]func(context.Context) error {
	unlock := func(ctx context.Context, hold *rlock.Hold, err error) error {
		if err != nil {
			return err
		}
		return hold.Unlock(ctx)
	}
	return map[string]func(context.Context) error{
		"Lock":        func(ctx context.Context) error { return unlock(mu.Lock(ctx)) },
		"TryLock":     func(ctx context.Context) error { return unlock(mu.TryLock(ctx)) },
		"TryLockFor":  func(ctx context.Context) error { return unlock(mu.TryLockFor(ctx, 10*time.Second)) },
		"Do":          func(ctx context.Context) error { return mu.Do(ctx, func(context.Context) error { return nil }) },
		"Inspect":     func(ctx context.Context) error { _, err := mu.Inspect(ctx); return err },
		"ForceUnlock": func(ctx context.Context) error { _, err := mu.ForceUnlock(ctx); return err },
		"UnlockOwner": func(ctx context.Context) error { _, err := mu.UnlockOwner(ctx, "somebody:1"); return err },
	}
}

// One operation is a Lock and an Unlock of a lock that nobody else wants, by one
// of 64 goroutines.
func BenchmarkLockParallel(b *testing.B) {
	c := newClient(b, newServer(b), nil)
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		mu := c.NewLock("a" + strconv.FormatInt(n.Add(1), 10))
		for pb.Next() {
			_, hold, err := mu.Lock(context.Background())
			if err != nil {
				b.Error(err)
				return
			}
			if err := hold.Unlock(context.Background()); err != nil {
				b.Error(err)
			}
		}
	})
}

// The bounded forms of Do bound the wait, and not the work.
func TestDoForAndTryDo(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu, other := newClient(t, srv, nil).NewLock("a"), newClient(t, srv, nil).NewLock("a")
	errWork := errors.New("work")
	work := func(ctx context.Context) error {
		_, bounded := ctx.Deadline()
		require.False(t, bounded)
		require.Equal(t, 1, mu.HoldCount(ctx))
		return errWork
	}
	require.Equal(t, errWork, mu.DoFor(t.Context(), time.Minute, work))
	require.Equal(t, errWork, mu.TryDo(t.Context(), work))
	require.Zero(t, holds(t, rdb, "a"))

	held, hold := lock(t, t.Context(), other)
	never := func(context.Context) error { t.Error("it ran"); return nil }
	require.ErrorIs(t, mu.DoFor(t.Context(), 10*time.Millisecond, never), context.DeadlineExceeded)
	require.ErrorIs(t, mu.TryDo(t.Context(), never), rlock.ErrNotAcquired)
	require.NoError(t, hold.Unlock(held))
}
