package rlock_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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

func TestFakeTimeRenewalIsRetriedWithinTheWindow(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
		f.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(lapse(30*time.Second) - time.Millisecond)
		f.heal()
		time.Sleep(time.Minute)
		require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost, "a millisecond is too late for the next attempt")
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)

		held, hold = lock(t, t.Context(), f.client(t, nil).NewLock("b"))
		f.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(20 * time.Second) // one attempt in at most 5 s, the bound of a single one
		f.heal()
		time.Sleep(time.Minute)
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(held))
	})
}

// longLease is a lease that no test sees the end of.
var longLease = rlock.WithLeaseTime(time.Hour)

// somebody is an owner of this library, in a client that is not there.
const somebody = "d2k7m3o6n88ekjf0v0vg:1"

// redisson is an owner of Redisson.
const redisson = "5f2b6f0e-90d1-4b0c-9d0f-6c43b6ac4d5f:1"

// How long a waiter that hears nothing pauses before it asks again.
func TestFakeTimePauses(t *testing.T) {
	ms := time.Millisecond
	often := slices.Repeat([]time.Duration{100 * ms}, 20) // by the first in line
	for _, tt := range []struct {
		name   string
		holder string
		ttl    time.Duration // 0: none
		fault  func(*fakeRedis)
		want   []time.Duration // between the requests, but for a random part
	}{
		{"no TTL", somebody, 0, nil, append([]time.Duration{0}, slices.Repeat([]time.Duration{time.Second}, 10)...)},
		{"long", somebody, time.Hour, nil, append([]time.Duration{0}, slices.Repeat([]time.Duration{keepAlive}, 10)...)},
		{"long, foreign", redisson, time.Hour, nil, append([]time.Duration{0}, slices.Repeat([]time.Duration{keepAlive}, 10)...)},
		{"no answer to SUBSCRIBE", somebody, time.Hour, func(f *fakeRedis) { f.deafSubscribe.Store(true) }, append([]time.Duration{50 * ms, 100 * ms}, often...)},
		{"SUBSCRIBE refused", somebody, time.Hour, func(f *fakeRedis) { f.denySubscribe.Store(true) }, append([]time.Duration{0, 100 * ms}, often...)},
		{"SUBSCRIBE refused, foreign", redisson, time.Hour, func(f *fakeRedis) { f.denySubscribe.Store(true) }, append([]time.Duration{0, 100 * ms}, often...)},
		{"no TTL and no answer to SUBSCRIBE", somebody, 0, func(f *fakeRedis) { f.deafSubscribe.Store(true) }, append([]time.Duration{50 * ms, 100 * ms}, often...)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, nil).NewLock("a")
				f.heldBy("a", tt.holder, tt.ttl)
				f.teach(t)
				if tt.fault != nil {
					tt.fault(f)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go mu.Lock(ctx)
				seen := func() []time.Duration { // behind a foreign holder there are two channels to be confirmed
					return slices.CompactFunc(pauses(f.asked()), func(a, b time.Duration) bool { return a == 0 && b == 0 })
				}
				for len(seen()) < len(tt.want) {
					time.Sleep(time.Second)
				}
				cancel()
				synctest.Wait()
				got := seen()
				for i, want := range tt.want {
					require.GreaterOrEqual(t, got[i], want, "%v", got[:i+1])
					require.LessOrEqual(t, got[i], want+want/10+10*ms, "%v", got[:i+1])
				}
			})
		})
	}
}

func TestFakeTimeWaiterSleepsUntilTheTTLEnds(t *testing.T) {
	for range 20 {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, nil).NewLock("a")
			f.foreign(7 * time.Second)
			_, hold := lock(t, t.Context(), mu)
			require.GreaterOrEqual(t, f.now(), 7*time.Second)
			require.Less(t, f.now(), 7*time.Second+5*time.Millisecond)
			require.NoError(t, hold.Unlock(t.Context()))
		})
	}
}

func TestFakeTimeDeafWaiterHearsAgain(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		f.foreign(time.Hour)
		f.denySubscribe.Store(true)
		go func() {
			held, hold, err := mu.Lock(t.Context())
			if assert.NoError(t, err) {
				assert.NoError(t, hold.Unlock(held))
			}
		}()
		time.Sleep(20 * time.Second)
		f.denySubscribe.Store(false) // an operator corrects the ACL
		time.Sleep(12 * time.Second) // a refused channel is asked for again after 30 s
		synctest.Wait()
		before := len(f.asked())
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.LessOrEqual(t, len(f.asked())-before, int(20*time.Second/keepAlive), "the subscription is confirmed: no more polling")
		f.Del("a")
		f.Publish("redisson_lock__channel:{a}", "0")
		synctest.Wait()
		require.Len(t, f.scripts("release"), 2, "EVALSHA and EVAL, at once")
	})
}

func TestFakeTimeQueueIsFIFO(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		_, hold := lock(t, t.Context(), mu)
		var order []int
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				_ = mu.Do(t.Context(), func(context.Context) error {
					order = append(order, i)
					return nil
				})
			})
			synctest.Wait() // it is in the queue
		}
		require.NoError(t, hold.Unlock(t.Context()))
		all.Wait()
		require.True(t, slices.IsSorted(order), "%v", order)
		require.Len(t, order, 50)
	})
}

func TestFakeTimeUnavailable(t *testing.T) {
	for _, tt := range []struct {
		name        string
		lease, want time.Duration
		fault       func(*fakeRedis)
	}{
		{"silent, short lease", time.Second, 5 * time.Second, func(f *fakeRedis) { f.deafUp.Store(true) }},
		{"silent, long lease", 30 * time.Second, 30 * time.Second, func(f *fakeRedis) { f.deafUp.Store(true) }},
		{"errors, short lease", time.Second, 5 * time.Second, func(f *fakeRedis) { f.SetError("LOADING …") }},
		{"errors, long lease", 30 * time.Second, 30 * time.Second, func(f *fakeRedis) { f.SetError("LOADING …") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, &rlock.Options{LeaseTime: tt.lease}).NewLock("a")
				tt.fault(f)
				_, _, err := mu.Lock(t.Context())
				require.ErrorIs(t, err, rlock.ErrUnavailable)
				require.NotErrorIs(t, err, rlock.ErrNotAcquired)
				require.Equal(t, tt.want, f.now())
			})
		})
	}
}

// The first waiter of a client gives up because Redis did not answer for so long. Those
// who have waited behind it from the start have waited as long, and give up as well.
func TestFakeTimeQueueGivesUpWithItsHead(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, &rlock.Options{LeaseTime: time.Second}).NewLock("a")
		f.deafUp.Store(true)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, _, err := mu.Lock(t.Context())
				assert.ErrorIs(t, err, rlock.ErrUnavailable)
			})
		}
		all.Wait()
		require.LessOrEqual(t, f.now(), 6*time.Second, "5 s, and a little for those behind")
	})
}

func TestFakeTimeTryLockIsBounded(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		300 * time.Millisecond: 100 * time.Millisecond,
		30 * time.Second:       2 * time.Second,
	} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, &rlock.Options{LeaseTime: lease}).NewLock("a")
			f.deafUp.Store(true)
			_, _, err := mu.TryLock(t.Context())
			require.ErrorIs(t, err, rlock.ErrUnavailable)
			require.Equal(t, want, f.now())
		})
	}
}

func TestFakeTimeLateAnswerIsNoGrant(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, &rlock.Options{LeaseTime: 6 * time.Second}).NewLock("a")
		f.late.Store(int64(2500 * time.Millisecond)) // an attempt may take 2 s
		held, hold, err := mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.Nil(t, hold)
		require.Equal(t, t.Context(), held)
		f.late.Store(0)
		time.Sleep(2600 * time.Millisecond) // a connection for the release may have been made slowly, too
		synctest.Wait()
		require.False(t, f.Exists("a"), "its owner is released")
		require.NotEmpty(t, f.scripts("release"))
		require.Empty(t, f.scripts("renew"))
	})
}

func TestFakeTimeUnlockTimeout(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, &rlock.Options{UnlockTimeout: 3 * time.Second}).NewLock("a")
		held, hold := lock(t, t.Context(), mu)
		f.deafUp.Store(true)
		err := hold.Unlock(held)
		require.Equal(t, 3*time.Second, f.now())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.True(t, f.Exists("a"))
		require.ErrorIs(t, context.Cause(held), rlock.ErrUnlocked)

		time.Sleep(4 * time.Second)
		f.deafUp.Store(false)
		time.Sleep(3 * time.Second) // the attempt under way, and a back-off
		synctest.Wait()
		require.False(t, f.Exists("a"), "released in the background")
		require.Empty(t, f.scripts("renew"))
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrNotHeld)
	})
}
