package rlock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// awaitRenewals returns after n renewals. A lost lease has no more of them.
func awaitRenewals[T any](t *testing.T, renewed <-chan T, n int) {
	t.Helper()
	for range n {
		within(t, 20*time.Second, renewed)
	}
}

func TestLostReplyOfARenewal(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	teach(t, srv)
	renewed, failed := make(chan struct{}, 100), make(chan rlock.FailedRenewal, 100)
	c, p := through(t, srv, &rlock.Options{LeaseTime: 9 * time.Second, Trace: rlock.Trace{
		Renewed:    func(rlock.Renewal) { renewed <- struct{}{} },
		NotRenewed: func(f rlock.FailedRenewal) { failed <- f },
	}})
	held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithFencing()))
	p.CutReplies(1000, isScript("renew")) // all that an attempt sends, its copies as well
	first := within(t, 20*time.Second, failed)
	p.Heal()
	awaitRenewals(t, renewed, 3)
	require.NotZero(t, p.Stats().RepliesCut)
	require.NoError(t, held.Err())
	require.Equal(t, rlock.FailedRenewal{
		Lock: "a", Kind: rlock.KindPlain, Owner: hold.Owner(), Token: hold.Token(), Until: first.Until, Err: first.Err,
	}, first)
	require.WithinRange(t, first.Until, time.Now().Add(-time.Minute), time.Now().Add(9*time.Second))
	require.Error(t, first.Err)
	require.NoError(t, hold.Unlock(held))
}

// lateRenewal has a renewal arrive after its lock was released and, if taken,
// somebody else has it.
func lateRenewal(t *testing.T, taken bool) {
	srv := newServer(t)
	teach(t, srv)
	rdb := srv.Client(t)
	c, p := through(t, srv, &rlock.Options{LeaseTime: 9 * time.Second})
	held, hold := lock(t, t.Context(), c.NewLock("a"))
	caught := p.Hold(isScript("renew"))
	require.NoError(t, caught.Wait(t.Context()))
	require.NoError(t, hold.Unlock(held))
	if !taken {
		require.NoError(t, caught.Deliver(t.Context()))
		require.Zero(t, rdb.Exists(t.Context(), "a").Val())
		return
	}
	next, nextHold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a", rlock.WithLeaseTime(10*time.Second), rlock.WithoutRenewal()))
	_, before := dump(t, rdb, "a")
	require.NoError(t, caught.Deliver(t.Context()))
	_, after := dump(t, rdb, "a")
	require.LessOrEqual(t, after, before)
	require.Equal(t, 1, holds(t, rdb, "a"))
	require.NoError(t, nextHold.Unlock(next))
}

func TestLateRenewal(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprint("taken ", taken), func(t *testing.T) {
			t.Parallel()
			lateRenewal(t, taken)
		})
	}
}

// The application has used up its connection pool; renewal has another.
func TestRenewalWithAnExhaustedPool(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	const lease = 6 * time.Second
	small := srv.Client(t, func(o *redis.Options) { o.PoolSize, o.MaxActiveConns = 1, 0 })
	renewed := make(chan struct{}, 1000)
	c := clientOn(t, small, &rlock.Options{LeaseTime: lease, Trace: rlock.Trace{Renewed: func(rlock.Renewal) { renewed <- struct{}{} }}})
	held, hold := lock(t, t.Context(), c.NewLock("a"))
	popped := make(chan error, 1)
	go func() { popped <- small.BLPop(context.WithoutCancel(t.Context()), 0, "list").Err() }()
	redistest.Eventually(t, "the only connection is blocked", func() bool {
		for _, c := range srv.Clients(t, "normal") {
			if c["flags"] == "b" {
				return true
			}
		}
		return false
	})
	start := time.Now()
	for time.Since(start) < 2*lease {
		awaitRenewals(t, renewed, 1)
	}
	require.NoError(t, held.Err())
	require.NoError(t, rdb.LPush(t.Context(), "list", "x").Err())
	require.NoError(t, <-popped)
	require.NoError(t, hold.Unlock(held))
}

func TestFakeTimeAnHourOfRenewals(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a")) // lease 30 s
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NoError(t, held.Err())
		at := slices.Compact(f.scripts("renew")) // the first one is sent twice: the server has to learn the script
		require.GreaterOrEqual(t, at[0], 5*time.Second)
		require.LessOrEqual(t, at[0], 10*time.Second)
		for _, d := range pauses(at) {
			require.Equal(t, 10*time.Second, d)
		}
		require.InDelta(t, 360, len(at), 1)
		require.NoError(t, hold.Unlock(held))
	})
}

// An inner Unlock does not stop the renewal, and the last one leaves no stray renewer.
func TestFakeTimeUnlockAndTheRenewal(t *testing.T) {
	const lease = 6 * time.Second
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a", rlock.WithLeaseTime(lease))
		held, hold := lock(t, t.Context(), mu)
		inner, innerHold := lock(t, held, mu)
		require.NoError(t, innerHold.Unlock(inner))
		time.Sleep(10 * lease)
		require.NoError(t, held.Err())
		require.GreaterOrEqual(t, len(f.scripts("renew")), 20)
		require.NoError(t, hold.Unlock(held))
		synctest.Wait()
		f.mu.Lock()
		before := len(f.log)
		f.mu.Unlock()
		time.Sleep(lease) // of which a renewer would use a third
		f.mu.Lock()
		defer f.mu.Unlock()
		require.Len(t, f.log, before)
	})
}
