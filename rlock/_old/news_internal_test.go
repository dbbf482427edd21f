package rlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// Every answer shows that the server is up, also the answer to a request that was sent
// before others got none. The time after which waiters give up starts anew with it.
func TestFakeTimeAnAnswerEndsTheTroubleOfAll(t *testing.T) {
	for name, granted := range map[string]bool{"granted": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				_, l, f := newFake(t)
				w, _ := l.queues.enter(l, time.Now())
				defer w.leave()
				f.onAcquire = func(context.Context, int) (lua.Reply, error) {
					w.asked(errCut) // meanwhile, by another waiter
					require.False(t, w.queue.news.since.IsZero())
					return lua.Reply{Acquired: granted, TTL: time.Second}, nil
				}
				g, err := w.ask(t.Context())
				require.NoError(t, err)
				require.Equal(t, granted, g != nil)
				require.True(t, w.queue.news.since.IsZero())
				require.NoError(t, w.queue.news.trouble)
			})
		})
	}
}

// The lock is held by another goroutine of the client, and so it is busy, whatever becomes of
// the requests that waiters make now and then, in case it was removed on the server: one that
// failed and whose caller has left, as another does before it would ask; or one that is not
// answered in time.
func TestFakeTimeBusyBehindOwnHolder(t *testing.T) {
	for name, tt := range map[string]struct {
		acquire func() (lua.Reply, error)
		waits   time.Duration // of the first
		want    error         // for the first
	}{
		"failed":       {func() (lua.Reply, error) { return lua.Reply{}, errCut }, keepAlive + time.Second, ErrUnavailable},
		"not answered": {func() (lua.Reply, error) { time.Sleep(time.Second); return lua.Reply{TTL: time.Hour}, nil }, keepAlive + time.Millisecond, ErrNotAcquired},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				_, l, f := newFake(t)
				held, hold, err := l.Lock(t.Context())
				require.NoError(t, err)
				f.onAcquire = func(context.Context, int) (lua.Reply, error) { return tt.acquire() }
				first, second := make(chan error, 1), make(chan error, 1)
				go func() { _, _, err := l.TryLockFor(t.Context(), tt.waits); first <- err }()
				time.Sleep(keepAlive)
				go func() { _, _, err := l.TryLockFor(t.Context(), 2*time.Second); second <- err }()
				require.ErrorIs(t, <-first, tt.want)
				require.ErrorIs(t, <-second, ErrNotAcquired)
				require.NoError(t, held.Err(), "it is renewed")
				require.NoError(t, hold.Unlock(held))
			})
		})
	}
}

// A request fails and its caller leaves, while the others wait for a grant of their own client.
// The time after that in which nobody asked is no time without an answer: the next one asks.
func TestFakeTimeAnOldFailureIsNoSilence(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		l := c.NewLock("a", WithLeaseTime(3*time.Second))
		l.use(f)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		var free atomic.Bool
		f.onAcquire = func(context.Context, int) (lua.Reply, error) {
			if time.Since(f.start) < 5500*time.Millisecond {
				return lua.Reply{}, errors.New("EOF")
			}
			return lua.Reply{Acquired: free.Load(), TTL: 3 * time.Second, Holder: hold.Owner()}, nil
		}
		var all sync.WaitGroup
		all.Go(func() {
			_, _, err := l.Lock(within(t, 5300*time.Millisecond)) // it asks after 5 s
			assert.Error(t, err)
		})
		synctest.Wait()
		for range 3 {
			all.Go(func() {
				_, next, err := l.Lock(within(t, time.Minute))
				if assert.NoError(t, err) {
					assert.NoError(t, next.Unlock(t.Context()))
				}
			})
			synctest.Wait()
		}
		time.Sleep(30 * time.Second)
		free.Store(true)
		require.NoError(t, hold.Unlock(held))
		all.Wait()
	})
}

// A waiter has had no answer since requests have failed, but not from before it came: so all of a
// queue give up together, each after as long as it waits for an answer. When the newest failure is old
// nobody asks any more, and it says nothing.
func TestFakeTimeSilenceOfAQueue(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, _ := newFake(t)
		enter := func() *waiter {
			w, _ := l.queues.enter(l, time.Now())
			t.Cleanup(func() { w.leave() })
			return w
		}
		since := func(w *waiter) (since time.Time, over bool) {
			w.lock.queues.mu.Lock()
			defer w.lock.queues.mu.Unlock()
			return w.queue.news.silentSince(w.since, time.Now()), w.unanswered(time.Now())
		}
		requireSilent := func(w *waiter, want time.Time, wantOver bool) {
			t.Helper()
			got, over := since(w)
			require.Equal(t, want, got)
			require.Equal(t, wantOver, over)
		}
		first := enter()
		time.Sleep(time.Second)
		requireSilent(first, time.Time{}, false)
		failing := time.Now()
		for range 8 {
			first.asked(errCut)
			time.Sleep(time.Second)
		}
		came := time.Now()
		second := enter()
		requireSilent(first, failing, false)
		requireSilent(second, came, false)
		for time.Since(failing) < l.retries().Total {
			first.asked(errCut)
			time.Sleep(time.Second)
		}
		requireSilent(first, failing, true)
		requireSilent(second, came, false)
		require.Equal(t, waiterBlocked, second.state)
		time.Sleep(longestFailure)
		requireSilent(first, time.Time{}, false)

		again := time.Now()
		first.asked(errCut)
		requireSilent(first, again, false)
		requireSilent(second, again, false)
		first.asked(nil)
		requireSilent(first, time.Time{}, false)
	})
}

// An answer may be that to a request from before the newest failure. Which of the requests that were
// answered is the newest goes by when they were sent.
func TestFakeTimeNewestAnswer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, _ := newFake(t)
		w, _ := l.queues.enter(l, time.Now())
		defer w.leave()
		now := time.Now()
		for _, sent := range []time.Duration{time.Second, 3 * time.Second, 2 * time.Second} {
			w.asked(errCut)
			w.lock.queues.mu.Lock()
			w.queue.news.answered(now.Add(sent))
			w.lock.queues.mu.Unlock()
			require.True(t, w.queue.news.since.IsZero())
		}
		require.Equal(t, now.Add(3*time.Second), w.asked(errCut))
		require.Equal(t, now.Add(3*time.Second), w.asked(nil))
	})
}

// The first waiter is in touch with the server, and tells those that have waited for long enough.
func TestFakeTimeFailureOfTheFirstWakesWhoeverGivesUp(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		short := c.NewLock("a", WithLeaseTime(time.Second))
		short.use(f)
		require.Less(t, short.retries().Total, l.retries().Total)
		all := make([]*waiter, 3)
		for i, l := range []*Lock{l, short, l} {
			all[i], _ = l.queues.enter(l, time.Now())
			all[i].woken = make(chan struct{}, 1) // it sleeps
			defer all[i].leave()
		}
		woken := func() (woken []bool) {
			for _, w := range all {
				woken = append(woken, len(w.woken) > 0)
			}
			return woken
		}
		for range 2 {
			all[0].asked(errCut)
			require.Equal(t, []bool{false, false, false}, woken())
			time.Sleep(short.retries().Total / 2)
		}
		all[2].asked(errCut)
		require.Equal(t, []bool{false, false, false}, woken(), "that is the business of the first")
		all[0].asked(errCut)
		require.Equal(t, []bool{false, true, false}, woken())
	})
}
