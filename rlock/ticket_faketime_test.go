package rlock_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// The server grants the lock to a ticket whose owner has left: a late request. The client
// passes it on, and gives back the tokens that were reserved for that owner.
func TestFakeTimeTokensOfALateTicket(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewFairLock("a", rlock.WithFencing()))
		mu := f.client(t, nil).NewFairLock("a", rlock.WithFencing())
		ctx, leave := context.WithCancel(t.Context())
		gone := begin(ctx, mu)
		synctest.Wait()
		w := begin(t.Context(), mu)
		synctest.Wait()
		first := f.rdb.ZRangeWithScores(t.Context(), "rlock_queue:{a}", 0, 0).Val()[0]
		leave()
		<-gone.done
		synctest.Wait()
		require.Len(t, tickets(t, f.rdb, "a"), 1)
		require.NoError(t, f.rdb.ZAdd(t.Context(), "rlock_queue:{a}", first).Err())
		require.NoError(t, hold.Unlock(held))
		held, next := w.acquired(t)
		require.Equal(t, hold.Token()+2, next.Token(), "no time has passed")
		require.NoError(t, next.Unlock(held))
	})
}

// A client whose tickets were all dropped is told so, and asks again.
func TestFakeTimeTicketsWereDropped(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		mu := f.client(t, nil).NewFairLock("a")
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			go mu.Lock(ctx)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		queue := queueOf(t, f.rdb, "a")
		f.Del("rlock_queue:{a}")
		require.Equal(t, 1, f.Publish("rlock_channel:{a}:"+clientOf(queue[0]), "*"))
		synctest.Wait()
		require.ElementsMatch(t, queue, queueOf(t, f.rdb, "a"))
		cancel()
		synctest.Wait()
		require.Empty(t, tickets(t, f.rdb, "a"))
	})
}

// A request that the server has surely not executed leaves no ticket, and so nothing that
// Close would have to wait for.
func TestFakeTimeNothingIsLeftByWhatWasNotExecuted(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c, err := rlock.New(f.rdb, &rlock.Options{Identity: rlock.Anonymous()})
		require.NoError(t, err)
		f.SetError("READONLY You can't write against a read only replica.")
		_, _, err = c.NewFairLock("a").TryLockFor(t.Context(), time.Second)
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		closing := time.Now()
		require.NoError(t, c.Close(t.Context()))
		require.Equal(t, closing, time.Now())
	})
}

// Clients that wait for a lock probe their subscriptions the more seldom the more of them there
// are: together 400 times a second, but each five times at most, and once in 2 s at least; once in 10 s if
// 256 tickets are before that of the client.
func TestFakeTimeProbesByTheLengthOfTheQueue(t *testing.T) {
	for waiters, want := range map[int]struct{ least, most, later int }{1: {7, 11, 12}, 200: {3, 6, 11}, 256: {2, 5, 10}, 257: {1, 2, 2}, 1000: {1, 2, 2}} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			f.holder("a", time.Hour)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			crowd := f.client(t, nil).NewFairLock("a") // each of its calls has a ticket
			for range waiters - 1 {
				go crowd.Lock(ctx)
			}
			time.Sleep(time.Minute)
			came := f.now()
			go f.client(t, nil).NewFairLock("a").Lock(ctx)
			newest := func() int { // the probes of the newest client
				probes, first := make(map[string]int), make(map[string]bool)
				f.mu.Lock()
				defer f.mu.Unlock()
				for _, r := range f.log {
					if r.args[0] == "publish" && strings.Contains(r.args[1], "rlock-probe:") {
						first[r.args[1]] = first[r.args[1]] || r.at < came
						probes[r.args[1]]++
					}
				}
				maps.DeleteFunc(probes, func(channel string, _ int) bool { return first[channel] })
				return slices.Max(slices.Collect(maps.Values(probes)))
			}
			time.Sleep(2 * time.Second)
			n := newest()
			require.LessOrEqual(t, n, want.most, "%d waiters", waiters)
			require.GreaterOrEqual(t, n, want.least, "%d waiters", waiters)
			time.Sleep(20 * time.Second)
			require.InDelta(t, want.later, newest()-n, 1, "%d waiters", waiters)
			cancel()
			synctest.Wait()
		})
	}
}

// Whoever waits sends a request after one, two, and four seconds, and two probes in a second, five at first.
func TestFakeTimeWaitingSendsLittle(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.holder("a", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.client(t, nil).NewLock("a").Lock(ctx)
		time.Sleep(900 * time.Millisecond) // it is in the queue
		began := f.now()
		time.Sleep(4 * time.Second)
		asks, probes := 0, 0
		f.mu.Lock()
		for _, r := range f.log {
			switch {
			case r.at < began:
			case r.args[0] == "publish" && strings.Contains(r.args[1], "rlock-probe:"):
				probes++
			case r.args[0] == "evalsha" && slices.Contains(r.args, "rlock_queue:{a}"):
				asks++
			}
		}
		f.mu.Unlock()
		require.InDelta(t, 2, asks, 1)
		require.InDelta(t, 6, probes, 2)
		cancel()
		synctest.Wait()
	})
}

// One call fails and leaves, while the others of its client have their tickets and wait. They
// ask again after 5 s, and the server answers: the old failure says nothing about them.
func TestFakeTimeAFailureOfAnotherCall(t *testing.T) {
	for range 10 { // when they ask is random
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			f.teach(t)
			f.holder("a", time.Hour)
			mu := f.client(t, nil).NewFairLock("a", rlock.WithLeaseTime(3*time.Second))
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					_, _, err := mu.TryLockFor(t.Context(), 20*time.Second)
					assert.NotErrorIs(t, err, rlock.ErrUnavailable)
					assert.ErrorIs(t, err, rlock.ErrNotAcquired)
				})
				synctest.Wait()
			}
			f.SetError("LOADING Redis is loading the dataset in memory")
			_, _, err := mu.TryLockFor(t.Context(), 50*time.Millisecond)
			require.ErrorIs(t, err, rlock.ErrUnavailable)
			f.SetError("")
			all.Wait()
		})
	}
}
