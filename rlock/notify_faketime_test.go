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
