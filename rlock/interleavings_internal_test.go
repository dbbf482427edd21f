package rlock

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/kind"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/watchdog"
)

// A reader whose time ends while it follows the request of another gets a hold or an error of
// its own, whatever has become of that request: a grant in doubt, which nobody joins, or one
// that was lost at once.
func TestFakeTimeFollowerWhoseTimeIsOver(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the follower runs when both have happened
	for _, doubt := range []bool{true, false} {
		redistest.Bubble(t, func(t *testing.T) {
			_, l, _ := newFake(t)
			l.shared, l.joins, l.handoff = true, true, handoff{longest: time.Second}
			call, asks := l.queues.joinCall(l)
			require.True(t, asks)
			g := l.newAttempt()
			g.sent, g.initialLease, g.acquireUnknown = time.Now(), l.lease, doubt
			_, asker, err := g.start(t.Context(), l)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			got, failed := make(chan *Hold, 1), make(chan error, 1)
			go func() {
				_, hold, err := l.joinOrAsk(ctx, ctx, l.retries)
				got <- hold
				failed <- err
			}()
			synctest.Wait() // it follows
			g.lose(errGone)
			l.queues.finishCall(call, asker, nil)
			cancel()
			require.Nil(t, <-got)
			err = <-failed
			require.ErrorIs(t, err, context.Canceled, "in doubt: %v", doubt)
			require.ErrorIs(t, err, ErrUnavailable)
			require.ErrorIs(t, asker.Unlock(t.Context()), ErrLeaseLost)
		})
	}
}

// A grant of a fair lock is lost after it was passed on and before its successor runs. The successor's
// own owner is in the run, so that it is released; the successor asks with another.
func TestFakeTimeFairHeirOfALostGrant(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		l.order, l.handoff = fairOrder{}, handoff{}
		_, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		w, _ := l.queues.enter(l, time.Now())
		w.attempt, w.state, w.place.held = l.newAttempt(), waitQueued, true
		owner := w.attempt.owner
		w.queue.tickets = map[string]*waiter{owner: w}
		hold.grant.run.next = []string{owner}
		require.NoError(t, hold.Unlock(t.Context()))
		g := w.next().grant
		require.NotNil(t, g, "it was passed on")
		g.lose(errGone)
		_, _, err = g.start(t.Context(), l)
		require.ErrorIs(t, err, ErrLeaseLost)
		g.abandon(true)
		w.renounce(g)
		time.Sleep(time.Second)
		require.True(t, slices.ContainsFunc(f.calls("release"), func(c call) bool { return c.owner == owner }))
		require.Nil(t, w.attempt)
		w.leave()
	})
}

// A waiter of a fair lock that has no place on the server, for want of memory there, asks of
// its own accord also behind another of its client.
func TestFairWaiterWithoutAPlaceAsks(t *testing.T) {
	now := time.Now()
	q := &queue{}
	first := &waiter{queue: q, state: waitQueued}
	w := &waiter{queue: q, state: waitQueued, askAt: now.Add(time.Second)}
	q.waiters.push(first)
	q.waiters.push(w)
	require.Equal(t, time.Second, fairOrder{}.untilAsk(w, now))
	w.place.held = true
	require.Equal(t, maxPause, fairOrder{}.untilAsk(w, now))
}

// The last hold of a lost grant may be a nested one that has failed: then it releases what
// the server may still have.
func TestFakeTimeLastHoldOfALostGrantFails(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onCount = func(ctx context.Context, _ int) error { return hang(ctx) }
		held, outer, err := l.Lock(t.Context())
		require.NoError(t, err)
		failed := make(chan error, 1)
		go func() { _, _, err := l.Lock(held); failed <- err }()
		synctest.Wait()
		outer.grant.lose(watchdog.ErrLapsed)
		require.ErrorIs(t, outer.Unlock(t.Context()), ErrLeaseLost)
		require.Error(t, <-failed)
		time.Sleep(time.Second)
		require.Len(t, f.calls("release"), 1)
	})
}

// lateOnce is a fake whose first grant is over when its answer is read, as by a process that
// has stood still meanwhile.
type lateOnce struct{ *fake }

func (k lateOnce) Acquire(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o kind.Options) (kind.Answer, error) {
	a, err := k.fake.Acquire(ctx, r, owner, lease, o)
	if len(k.calls("acquire")) == 1 {
		a.Sent = time.Now().Add(-lease)
	}
	return a, err
}

// Whoever waits asks again if a grant came too late to be held, a reader too, who asks before
// it queues; TryLock fails.
func TestFakeTimeLateGrantIsAskedForAgain(t *testing.T) {
	for _, reads := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			_, l, f := newFake(t)
			l.wire = lateOnce{f}
			if reads {
				l.shared, l.joins, l.handoff = true, true, handoff{longest: time.Second}
			}
			held, hold, err := l.Lock(t.Context())
			require.NoError(t, err, "reads: %v", reads)
			require.Len(t, f.calls("acquire"), 2)
			require.NoError(t, hold.Unlock(held))
			synctest.Wait() // the first has been released
			f.mu.Lock()
			f.log = nil
			f.mu.Unlock()
			_, _, err = l.TryLock(t.Context())
			require.ErrorIs(t, err, errLate)
		})
	}
}

// A grant that was passed on is lost in the moment in which its successor takes it. Both see to it
// that what is left of it is released, and the race detector to it that neither disturbs the
// other.
func TestFakeTimeHeirTakesWhatIsLost(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		l.handoff = handoff{}.withDefaults(false)
		for range 100 {
			_, hold, err := l.Lock(t.Context())
			require.NoError(t, err)
			w, _ := l.queues.enter(l, time.Now())
			require.NoError(t, hold.Unlock(t.Context()))
			g := w.next().grant
			require.NotNil(t, g, "it was passed on")
			go g.lose(watchdog.ErrLapsed)
			for g.lossOrNil() == nil {
				runtime.Gosched()
			}
			_, _, err = g.start(t.Context(), l)
			require.ErrorIs(t, err, ErrLeaseLost)
			g.abandon(true)
			w.renounce(g)
			w.leave()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		require.NotEmpty(t, f.calls("release"))
	})
}
