package rlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
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

func TestMultiLock(t *testing.T) {
	srv := newServer(t)
	rdb, c := srv.Client(t), newClient(t, srv, nil)
	mu := rlock.NewMultiLock(append(locksOf(c, "c", "a"), c.NewLock("b", rlock.WithFencing()))...)
	require.Equal(t, "a,b,c", mu.Name())
	for range 2 { // the second time the server knows the scripts
		var held context.Context
		var hold *rlock.MultiHold
		commands := sent(t, srv, func() { held, hold = lock(t, t.Context(), mu) })
		require.LessOrEqual(t, len(commands), 2)
		require.Len(t, rdb.Keys(t.Context(), "?").Val(), 3)
		require.Equal(t, 1, mu.HoldCount(held))
		for i, part := range hold.Holds() {
			require.Equal(t, mu.Members()[i].Owner(held), part.Owner())
			require.Equal(t, mu.Members()[i].Token(held), part.Token())
		}
		require.Positive(t, time.Until(hold.Until()))

		_, inner := lock(t, held, c.NewLock("b"))
		require.Equal(t, 2, holds(t, rdb, "b"))
		require.Positive(t, inner.Token())
		require.NoError(t, inner.Unlock(held))
		nested, again := lock(t, held, rlock.NewMultiLock(append(mu.Members(), c.NewLock("d"))...))
		require.Equal(t, 2, holds(t, rdb, "a"))
		require.Equal(t, 1, holds(t, rdb, "d"))
		require.Equal(t, 2, mu.HoldCount(nested))
		require.NoError(t, again.Unlock(nested))
		require.NoError(t, held.Err())

		require.NoError(t, hold.Unlock(held))
		require.ErrorIs(t, context.Cause(held), rlock.ErrUnlocked)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrNotHeld)
		keysLeft(t, rdb, "redisson_lock_token:{b}")
	}
	require.Equal(t, []string{"evalsha"}, sent(t, srv, func() {
		held, hold := lock(t, t.Context(), mu)
		t.Cleanup(func() { require.NoError(t, hold.Unlock(held)) })
	}), "three locks in one script")
}

// Locks that poll are asked for one by one: there may be a proxy that looks at the first key
// only.
func TestMultiOfPollingLocks(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c, polling := newClient(t, srv, nil), rlock.WithPolling(rlock.Polling{})
	mu := rlock.NewMultiLock(c.NewLock("a", polling), c.NewLock("b", polling))
	m := srv.Monitor(t)
	held, hold := lock(t, t.Context(), mu)
	require.NoError(t, hold.Unlock(held))
	for _, cmd := range m.Commands() {
		if verb := strings.ToLower(cmd.Args[0]); verb == "eval" || verb == "evalsha" {
			require.Equal(t, "1", cmd.Args[2], "%v", cmd.Args)
		}
	}
}

// A multi lock does not take a fair lock that is free while others are in its queue: it
// waits for its turn.
func TestMultiLockOfFairLocksWaitsItsTurn(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	var members []*rlock.Lock
	for _, name := range []string{"a", "b"} {
		members = append(members, c.NewFairLock(name))
	}
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewFairLock("b"))
	w := begin(t.Context(), newClient(t, srv, nil).NewFairLock("b"))
	awaitHearing(t, rdb, "b", 1)
	require.NoError(t, rdb.Del(t.Context(), "b").Err()) // of which nobody is told
	_, _, err := rlock.NewMultiLock(members...).TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "another is before it")
	requireUnlockedTooLate(t, hold.Unlock(held))
	next, nextHold := w.acquired(t)
	require.NoError(t, nextHold.Unlock(next))
}

// A client closes while a call has taken a member of it and waits for another: that gives
// up, and does not keep Close waiting.
func TestFakeTimeMultiWhoseMemberCloses(t *testing.T) {
	for _, mode := range []string{"somebody holds it", "silent"} {
		t.Run(mode, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f, g := newFakeRedis(t), newFakeRedis(t)
				c, d := f.client(t, nil), g.client(t, nil)
				f.heldBy("b", redisson, time.Hour)
				f.deafUp.Store(mode == "silent")
				refused := make(chan error, 1)
				go func() {
					refused <- rlock.NewMultiLock(c.NewLock("c"), c.NewLock("b"), d.NewLock("a")).Do(t.Context(), nothing)
				}()
				time.Sleep(time.Second)
				synctest.Wait()
				require.True(t, g.Exists("a"))
				began := time.Now()
				require.NoError(t, d.Close(t.Context()))
				err := <-refused
				require.Zero(t, time.Since(began))
				require.ErrorIs(t, err, rlock.ErrClosed)
				require.NotErrorIs(t, err, rlock.ErrNotAcquired)
				require.NotErrorIs(t, err, rlock.ErrUnavailable)
				require.False(t, g.Exists("a"))
			})
		})
	}
}

// A member is lost while several others are asked for in one script, and get no answer.
func TestFakeTimeMultiStartsOverWhileSilent(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, g := newFakeRedis(t), newFakeRedis(t)
		mu := rlock.NewMultiLock(append(locksOf(g.client(t, nil), "b", "c"), f.client(t, nil).NewLock("a"))...)
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		g.deafUp.Store(true)
		done := make(chan struct{})
		go func() {
			defer close(done)
			held, hold = lock(t, t.Context(), mu)
		}()
		time.Sleep(time.Second)
		require.True(t, f.Del("a"))
		time.Sleep(10 * time.Second) // to the next renewal
		require.True(t, f.Exists("a"), "it is taken again")
		g.deafUp.Store(false)
		<-done
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(held))
	})
}

// One server is silent from the start, and the other when its lock is to be given back: the time of the call
// ends then, and the error says both.
func TestFakeTimeMultiRunsOutOfTimeBesideSilence(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, g := newFakeRedis(t), newFakeRedis(t)
		mu := rlock.NewMultiLock(f.client(t, nil).NewLock("a"), g.client(t, nil).NewLock("b"))
		held, hold := lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		g.deafUp.Store(true)
		time.AfterFunc(time.Second, func() { f.deafUp.Store(true) })
		began := time.Now()
		_, _, err := mu.TryLockFor(t.Context(), 2500*time.Millisecond)
		require.Equal(t, 2500*time.Millisecond, time.Since(began))
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, rlock.ErrNotAcquired)
		f.deafUp.Store(false)
		g.deafUp.Store(false)
		time.Sleep(time.Minute)
		require.False(t, f.Exists("a"))
		require.False(t, g.Exists("b"))
	})
}

// Under a context whose grant of a member is lost, and which does not end, nothing helps
// but another context: that member cannot be taken.
func TestMultiUnderALostMember(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, &rlock.Options{LeaseTime: time.Second})
	a, b := c.NewLock("a"), c.NewLock("b")
	held, hold := lock(t, t.Context(), b)
	require.NoError(t, srv.Client(t).Del(t.Context(), "b").Err())
	<-held.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(held), time.Minute)
	defer cancel()
	_, _, err := rlock.NewMultiLock(a, b).Lock(ctx)
	require.ErrorIs(t, err, rlock.ErrLeaseLost)
	require.NoError(t, ctx.Err(), "it has not tried until the end")
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
	again, both := lock(t, t.Context(), rlock.NewMultiLock(a, b))
	require.NoError(t, both.Unlock(again))
}

// Of two Unlocks at once one tells what has become of the lock, and the other that it was
// unlocked before.
func TestMultiUnlockTwiceAtOnce(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, &rlock.Options{LeaseTime: 3 * time.Second})
	const locks = 30
	var all sync.WaitGroup
	for i := range locks {
		all.Go(func() {
			a, b := c.NewLock("a"+strconv.Itoa(i)), c.NewLock("b"+strconv.Itoa(i))
			held, hold, err := rlock.NewMultiLock(a, b).Lock(t.Context())
			if !assert.NoError(t, err) {
				return
			}
			lost := i%2 == 0
			if lost {
				assert.NoError(t, rdb.Del(t.Context(), a.Name()).Err())
				<-held.Done()
			}
			var errs [2]error
			var both sync.WaitGroup
			for i := range errs {
				both.Go(func() { errs[i] = hold.Unlock(held) })
			}
			both.Wait()
			if errors.Is(errs[0], rlock.ErrNotHeld) {
				errs[0], errs[1] = errs[1], errs[0]
			}
			assert.ErrorIs(t, errs[1], rlock.ErrNotHeld)
			assert.NotErrorIs(t, errs[0], rlock.ErrNotHeld)
			assert.Equal(t, lost, errors.Is(errs[0], rlock.ErrLeaseLost))
			assert.Equal(t, !lost, errs[0] == nil)
		})
	}
	all.Wait()
	kinds := c.Stats().Kinds
	n := slices.IndexFunc(kinds, func(k rlock.KindStats) bool { return k.Kind == rlock.KindMulti })
	require.GreaterOrEqual(t, n, 0)
	require.EqualValues(t, locks/2, kinds[n].Released)
	require.EqualValues(t, locks/2, kinds[n].Lost)
}

// Two members are lost while the work goes on, which returns the cause of its context. That is one
// of the two losses, and is not told twice.
func TestFakeTimeMultiWhoseMembersAreLost(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		all := rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"))
		err := all.Do(t.Context(), func(ctx context.Context) error {
			f.FlushAll()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		var lost []string
		for _, part := range err.(interface{ Unwrap() []error }).Unwrap() {
			loss, ok := errors.AsType[*rlock.LostError](part)
			require.True(t, ok, "%v", part)
			lost = append(lost, loss.Name)
		}
		require.ElementsMatch(t, []string{"a", "b"}, lost)
	})
}

// A multi lock of which ctx owns all members is nested, like any other lock; with a further member
// it is an acquisition.
func TestFakeTimeNestedMultiLockIsCounted(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		var released, held int
		c := f.client(t, &rlock.Options{Trace: rlock.Trace{
			Released: func(context.Context, rlock.Release) { released++ },
			Acquired: func(_ context.Context, a rlock.Acquisition) {
				if a.Outcome == rlock.OutcomeAcquired {
					held++
				}
			},
		}})
		two := rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"))
		three := rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b"), c.NewLock("c"))
		require.NoError(t, two.Do(t.Context(), func(ctx context.Context) error {
			return two.Do(ctx, func(ctx context.Context) error {
				return three.Do(ctx, func(context.Context) error { return nil })
			})
		}))
		kinds := c.Stats().Kinds
		k := kinds[slices.IndexFunc(kinds, func(k rlock.KindStats) bool { return k.Kind == rlock.KindMulti })]
		require.EqualValues(t, 2, k.Acquired())
		require.EqualValues(t, 1, k.Calls[rlock.OutcomeNested])
		require.EqualValues(t, 2, k.Released)
		require.Zero(t, k.Held)
		require.Equal(t, 2, released)
		require.Equal(t, 2, held)
	})
}

// A call that can no longer have all members, as the client of one has closed, does not wait for the
// others, and one that begins after that takes none.
func TestMultiWhoseLaterClientCloses(t *testing.T) {
	t.Parallel()
	srv, srv2 := newServer(t), newServer(t)
	opts, refused := refusals()
	c1, c2 := newClient(t, srv, opts), newClient(t, srv2, nil)
	mu := rlock.NewMultiLock(c1.NewLock("a"), c2.NewLock("b"))
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	waiting := make(chan error, 1)
	go func() { waiting <- mu.Do(t.Context(), nothing) }()
	<-refused
	require.NoError(t, closeSoon(c2))
	err := <-waiting
	require.ErrorIs(t, err, rlock.ErrClosed)
	require.ErrorContains(t, err, `"b"`)
	require.NoError(t, hold.Unlock(held))
	_, _, err = mu.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrClosed)
	state, err := c1.NewLock("a").Inspect(t.Context())
	require.NoError(t, err)
	require.Empty(t, state.Holds)
}
