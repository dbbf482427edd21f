package rlock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

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
		{"no TTL", somebody, 0, nil, append([]time.Duration{0}, slices.Repeat([]time.Duration{minKeepAlive}, 10)...)},
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

// A waiter that can hear, and hears nothing, asks after a second, whenever it has waited twice as
// long as at the request before, and every five seconds at least.
func TestFakeTimeAsksOfItsOwnAccord(t *testing.T) {
	for _, holder := range []string{somebody, redisson} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, nil).NewLock("a")
			f.heldBy("a", holder, time.Hour)
			f.teach(t)
			began := f.now()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			_, _, err := mu.Lock(ctx)
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			synctest.Wait()
			asked := slices.DeleteFunc(f.asked(), func(at time.Duration) bool { return at < began })
			require.Greater(t, len(asked), 10)
			for i, pause := range pauses(asked) {
				want := min(max(asked[i]-began, minKeepAlive), keepAlive)
				if i < 2 && pause == 0 { // its subscriptions are confirmed
					continue
				}
				require.GreaterOrEqual(t, pause, want)
				require.LessOrEqual(t, pause, want+want/10+10*time.Millisecond)
			}
		})
	}
}

// If many wait, those that come behind them ask rarely from the beginning.
func TestFakeTimeManyAskRarely(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		const clients, wait = 100, 4 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		var waiters []*waiting
		for range clients {
			waiters = append(waiters, begin(ctx, f.client(t, nil).NewLock("a")))
		}
		synctest.Wait()
		before := len(f.asked())
		time.Sleep(wait)
		synctest.Wait()
		asked := len(f.asked()) - before
		require.LessOrEqual(t, asked, int(wait/time.Second)*asksPerSecond+clients) // those that came first have seen fewer
		require.Positive(t, asked)
		cancel()
		for _, w := range waiters {
			<-w.done
			require.ErrorIs(t, w.err, context.Canceled)
		}
	})
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
