package rlock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// oddTerms are those of a nested hold, under a lease of 30 s.
var oddTerms = map[string][]rlock.LockOption{
	"fixed": {rlock.WithoutRenewal()},
	"short": {rlock.WithLeaseTime(100 * time.Millisecond)},
	"long":  {rlock.WithLeaseTime(time.Hour)},
}

// A nested hold with other terms may be the last one of its grant. Whoever has the lock
// after it, waiting in memory, by a fair run or as it is kept, has the terms of the lock: it is
// renewed, survives a silence of a fraction of the lease, and learns of a removal within a
// third of it.
func TestFakeTimeTermsEndWithTheGrant(t *testing.T) {
	newLocks := map[string]func(c *rlock.Client, opts ...rlock.LockOption) *rlock.Lock{
		"plain": func(c *rlock.Client, opts ...rlock.LockOption) *rlock.Lock { return c.NewLock("a", opts...) },
		"fair":  func(c *rlock.Client, opts ...rlock.LockOption) *rlock.Lock { return c.NewFairLock("a", opts...) },
		"kept": func(c *rlock.Client, opts ...rlock.LockOption) *rlock.Lock {
			if len(opts) > 0 { // a lock that is kept may not be fixed
				return c.NewLock("a", opts...)
			}
			return c.NewLock("a", rlock.WithRetention(24*time.Hour))
		},
	}
	for kind, newLock := range newLocks {
		for name, odd := range oddTerms {
			t.Run(kind+", "+name, func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					f := newFakeRedis(t)
					c := f.client(t, nil)
					mu := newLock(c)
					if kind == "kept" {
						keep(t, f, mu)
					}
					held, hold := lock(t, t.Context(), mu)
					nestedHeld, nested := lock(t, held, newLock(c, odd...))
					require.NoError(t, hold.Unlock(held))
					var waiter *waiting
					if kind != "kept" {
						waiter = begin(t.Context(), mu)
						synctest.Wait()
					}
					require.NoError(t, nested.Unlock(nestedHeld))
					if kind == "kept" {
						waiter = begin(t.Context(), mu)
					}
					held, hold = waiter.acquired(t)

					time.Sleep(time.Minute)
					f.deafUp.Store(true)
					time.Sleep(5 * time.Second)
					f.heal()
					time.Sleep(time.Minute)
					require.NoError(t, held.Err())
					f.Del("a")
					time.Sleep(10*time.Second + time.Millisecond)
					require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
					require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
				})
			})
		}
	}
}

// Readers of a client share a grant. One who comes, and one who stays, have what they asked
// for, whatever the nested holds ask for of somebody who has left.
func TestFakeTimeTermsOfReaders(t *testing.T) {
	opts := &rlock.Options{LeaseTime: 30 * time.Second}
	setUp := func(t *testing.T) (reader, fixed *rlock.Lock) {
		c := newFakeRedis(t).client(t, opts)
		return c.NewRWLock("a").Reader(), c.NewRWLock("a", rlock.WithoutRenewal()).Reader()
	}
	t.Run("a renewed one comes", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T) {
			reader, fixed := setUp(t)
			held, hold := lock(t, t.Context(), reader)
			nestedHeld, nested := lock(t, held, fixed)
			require.NoError(t, hold.Unlock(held))
			others, other := lock(t, t.Context(), reader)
			time.Sleep(time.Minute)
			require.ErrorIs(t, context.Cause(nestedHeld), rlock.ErrLeaseLost)
			require.ErrorContains(t, context.Cause(nestedHeld), "the fixed lease is over")
			require.NoError(t, others.Err())
			require.NoError(t, other.Unlock(others))
			require.ErrorIs(t, nested.Unlock(nestedHeld), rlock.ErrLeaseLost)
		})
	})
	t.Run("a fixed one stays", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T) {
			reader, fixed := setUp(t)
			held, hold := lock(t, t.Context(), reader)
			others, other := lock(t, t.Context(), reader)
			require.Equal(t, hold.Owner(), other.Owner())
			nestedHeld, nested := lock(t, held, fixed)
			require.NoError(t, hold.Unlock(held))
			require.Equal(t, nested.Owner(), reader.Owner(held), "of what is nested")
			require.NoError(t, other.Unlock(others))
			require.Zero(t, reader.HoldCount(others))
			require.Empty(t, reader.Owner(context.WithoutCancel(others)), "who has left owns nothing")
			time.Sleep(time.Minute)
			require.ErrorIs(t, context.Cause(nestedHeld), rlock.ErrLeaseLost)
			require.ErrorIs(t, nested.Unlock(nestedHeld), rlock.ErrLeaseLost)
		})
	})
}

// Whoever has joined a hold trusts the lease that its proof states, also when a nested hold
// with a shorter one is what remains of it.
func TestFakeTimeJoinedUnderAShorterHold(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		nestedHeld, nested := lock(t, held, c.NewLock("a", rlock.WithLeaseTime(200*time.Millisecond)))
		joined, mine := join(t, t.Context(), f.client(t, nil).NewLock("a"), hold.Proof())
		require.NoError(t, hold.Unlock(held))
		time.Sleep(10 * time.Minute)
		require.NoError(t, nestedHeld.Err())
		require.NoError(t, joined.Err())
		require.NoError(t, mine.Unlock(joined))
		require.NoError(t, nested.Unlock(nestedHeld))
	})
}

// Readers that share a grant have each their own end in trace and figures: that of the last
// hold under the first one, whoever stays, a member of a multi lock too, which has none.
func TestFakeTimeEndsOfReaders(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		var released []time.Duration
		c := f.client(t, &rlock.Options{Trace: rlock.Trace{
			Released: func(_ context.Context, r rlock.Release) { released = append(released, r.Held) },
		}})
		rw := c.NewRWLock("a")
		held, hold := lock(t, t.Context(), rw.Reader())
		teamHeld, team := lock(t, t.Context(), rlock.NewMultiLock(rw.Reader(), c.NewLock("b")))
		time.Sleep(time.Second)
		require.NoError(t, hold.Unlock(held))
		require.Equal(t, []time.Duration{time.Second}, released, "beside a member")
		kinds := c.Stats().Kinds
		at := slices.IndexFunc(kinds, func(k rlock.KindStats) bool { return k.Kind == rlock.KindRead })
		require.EqualValues(t, 1, kinds[at].Released)
		require.Zero(t, kinds[at].Held)
		time.Sleep(time.Second)
		require.NoError(t, team.Unlock(teamHeld))

		released = nil
		held, hold = lock(t, t.Context(), rw.Reader())
		nestedHeld, nested := lock(t, held, rw.Reader())
		others, other := lock(t, t.Context(), rw.Reader())
		require.Equal(t, hold.Owner(), other.Owner())
		time.Sleep(time.Second)
		require.NoError(t, hold.Unlock(held))
		require.Empty(t, released, "a nested hold lives on")
		time.Sleep(time.Second)
		require.NoError(t, other.Unlock(others))
		require.Equal(t, []time.Duration{2 * time.Second}, released)
		time.Sleep(time.Second)
		require.NoError(t, nested.Unlock(nestedHeld))
		require.Equal(t, []time.Duration{2 * time.Second, 3 * time.Second}, released)
		for _, k := range c.Stats().Kinds {
			require.Zero(t, k.Held, k.Kind)
		}
	})
}

// A waiter may take over the place of one of its client that leaves, whatever either asked
// for. It gets the lock on its own terms.
func TestFakeTimeTermsOfWhoInherits(t *testing.T) {
	terms := map[string][]rlock.LockOption{
		"default":         nil,
		"without renewal": {rlock.WithoutRenewal()},
		"without handoff": {rlock.WithoutHandoff()},
		"long":            {rlock.WithLeaseTime(time.Hour)},
		"fenced":          {rlock.WithFencing()},
		"kept":            {rlock.WithRetention(time.Second)},
	}
	for leaves, theirs := range terms {
		for stays, ours := range terms {
			t.Run(leaves+" leaves, "+stays+" stays", func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					f := newFakeRedis(t)
					before, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a", rlock.WithFencing()))
					c := f.client(t, nil)
					ctx, leave := context.WithCancel(t.Context())
					leaver := begin(ctx, c.NewLock("a", theirs...))
					synctest.Wait()
					stayer := begin(t.Context(), c.NewLock("a", ours...))
					synctest.Wait()
					leave()
					<-leaver.done
					require.NoError(t, hold.Unlock(before))
					held, hold := stayer.acquired(t)
					require.Equal(t, stays == "fenced", hold.Token() > 0)

					time.Sleep(time.Minute)
					if stays == "without renewal" {
						require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
						return
					}
					require.NoError(t, context.Cause(held))
					if stays == "long" {
						require.Greater(t, time.Until(hold.Until()), 30*time.Minute)
					}
					require.NoError(t, hold.Unlock(held))
				})
			})
		}
	}
}
