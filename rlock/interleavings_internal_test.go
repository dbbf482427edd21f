package rlock

import (
	"context"
	"fmt"
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
			c, _, f := newFake(t)
			l := c.NewRWLock("a").Reader()
			l.use(f)
			f.onAcquire = func(_ context.Context, n int) (lua.Reply, error) {
				if doubt && n == 1 {
					return lua.Reply{}, errCut
				}
				return lua.Reply{Acquired: true}, nil
			}
			call, asks := l.queues.joinCall(l)
			require.True(t, asks)
			ctx, cancel := context.WithCancel(t.Context())
			got, failed := make(chan *Hold, 1), make(chan error, 1)
			go func() {
				_, hold, err := l.joinOrAsk(ctx, ctx, l.retries)
				got <- hold
				failed <- err
			}()
			synctest.Wait() // it follows
			g := l.newAttempt()
			require.NoError(t, g.acquire(t.Context(), l.retries, kind.Options{}).Err)
			require.Equal(t, doubt, g.acquireUnknown)
			_, asker, err := g.start(t.Context(), l)
			require.NoError(t, err)
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
		c, _, f := newFake(t)
		l := c.NewFairLock("a")
		l.use(f)
		first, _ := l.queues.enter(l, time.Now())
		w, _ := l.queues.enter(l, time.Now())
		f.refuse(t, first, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1, First: true}})
		f.refuse(t, w, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 2}})
		owner := w.attempt.owner
		l.hear(fmt.Sprint(first.attempt.owner, " 3 6000 0 0 ", owner))
		_, hold, err := first.next().grant.start(t.Context(), l)
		require.NoError(t, err)
		first.leave()
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
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		f.signal = live{}
		l := c.NewFairLock("a")
		l.use(f)
		first, _ := l.queues.enter(l, time.Now())
		defer first.leave()
		w, _ := l.queues.enter(l, time.Now())
		defer w.leave()
		place := lua.Place{Time: 1}
		f.refuse(t, w, lua.Reply{TTL: time.Hour, Place: place})
		require.True(t, w.next().ask, "it can hear from now on")
		f.refuse(t, w, lua.Reply{TTL: time.Hour, Place: place})
		require.Equal(t, maxPause, w.next().sleep)
		place.None = true
		f.refuse(t, w, lua.Reply{TTL: time.Hour, Place: place})
		require.Equal(t, deafPause, w.next().sleep)
	})
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

// late is a fake whose next grant is over when its answer is read, as by a process that has
// stood still meanwhile.
type late struct {
	*fake
	next bool
}

func (k *late) Acquire(ctx context.Context, r lua.Runner, owner string, lease time.Duration, o kind.Options) (kind.Answer, error) {
	a, err := k.fake.Acquire(ctx, r, owner, lease, o)
	if k.next {
		k.next, a.Sent = false, time.Now().Add(-lease)
	}
	return a, err
}

// Whoever waits asks again if a grant came too late to be held, a reader too, who asks before
// it queues; TryLock fails.
func TestFakeTimeLateGrantIsAskedForAgain(t *testing.T) {
	for _, reads := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			c, l, f := newFake(t)
			if reads {
				l = c.NewRWLock("a").Reader()
			}
			k := &late{f, true}
			l.use(k)
			held, hold, err := l.Lock(t.Context())
			require.NoError(t, err, "reads: %v", reads)
			require.Len(t, f.calls("acquire"), 2)
			require.NoError(t, hold.Unlock(held))
			synctest.Wait() // the first has been released
			k.next = true
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
