package rlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

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
