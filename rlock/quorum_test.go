package rlock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestQuorumLock(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	mu, other := all.lock(t), all.lock(t)
	held, hold := all.lockAll(t, mu)
	nested, inner := lock(t, held, mu)
	redistest.Eventually(t, "a majority knows of both", func() bool { // one may be too slow on a busy machine, and is not asked again
		return strings.Count(strings.Join(all.holds(t, hold.Owner()), ""), "2") >= 2
	})
	require.Equal(t, 2, mu.HoldCount(nested))
	var state rlock.State
	redistest.Eventually(t, "the servers show it", func() bool { // a busy machine may be too slow for an answer in time
		var err error
		state, err = other.Inspect(t.Context())
		return inTime(t, err)
	})
	require.Equal(t, map[string]int64{hold.Owner(): 2}, state.Holds)
	require.InDelta(t, quorumLease, state.TTL, float64(quorumLease/2))

	var busy *rlock.NotAcquiredError
	redistest.Eventually(t, "the servers refuse", func() bool {
		_, _, err := other.TryLock(t.Context())
		return errors.As(err, &busy)
	})
	require.Positive(t, busy.TTL)

	waited := make(chan error)
	go func() { waited <- other.Do(context.Background(), func(context.Context) error { return nil }) }()
	for _, srv := range all {
		awaitListener(t, srv.Client(t), "a")
	}
	<-time.After(quorumLease + quorumLease/2) // renewals
	require.NoError(t, nested.Err())
	require.NoError(t, inner.Unlock(nested))
	require.NoError(t, hold.Unlock(held))
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrNotHeld)
	require.NoError(t, <-waited)
	all.free(t)
}

// A release is noticed by its messages, not when the lease has passed.
func TestQuorumWaiterIsWoken(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	mu, other := all.lock(t), all.lock(t)
	for range 5 {
		held, hold := lock(t, t.Context(), mu)
		waited := make(chan error)
		go func() { waited <- other.Do(context.Background(), func(context.Context) error { return nil }) }()
		for _, srv := range all {
			awaitListener(t, srv.Client(t), "a")
		}
		for _, srv := range all { // what a wait for the TTL would take
			require.NoError(t, srv.Client(t).PExpire(t.Context(), "a", time.Hour).Err())
		}
		require.NoError(t, hold.Unlock(held))
		select {
		case err := <-waited:
			require.NoError(t, err)
		case <-time.After(10 * time.Second):
			t.Fatal("the waiter sleeps")
		}
	}
}

func TestQuorumServerDownOrSilent(t *testing.T) {
	t.Parallel()
	all := newServers(t, 5)
	mu := all.lock(t)
	do := func() { require.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil })) }
	do()
	all[1].Kill()
	all[3].Stop()
	do() // takes notice
	began := time.Now()
	for range 30 {
		do()
	}
	// Whoever waited a third of a second for the silent one would need 20 s.
	require.Less(t, time.Since(began), 15*time.Second)
	held, hold := lock(t, t.Context(), mu)
	<-time.After(2 * quorumLease)
	require.NoError(t, held.Err(), "three of five renew it")
	require.NoError(t, hold.Unlock(held))
	all[3].Cont()
	slices.Delete(all, 1, 2)[:4].free(t)
}

func TestQuorumWithoutMajority(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	var lost atomic.Bool
	mu := rlock.NewQuorumLock("a", all.clients(t, rlock.Options{Trace: rlock.Trace{Lost: func(rlock.Loss) { lost.Store(true) }}}))
	held, hold := lock(t, t.Context(), mu)
	all[0].Kill()
	<-time.After(quorumLease)
	require.NoError(t, held.Err())
	all[1].Kill()
	until := hold.Until()
	<-held.Done()
	require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
	require.WithinDuration(t, until, time.Now(), quorumLease, "inside the last window")
	redistest.Eventually(t, "the trace is told", lost.Load)
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)

	_, _, err := mu.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.NotErrorIs(t, err, rlock.ErrNotAcquired)
	all[2:].free(t)
	_, err = mu.Inspect(t.Context())
	require.ErrorIs(t, err, rlock.ErrUnavailable)
}

// If a minority of the servers forgets the grant, or gives the lock to somebody else, the
// holder keeps it. If a majority does at once, the lock is lost.
func TestQuorumForgetfulServers(t *testing.T) {
	redistest.Long(t, "waits for two leases of a quorum")
	t.Parallel()
	all := newServers(t, 3)
	mu := all.lock(t)
	held, hold := all.lockAll(t, mu)
	first, second := all[0].Client(t), all[1].Client(t)
	require.NoError(t, first.FlushAll(t.Context()).Err())
	<-time.After(2 * quorumLease)
	require.NoError(t, held.Err())
	redistest.Eventually(t, "two servers forget it before the hold takes its share of the first again", func() bool {
		for _, rdb := range []*redis.Client{first, second} {
			require.NoError(t, rdb.FlushAll(t.Context()).Err())
		}
		return held.Err() != nil
	})
	require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
	all.free(t)
}

// Processes that go for the same lock at once split the servers between them, and
// yet each gets it, one at a time; also while a server is down.
func TestQuorumContention(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	for _, down := range []bool{false, true} {
		if down {
			all[2].Kill()
		}
		var inside, entered atomic.Int32
		var wg sync.WaitGroup
		began := time.Now()
		for range 4 {
			mu := all.lock(t)
			for range 2 {
				wg.Go(func() {
					for range 10 {
						held, hold, err := mu.TryLockFor(context.Background(), time.Minute)
						if err != nil {
							t.Error(err)
							return
						}
						if inside.Add(1) != 1 {
							t.Error("two are inside")
						}
						entered.Add(1)
						inside.Add(-1)
						if err := hold.Unlock(held); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		require.EqualValues(t, 80, entered.Load())
		t.Logf("server down: %v; 80 grants in %v", down, time.Since(began))
		all[:2].free(t)
	}
}

// A server that restarts without its data is the one that lets a second owner in,
// unless it is not counted until the lost lease has ended.
func TestQuorumDelayedRestart(t *testing.T) {
	for _, delayed := range []bool{true, false} {
		t.Run("delayed="+strconv.FormatBool(delayed), func(t *testing.T) {
			t.Parallel()
			all := newServers(t, 5)
			held, hold := all.lockAll(t, all.lock(t, rlock.WithoutRenewal()))
			forget := func(srv *redistest.Server) {
				require.NoError(t, srv.Client(t).FlushAll(t.Context()).Err())
			}
			forget(all[0]) // two that the first owner did not reach
			forget(all[1])
			if delayed {
				all[2].Restart()
			} else {
				forget(all[2]) // as if it had restarted, and nobody minded
			}
			_, second, err := all.lock(t).TryLockFor(t.Context(), 10*time.Second)
			require.NoError(t, err)
			if delayed {
				require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost, "two owners")
			} else {
				require.NoError(t, held.Err(), "the test does not show what it should")
			}
			require.NoError(t, second.Unlock(t.Context()))
			_ = hold.Unlock(held)
		})
	}
}

func TestQuorumTokensGrow(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	locks := []*rlock.Lock{all.lock(t, rlock.WithFencing()), all.lock(t, rlock.WithFencing())}
	// One server's clock is ahead, as far as its counter tells.
	ahead := time.Now().Add(time.Hour).UnixMicro()
	counter := "redisson_lock_token:{a}"
	require.NoError(t, all[0].Client(t).Set(t.Context(), counter, ahead, 0).Err())
	last, forgotten := int64(0), 0
	for i := range 20 {
		held, hold := lock(t, t.Context(), locks[i%2])
		require.Greater(t, hold.Token(), last)
		last = hold.Token()
		nested, inner := lock(t, held, locks[i%2])
		require.Equal(t, last, inner.Token())
		raised, others := 0, 0
		for n, srv := range all {
			if token, err := srv.Client(t).Get(t.Context(), counter).Int64(); err == nil && token >= last {
				raised++
				if n != i%3 {
					others++
				}
			}
		}
		require.GreaterOrEqual(t, raised, 2)
		require.NoError(t, inner.Unlock(nested))
		require.NoError(t, hold.Unlock(held))
		// A different minority loses its counter each time, unless it is one of only two that
		// have the token: the third and it are a majority, too, and would know of none so great.
		// The first grant may not have been counted by the server that is ahead, but was by another.
		if i > 0 && others == 2 {
			forgotten++
			srv := all[i%3]
			require.NoError(t, srv.Client(t).Del(t.Context(), counter).Err())
			held, hold := lock(t, t.Context(), locks[i%2])
			require.Greater(t, hold.Token(), last)
			last = hold.Token()
			require.NoError(t, hold.Unlock(held))
		}
	}
	require.Greater(t, last, ahead)
	require.Positive(t, forgotten)
}

func TestQuorumForceUnlock(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	mu := all.lock(t)
	for name, remove := range map[string]func(owner string) (bool, error){
		"any":      func(string) (bool, error) { return mu.ForceUnlock(t.Context()) },
		"by owner": func(owner string) (bool, error) { return mu.UnlockOwner(t.Context(), owner) },
	} {
		// A new grant each time: after a call without an answer nobody knows what it has removed. The same
		// holds for an Unlock whose release was sent twice on a busy machine.
		redistest.Eventually(t, name, func() bool {
			held, hold := lock(t, t.Context(), all.lock(t))
			removed, err := remove(hold.Owner())
			if !inTime(t, err) {
				_ = hold.Unlock(held)
				return false
			}
			require.True(t, removed, name)
			all.free(t)
			redistest.Eventually(t, name, func() bool {
				removed, err := remove(hold.Owner())
				require.False(t, removed, name)
				return inTime(t, err)
			})
			err = hold.Unlock(held)
			if err != nil {
				require.ErrorIs(t, err, rlock.ErrLeaseLost, name)
			}
			return err != nil
		})
	}
}

// Two of three servers have a share, and one of these is slow to say so: the lock is not shown
// as free because a majority has answered.
func TestQuorumInspectBesideASlowServer(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	slow := netfault.New(t, all[1].Addr())
	clients := all.clients(t, rlock.Options{LeaseTime: quorumLease})
	clients[1] = clientOn(t, all[1].Client(t, func(o *redis.Options) { o.Addr = slow.Addr() }), &rlock.Options{LeaseTime: quorumLease})
	mu := rlock.NewQuorumLock("a", clients)
	held, hold := all.lockAll(t, all.lock(t))
	require.NoError(t, all[2].Client(t).FlushAll(t.Context()).Err())
	slow.Delay(0, 60*time.Millisecond)
	redistest.Eventually(t, "it is inspected", func() bool {
		state, err := mu.Inspect(t.Context())
		if !inTime(t, err) {
			return false
		}
		require.Contains(t, state.Holds, hold.Owner())
		return true
	})
	require.NoError(t, hold.Unlock(held))
}

// The caller's end does not wait for anybody, and leaves nothing behind.
func TestQuorumCallerLeaves(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	mu := all.lock(t)
	for _, srv := range all {
		srv.Stop()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, _, err := mu.Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 50*time.Millisecond+slack)
	for _, srv := range all {
		srv.Cont()
	}
	all.free(t)
}

func TestQuorumOptionsThatCannotWork(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	a, b, c := newClient(t, srv, nil), newClient(t, srv, nil), newClient(t, newServer(t), nil)
	rdb := srv.Client(t)
	d, e := clientOn(t, rdb, nil), clientOn(t, rdb, nil)
	for name, clients := range map[string][]*rlock.Client{
		"none":           nil,
		"nil":            {a, nil, c},
		"one":            {a},
		"two":            {a, c},
		"a client twice": {a, c, a},
		"a redis twice":  {c, d, e},
		"a server twice": {a, b, c},
		"four":           {a, b, c, d},
	} {
		mu := rlock.NewQuorumLock("a", clients)
		// A server that is given twice is found out as soon as both answer in one round.
		redistest.Eventually(t, name, func() bool {
			held, hold, err := mu.TryLock(t.Context())
			require.Error(t, err)
			require.Nil(t, hold)
			require.Equal(t, t.Context(), held)
			return errors.Is(err, rlock.ErrInvalidOption)
		})
		_, _, err := mu.Lock(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption, name)
		require.NotErrorIs(t, err, rlock.ErrUnavailable, name)
		require.Zero(t, mu.HoldCount(t.Context()))
		_, err = rlock.Guard(func(int) *rlock.Lock { return mu }, func(context.Context, int) (int, error) { return 0, nil })(t.Context(), 0)
		require.ErrorIs(t, err, rlock.ErrInvalidOption, name)
	}
	servers{srv}.free(t)
}
