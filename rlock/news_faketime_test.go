package rlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// The first waiter of a client asks the server for all its waiters of a fair lock. If it
// gives up because of an error, which it does 5 s after the first refusal, the next one asks at once, and
// does not wait until the first would have asked again. So all give up together. A call that has not waited
// fails at once.
func TestFakeTimeFirstGivesUpInTrouble(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		mu := f.client(t, nil).NewFairLock("a")
		var waiters []*waiting
		for range 3 {
			waiters = append(waiters, begin(t.Context(), mu))
			synctest.Wait()
		}
		time.Sleep(time.Second)
		queue, began := queueOf(t, f.rdb, "a"), time.Now()
		f.SetError("NOPERM this user has no permissions to access one of the keys used as arguments")
		require.Equal(t, 1, f.Publish("rlock_channel:{a}:"+clientOf(queue[0]), queue[0]))
		for _, call := range methods(f.client(t, nil).NewLock("b")) {
			require.ErrorIs(t, call(t.Context()), rlock.ErrUnavailable)
		}
		_, _, err := mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		unserved := f.client(t, nil).NewLock("c")
		for _, w := range []*waiting{begin(t.Context(), mu), begin(t.Context(), unserved), begin(t.Context(), unserved), begin(t.Context(), unserved)} {
			<-w.done
			require.ErrorIs(t, w.err, rlock.ErrUnavailable)
		}
		require.Equal(t, began, time.Now())
		for _, w := range waiters {
			<-w.done
			require.ErrorIs(t, w.err, rlock.ErrUnavailable)
		}
		took := time.Since(began)
		require.GreaterOrEqual(t, took, 5*time.Second)
		require.LessOrEqual(t, took, 5500*time.Millisecond)
		f.heal()
		time.Sleep(time.Second)
		require.Empty(t, tickets(t, f.rdb, "a"))
	})
}

// A call that waits behind a grant of its own client outlives a refusal as well: that grant is an answer.
// The bound counts from the first refusal since an answer, so two short refusals are no long one.
func TestFakeTimeShortRefusals(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		c := f.client(t, nil)
		_, hold := lock(t, t.Context(), c.NewLock("a"))
		w := begin(t.Context(), c.NewLock("a", longLease)) // is not handed that grant
		synctest.Wait()
		ask := f.hold(func(args []string) bool { return isScript("try")(args) || isScript("ask")(args) })
		require.NoError(t, hold.Unlock(t.Context()))
		synctest.Wait()
		f.holder("a", time.Hour)
		for range 3 {
			f.SetError("NOPERM this user has no permissions to access one of the keys used as arguments")
			ask()
			time.Sleep(4 * time.Second)
			f.heal()
			time.Sleep(6 * time.Second)
		}
		f.release(t, somebody)
		_, hold = w.acquired(t)
		require.NoError(t, hold.Unlock(t.Context()))
	})
}

// A waiter gives up when nobody has got an answer for as long as its own lease, also behind
// one that waits for longer.
func TestFakeTimeSilenceIsAsLongAsTheOwnLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		f.deafUp.Store(true)
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, _, err := c.NewLock("a", longLease).Lock(ctx)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		for lease, bound := range map[time.Duration]time.Duration{time.Second: 5 * time.Second, 30 * time.Second: 30 * time.Second, time.Minute: time.Minute} {
			all.Go(func() {
				_, _, err := c.NewLock("a", rlock.WithLeaseTime(lease)).Lock(t.Context())
				assert.ErrorIs(t, err, rlock.ErrUnavailable)
				assert.ErrorContains(t, err, "no answer in time")
				assert.GreaterOrEqual(t, f.now(), bound)
				assert.LessOrEqual(t, f.now(), bound+5*time.Second, "a single attempt that was under way, and a pause")
			})
		}
		time.Sleep(2 * time.Minute)
		leave()
		all.Wait()
		f.heal()
	})
}
