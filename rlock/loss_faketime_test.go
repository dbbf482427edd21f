package rlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// The tests of this file run in a bubble, whose clock moves only when every
// goroutine sleeps: a request takes no time at all, and instants are exact.

// lapse is when a lease that is not renewed is given up: its length, less the
// drift, less the guard.
func lapse(lease time.Duration) time.Duration {
	return lease - (lease/100 + 2*time.Millisecond) - max(lease/10, 2*time.Millisecond)
}

// silences are the ways in which a server gives no useful answer.
var silences = map[string]func(*fakeRedis){
	"requests vanish": func(f *fakeRedis) { f.deafUp.Store(true) },
	"replies vanish":  func(f *fakeRedis) { f.deafDown.Store(true) },
	"errors":          func(f *fakeRedis) { f.SetError("LOADING Redis is loading the dataset in memory") },
	"replies late":    func(f *fakeRedis) { f.late.Store(int64(time.Hour)) },
}

func TestFakeTimeHeldContextEndsAtTheExactInstant(t *testing.T) {
	for name, fault := range silences {
		for _, lease := range []time.Duration{100 * time.Millisecond, 30 * time.Second, time.Hour} {
			t.Run(name+"/"+lease.String(), func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					var renewed atomic.Value
					f := newFakeRedis(t)
					c := f.client(t, &rlock.Options{LeaseTime: lease, Trace: rlock.Trace{
						Renewed: func(r rlock.Renewal) { renewed.Store(r.Until) },
					}})
					held, hold := lock(t, t.Context(), c.NewLock("a"))
					require.Equal(t, f.start.Add(lease-lease/100-2*time.Millisecond), hold.Until())

					time.Sleep(3*lease + 1) // some renewals
					synctest.Wait()
					until := hold.Until()
					require.Equal(t, renewed.Load(), until)
					fault(f)

					end := until.Add(-max(lease/10, 2*time.Millisecond))
					time.Sleep(time.Until(end) - 1)
					synctest.Wait()
					require.NoError(t, held.Err())
					time.Sleep(time.Nanosecond)
					<-held.Done()
					require.Equal(t, end, time.Now())
					require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)

					f.heal()
					require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
				})
			})
		}
	}
}

// Where nothing else takes time, whoever waits for the end of the context is told before
// the server lets the next one in.
func TestFakeTimeLossComesBeforeTheNextGrant(t *testing.T) {
	for _, name := range []string{"requests vanish", "replies vanish"} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				const lease = 3 * time.Second
				f := newFakeRedis(t)
				held, hold := lock(t, t.Context(), f.client(t, &rlock.Options{LeaseTime: lease}).NewLock("a"))
				time.Sleep(lease) // it was renewed
				synctest.Wait()
				require.NoError(t, held.Err())
				told := make(chan time.Time, 1)
				context.AfterFunc(held, func() { told <- time.Now() })
				silences[name](f)
				for f.Exists("a") { // as long as that, nobody else gets it
					time.Sleep(time.Millisecond)
				}
				free := time.Now()
				require.Error(t, held.Err())
				require.Less(t, <-told, free)
				require.GreaterOrEqual(t, free.Sub(hold.Until()), time.Duration(0))
				f.heal()
				require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
			})
		})
	}
}

// Whoever asks for the end of the context first takes a lost lock for a caller that has left.
func TestFakeTimeLossMatchesCanceledAsWell(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		err := f.client(t, nil).NewLock("a").Do(t.Context(), func(ctx context.Context) error {
			f.Del("a")
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, rlock.ErrLeaseLost)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestFakeTimeFixedLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a", rlock.WithLeaseTime(20*time.Second), rlock.WithoutRenewal())
		held, hold := lock(t, t.Context(), mu)
		<-held.Done()
		require.Equal(t, lapse(20*time.Second), f.now())
		require.Empty(t, f.scripts("renew"))
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
		require.False(t, f.Exists("a"), "the rest of the lease is given back")
	})
}

// Nobody asks the server about a lease that is not renewed. So it is noticed only at the end
// of the lease that the lock was removed.
func TestFakeTimeFixedLeaseIsRemoved(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a", rlock.WithLeaseTime(20*time.Second), rlock.WithoutRenewal()))
		require.True(t, f.Del("a"))
		<-held.Done()
		require.Equal(t, lapse(20*time.Second), f.now())
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
	})
}
