package rlock

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

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
		owner := w.place.attempt.owner
		l.hear(fmt.Sprint(first.place.attempt.owner, " 3 6000 0 0 ", owner))
		_, hold, err := first.step().grant.start(t.Context(), l)
		require.NoError(t, err)
		first.leave()
		require.NoError(t, hold.Unlock(t.Context()))
		g := w.step().grant
		require.NotNil(t, g, "it was passed on")
		g.lose(errGone)
		_, _, err = g.start(t.Context(), l)
		require.ErrorIs(t, err, ErrLeaseLost)
		g.abandon(true)
		w.renounce(g)
		time.Sleep(time.Second)
		require.True(t, slices.ContainsFunc(f.calls("release"), func(c call) bool { return c.owner == owner }))
		require.Nil(t, w.place.attempt)
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
		require.True(t, w.step().ask, "it can hear from now on")
		f.refuse(t, w, lua.Reply{TTL: time.Hour, Place: place})
		require.Equal(t, maxPause, w.step().sleep)
		f.refuse(t, w, lua.Reply{TTL: time.Hour})
		require.Equal(t, deafPause, w.step().sleep)
	})
}
