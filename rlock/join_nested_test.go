package rlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// Such a longer time says nothing of how long the lock stays: who has joined looks at each
// third of the lease that is renewed, from the first time on.
func TestFakeTimeJoinedAfterALongerNestedLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		here, there := f.client(t, nil), f.client(t, nil)
		held, hold := lock(t, t.Context(), here.NewLock("a"))
		inner, innerHold := lock(t, held, here.NewLock("a", rlock.WithLeaseTime(time.Hour)))
		require.NoError(t, innerHold.Unlock(inner))
		joined, joinedHold := join(t, t.Context(), there.NewLock("a"), hold.Proof())
		require.NoError(t, hold.Unlock(held))
		next, nextHold := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
		began := time.Now()
		<-joined.Done()
		require.LessOrEqual(t, time.Since(began), 10*time.Second)
		require.ErrorIs(t, joinedHold.Unlock(joined), rlock.ErrLeaseLost)
		require.NoError(t, nextHold.Unlock(next))
	})
}

// Renewals that were executed and not answered leave more on the server than anybody trusts.
// The holder's Unlock has that released, also beside somebody of its own client who has
// joined it and says before that nothing is left.
func TestFakeTimeJoinedAndCleanedUp(t *testing.T) {
	for executed := false; !executed; { // a renewal, and not only the question of who has joined
		redistest.Bubble(t, func(t *testing.T) { executed = cleanUpBesideJoined(t) })
	}
}

func cleanUpBesideJoined(t *testing.T) (executed bool) {
	f := newFakeRedis(t)
	f.teach(t)
	mu := f.client(t, nil).NewLock("a")
	held, hold := lock(t, t.Context(), mu)
	joined, joinedHold := join(t, t.Context(), mu, hold.Proof())
	time.Sleep(time.Minute)
	f.deafDown.Store(true)
	<-held.Done()
	<-joined.Done()
	time.Sleep(5 * time.Second)
	executed = f.TTL("a") > 2*time.Second
	f.heal()
	require.Error(t, joinedHold.Unlock(joined))
	require.Error(t, hold.Unlock(held))
	time.Sleep(time.Second)
	synctest.Wait()
	require.False(t, executed && f.Exists("a"), "what is left is released")
	return executed
}

// A hold with a longer lease, nested before the join or after it, leaves a longer time on
// the server, which then runs down to the lease that is renewed. Whoever has joined keeps
// the lock meanwhile, as its holder does.
func TestFakeTimeJoinedUnderALongerNestedLease(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, own := range []time.Duration{2 * time.Second, 30 * time.Second} {
			for _, nested := range []time.Duration{own + own/2, 4 * own, 20 * own, time.Hour} {
				if testing.Short() && nested > 100*own {
					continue // ten thousand renewals
				}
				redistest.Bubble(t, func(t *testing.T) {
					f := newFakeRedis(t)
					here, there := f.client(t, &rlock.Options{LeaseTime: own}), f.client(t, nil)
					held, hold := lock(t, t.Context(), here.NewLock("a"))
					nest := func() {
						inner, innerHold := lock(t, held, here.NewLock("a", rlock.WithLeaseTime(nested)))
						time.Sleep(own / 10)
						require.NoError(t, innerHold.Unlock(inner))
					}
					if first {
						nest()
					}
					joined, joinedHold, err := there.NewLock("a").Join(t.Context(), hold.Proof())
					require.NoError(t, err)
					if !first {
						nest()
					}
					time.Sleep(2*nested + 10*own)
					synctest.Wait()
					require.NoError(t, held.Err())
					require.NoError(t, joined.Err(), "lease %v, nested %v, nested first: %v", own, nested, first)
					require.NoError(t, joinedHold.Unlock(joined))
					require.NoError(t, hold.Unlock(held))
				})
			}
		}
	}
}

// A nested hold with a shorter lease is the last, so that the lock is renewed with that, and
// gives a proof while most of the longer lease is left. Whoever joins by it keeps the lock.
func TestFakeTimeJoinedUnderAShorterNestedLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		here, there := f.client(t, nil), f.client(t, nil)
		held, hold := lock(t, t.Context(), here.NewLock("a"))
		inner, innerHold := lock(t, held, here.NewLock("a", rlock.WithLeaseTime(2*time.Second)))
		require.NoError(t, hold.Unlock(held))
		joined, joinedHold := join(t, t.Context(), there.NewLock("a"), innerHold.Proof())
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		require.NoError(t, inner.Err())
		require.NoError(t, joined.Err())
		require.NoError(t, joinedHold.Unlock(joined))
		require.NoError(t, innerHold.Unlock(inner))
	})
}

// Renewals of the holder hang, and it keeps the lock by a later one: so does whoever has
// joined.
func TestFakeTimeJoinedWhileRenewalsHang(t *testing.T) {
	tries := 10 // when renewals are due is random
	if testing.Short() {
		tries = 2
	}
	for hang := 1; hang <= 3; hang++ {
		for range tries {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				here, there := f.client(t, nil), f.client(t, nil)
				held, hold := lock(t, t.Context(), here.NewLock("a"))
				joined, joinedHold, err := there.NewLock("a").Join(t.Context(), hold.Proof())
				require.NoError(t, err)
				time.Sleep(35 * time.Second)
				for range hang {
					f.hold(isScript("renew"))
				}
				time.Sleep(2 * time.Minute)
				require.NoError(t, held.Err())
				require.NoError(t, joined.Err(), "%d renewals hang", hang)
				f.heal()
				require.NoError(t, joinedHold.Unlock(joined))
				require.NoError(t, hold.Unlock(held))
			})
		}
	}
}

// A hold was joined in the process of its holder, and unlocked again. Work that goes on under its
// context is still under the hold around it.
func TestFakeTimeJoinedAndUnlockedUnderTheHold(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		held, hold := lock(t, t.Context(), mu)
		joined, join, err := mu.Join(held, hold.Proof())
		require.NoError(t, err)
		require.NoError(t, join.Unlock(joined))
		under := context.WithoutCancel(joined)
		require.Equal(t, 1, mu.HoldCount(under))
		inner, nested, err := mu.TryLock(under)
		require.NoError(t, err)
		require.NoError(t, nested.Unlock(inner))
		require.NoError(t, hold.Unlock(held))
	})
}
