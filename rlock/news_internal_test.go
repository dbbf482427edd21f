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

// Every answer shows that the server is up, also the answer to a request that was sent before others got none. The
// time after which waiters give up starts anew with it.
func TestFakeTimeAnAnswerEndsTheTroubleOfAll(t *testing.T) {
	for name, granted := range map[string]bool{"granted": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				_, l, f := newFake(t)
				f.onAcquire = func(context.Context, int) (lua.Reply, error) {
					l.withQueue(func(q *queue) { // meanwhile, by another asker
						q.news.fails(errCut, time.Now())
						require.False(t, q.news.since.IsZero())
					})
					return lua.Reply{Acquired: granted, TTL: time.Second}, nil
				}
				w := newWaiter(t, l)
				_, a, err := l.queues.enter(w)
				require.NoError(t, err)
				q := a.queue
				g, err := a.askByCall(w)
				require.NoError(t, err)
				require.Equal(t, granted, g != nil)
				require.True(t, q.news.since.IsZero())
				require.NoError(t, q.news.trouble)
				if granted {
					g.forgo()
				} else {
					w.leave()
				}
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
	}{
		"failed":       {func() (lua.Reply, error) { return lua.Reply{}, errCut }, keepAlive + time.Second},
		"not answered": {func() (lua.Reply, error) { time.Sleep(time.Second); return lua.Reply{TTL: time.Hour}, nil }, keepAlive + time.Millisecond},
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
				require.ErrorIs(t, <-first, ErrNotAcquired)
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

// A waiter has had no answer since requests have failed, but not from before it came: so all of a line give up
// together, each after as long as it waits for an answer. When the newest failure is old nobody asks any more, and it
// says nothing.
func TestSilence(t *testing.T) {
	var n news
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	early, late := at(0), at(9)
	silent := func(came time.Time, now float64) time.Time { return n.silentSince(came, at(now)) }

	require.Zero(t, silent(early, 1))
	for s := 2.0; s < 30; s++ {
		n.fails(errCut, at(s))
	}
	require.Equal(t, at(2), silent(early, 30))
	require.Equal(t, late, silent(late, 30))
	require.Zero(t, silent(early, 29+longestFailure.Seconds()))

	n.fails(errCut, at(40)) // after a while without any request
	require.Equal(t, at(40), silent(early, 40))
	require.Equal(t, at(40), silent(late, 40))

	// An answer may be that to a request from before the newest failure. Which of the answered requests is the newest
	// goes by when they were sent.
	for _, sent := range []float64{1, 3, 2} {
		n.fails(errCut, at(41))
		n.answered(at(sent))
		require.Zero(t, silent(early, 41))
		require.NoError(t, n.trouble)
	}
	require.Equal(t, at(3), n.newest)
}

// Those of a line whose time without an answer is over get the error. The others wait on.
func TestFakeTimeWhoGivesUp(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, l, f := newFake(t)
		short := c.NewLock("a", WithLeaseTime(time.Second))
		short.use(f)
		require.Less(t, short.policy.Total, l.policy.Total)
		a, first := f.enter(t, l, lua.Reply{TTL: time.Hour})
		all := []*waiter{first, behind(t, short), behind(t, l)}
		given := func() (given []bool) {
			l.withQueue(func(*queue) {
				for _, w := range all {
					given = append(given, !w.waits())
				}
			})
			return given
		}
		f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) { return lua.Reply{}, hang(ctx) }
		began := time.Now()
		for time.Since(began) < short.policy.Total {
			a.report(errCut)
			require.Equal(t, []bool{false, false, false}, given())
			time.Sleep(time.Second)
		}
		a.report(errCut)
		require.Equal(t, []bool{false, true, false}, given())
		require.ErrorIs(t, short.failure(t.Context(), all[1].err), ErrUnavailable)
		a.report(nil)
		first.leave()
		all[2].leave()
	})
}
