package rlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// locksOf returns the locks of these names.
func locksOf(c *rlock.Client, names ...string) (all []*rlock.Lock) {
	for _, name := range names {
		all = append(all, c.NewLock(name))
	}
	return all
}

// keysLeft waits until the server holds no key but these.
func keysLeft(tb testing.TB, rdb *redis.Client, keys ...string) {
	tb.Helper()
	redistest.Eventually(tb, "nothing else is left", func() bool {
		return len(lockKeys(tb, rdb)) == len(keys) &&
			(len(keys) == 0 || rdb.Exists(context.Background(), keys...).Val() == int64(len(keys)))
	})
}

// Whoever waits for a member holds those before it, and none behind it.
func TestMultiWaitsInOrder(t *testing.T) {
	srv := newServer(t)
	rdb, c, other := srv.Client(t), newClient(t, srv, nil), newClient(t, srv, nil)
	mu := rlock.NewMultiLock(locksOf(c, "d", "c", "b", "a")...)
	for _, tt := range []struct {
		busy   string
		before []string
	}{{"a", nil}, {"b", []string{"a"}}, {"c", []string{"a", "b"}}, {"d", []string{"a", "b", "c"}}} {
		_, busy := lock(t, t.Context(), other.NewLock(tt.busy))
		var refusal *rlock.NotAcquiredError
		_, _, err := mu.TryLock(t.Context())
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, tt.busy, refusal.Name)
		keysLeft(t, rdb, tt.busy)

		done := make(chan error)
		go func() {
			done <- mu.Do(context.Background(), func(ctx context.Context) error {
				if n := len(rdb.Keys(ctx, "?").Val()); n != 4 {
					t.Errorf("%d locks are held", n)
				}
				return nil
			})
		}()
		awaitListener(t, rdb, tt.busy)
		keysLeft(t, rdb, append(tt.before, tt.busy, "rlock_queue:{"+tt.busy+"}")...)
		require.NoError(t, busy.Unlock(t.Context()))
		require.NoError(t, <-done)
		keysLeft(t, rdb)
	}
}

func TestMultiLostMember(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb, c := srv.Client(t), newClient(t, srv, &rlock.Options{LeaseTime: 9 * time.Second})
	mu := rlock.NewMultiLock(locksOf(c, "a", "b", "c")...)
	for _, name := range []string{"a", "b", "c"} {
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, rdb.Del(t.Context(), name).Err())
		<-held.Done()
		var lost *rlock.LostError
		require.ErrorAs(t, context.Cause(held), &lost)
		require.Equal(t, name, lost.Name)
		err := hold.Unlock(held)
		require.ErrorIs(t, err, rlock.ErrLeaseLost)
		keysLeft(t, rdb)
	}
}

// A member that is lost while others are waited for does not keep the caller from
// what it waits for.
func TestMultiStartsOverAfterALoss(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb, c, other := srv.Client(t), newClient(t, srv, &rlock.Options{LeaseTime: 9 * time.Second}), newClient(t, srv, nil)
	_, holder := lock(t, t.Context(), other.NewLock("b"))
	done := make(chan error)
	go func() {
		done <- rlock.NewMultiLock(locksOf(c, "a", "b")...).Do(context.Background(), func(ctx context.Context) error {
			require.Len(t, rdb.Keys(ctx, "?").Val(), 2)
			return ctx.Err()
		})
	}()
	awaitListener(t, rdb, "b")
	first := hgetall(t, rdb, "a")
	require.NoError(t, rdb.Del(t.Context(), "a").Err())
	redistest.Eventually(t, "it is taken again", func() bool {
		now := hgetall(t, rdb, "a")
		for owner := range now {
			return first[owner] == ""
		}
		return false
	})
	require.NoError(t, holder.Unlock(t.Context()))
	require.NoError(t, <-done)
}

// Two processes that name the same locks in opposite order never wait for each
// other, on one server or two.
func TestMultiOverlappingSets(t *testing.T) {
	t.Parallel()
	one, two := newServer(t), newServer(t)
	var inside [4]atomic.Int32
	var rounds atomic.Int64
	began, least := time.Now(), 4*time.Second
	if testing.Short() {
		least = time.Second
	}
	enough := func() bool { return rounds.Load() > 50 && time.Since(began) > least }
	var wg sync.WaitGroup
	for process := range 4 {
		c, d := newClient(t, one, nil), newClient(t, two, nil)
		all := append(locksOf(c, "a", "b", "x"), d.NewLock("x")) // twice the same key
		for range 2 {
			wg.Go(func() {
				for !t.Failed() && !enough() {
					order := rand.Perm(len(all))[:1+rand.IntN(len(all))]
					var members []*rlock.Lock
					for _, i := range order {
						members = append(members, all[i])
					}
					held, hold, err := rlock.NewMultiLock(members...).TryLockFor(context.Background(), time.Minute)
					if err != nil {
						t.Errorf("process %d: %v", process, err)
						return
					}
					for _, i := range order {
						if inside[i].Add(1) != 1 {
							t.Errorf("two hold lock %d", i)
						}
					}
					for _, i := range order {
						inside[i].Add(-1)
					}
					if err := hold.Unlock(held); err != nil {
						t.Error(err)
					}
					rounds.Add(1)
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d rounds in %v", rounds.Load(), time.Since(began))
	keysLeft(t, one.Client(t))
	keysLeft(t, two.Client(t))
}

// The caller may leave at any moment.
func TestMultiCallerLeaves(t *testing.T) {
	t.Parallel()
	srv, second := newServer(t), newServer(t)
	c, d, other := newClient(t, srv, nil), newClient(t, second, nil), newClient(t, srv, nil)
	mu := rlock.NewMultiLock(append(locksOf(c, "a", "b", "d"), d.NewLock("c"))...)
	taken := 0
	for i := range 300 {
		var busy *rlock.Hold
		if i%3 == 0 {
			_, busy = lock(t, t.Context(), other.NewLock([]string{"a", "b", "d"}[i/3%3]))
		}
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(5*time.Millisecond))
		held, hold, err := mu.Lock(ctx)
		if err == nil {
			taken++
			require.NoError(t, hold.Unlock(held))
		} else {
			require.Nil(t, hold)
			require.Equal(t, ctx, held)
		}
		cancel()
		if busy != nil {
			require.NoError(t, busy.Unlock(t.Context()))
		}
	}
	t.Logf("%d of 300 were in time", taken)
	keysLeft(t, srv.Client(t))
	keysLeft(t, second.Client(t))
}

// A server that is silent keeps nobody: what was taken on others is released in
// the background.
func TestMultiSilentServer(t *testing.T) {
	t.Parallel()
	srv, silent := newServer(t), newServer(t)
	c, d := newClient(t, srv, nil), newClient(t, silent, nil)
	mu := rlock.NewMultiLock(c.NewLock("a"), d.NewLock("b"))
	silent.Stop()
	within := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		began := time.Now()
		_, _, err := mu.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(began), d+slack)
		return err
	}
	err := within(50 * time.Millisecond)
	for d := 100 * time.Millisecond; errors.Is(err, rlock.ErrNotAcquired) && d < time.Minute; d *= 2 {
		err = within(d) // a busy machine may not come to ask the second in time
	}
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	keysLeft(t, srv.Client(t))
	silent.Cont()
	keysLeft(t, silent.Client(t))
}

func TestMultiOfAllKinds(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	clients := all.clients(t, rlock.Options{})
	mu := rlock.NewMultiLock(
		clients[1].NewLock("plain"),
		rlock.NewQuorumLock("a", clients),
		clients[2].NewLock("polling", rlock.WithPolling(rlock.Polling{})),
		clients[0].NewLock("other"),
	)
	held, hold := lock(t, t.Context(), mu)
	_, _, err := mu.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	require.Equal(t, 1, mu.HoldCount(held))
	require.NoError(t, hold.Unlock(held))
	for _, srv := range all {
		keysLeft(t, srv.Client(t))
	}
}

func TestMultiClosedClient(t *testing.T) {
	srv := newServer(t)
	c, d := newClient(t, srv, nil), newClient(t, srv, nil)
	mu := rlock.NewMultiLock(c.NewLock("a"), d.NewLock("b"))
	held, hold := lock(t, t.Context(), mu)
	closed := make(chan error)
	go func() { closed <- closeSoon(d) }()
	<-held.Done()
	require.ErrorIs(t, context.Cause(held), rlock.ErrClosed)
	require.NoError(t, hold.Unlock(held))
	require.NoError(t, <-closed)
	_, _, err := mu.Lock(t.Context())
	require.ErrorIs(t, err, rlock.ErrClosed)
	keysLeft(t, srv.Client(t))
}

func TestFakeTimeMultiWaitEndsInTime(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.foreign(time.Hour)
		c := f.client(t, nil)
		mu := rlock.NewMultiLock(c.NewLock("a"), c.NewLock("0", rlock.WithLeaseTime(10*time.Second)))
		_, _, err := mu.TryLockFor(t.Context(), 45*time.Second)
		require.Equal(t, 45*time.Second, f.now())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		require.False(t, f.Exists("0"))
		f.Del("a")
		held, hold := lock(t, t.Context(), mu)
		require.Equal(t, f.start.Add(45*time.Second+lapse(10*time.Second)+time.Second), hold.Until(), "the earliest")
		require.NoError(t, hold.Unlock(held))
	})
}

func TestMultiOptionsThatCannotWork(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	c, d := clientOn(t, rdb, nil), clientOn(t, rdb, nil)
	a := c.NewLock("a")
	for name, mu := range map[string]*rlock.MultiLock{
		"nothing":         rlock.NewMultiLock(),
		"nil":             rlock.NewMultiLock(a, nil),
		"refused members": rlock.NewMultiLock(rlock.NewMultiLock(a, d.NewLock("a")).Members()...),
		"invalid member":  rlock.NewMultiLock(a, c.NewLock("")),
		"two clients":     rlock.NewMultiLock(a, d.NewLock("a")),
	} {
		for call, f := range map[string]func() error{
			"Lock":       func() error { _, _, err := mu.Lock(t.Context()); return err },
			"TryLock":    func() error { _, _, err := mu.TryLock(t.Context()); return err },
			"TryLockFor": func() error { _, _, err := mu.TryLockFor(t.Context(), time.Second); return err },
			"Do":         func() error { return mu.Do(t.Context(), func(context.Context) error { return nil }) },
			"Guard": func() error {
				_, err := rlock.Guard(func(int) *rlock.MultiLock { return mu }, func(context.Context, int) (int, error) { return 0, nil })(t.Context(), 1)
				return err
			},
		} {
			require.ErrorIs(t, f(), rlock.ErrInvalidOption, "%s of %s", call, name)
		}
		require.Zero(t, mu.HoldCount(t.Context()), name)
	}
	held, hold, err := rlock.NewMultiLock(a, c.NewLock("b"), a).TryLock(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, holds(t, rdb, "a"), "twice the same is held twice")
	require.NoError(t, hold.Unlock(held))
}
