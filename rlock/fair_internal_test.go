package rlock

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A grant of a fair lock is lost after it was passed on and before its heir takes it. The heir's own owner is in the
// run, so its ticket is taken out; the heir asks with another.
func TestFakeTimeFairHeirOfALostGrant(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		l := c.NewFairLock("a")
		l.use(f)
		first, holder := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1, First: true}})
		second, w := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 2}})
		owner := second.owner.name
		l.hear(fmt.Sprint(first.owner.name, " 3 6000 0 0 ", owner))
		<-holder.served
		require.NoError(t, holder.err)
		_, hold, err := holder.grant.take(t.Context(), l, true)
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(t.Context()))
		<-w.served
		g := w.grant
		require.NotNil(t, g, "it was passed on")
		g.lose(errGone)
		_, _, err = g.take(t.Context(), l, true)
		require.ErrorIs(t, err, ErrLeaseLost)
		g.forgo()
		time.Sleep(time.Second)
		require.True(t, slices.ContainsFunc(f.calls("release"), func(c noted) bool { return c.owner == owner }))
		require.Empty(t, l.queues.byKey, "nobody waits any more")
	})
}

// A waiter of a fair lock that has no place on the server, for want of memory there, asks of its own accord also
// behind another of its client, which otherwise asks for both.
func TestFairWaiterWithoutAPlaceAsks(t *testing.T) {
	for _, place := range []lua.Place{{Time: 1}, {}} {
		redistest.Bubble(t, func(t *testing.T) {
			c, _, f := newFake(t)
			f.signal = live{}
			l := c.NewFairLock("a")
			l.use(f)
			f.onAcquire = func(context.Context, int) (lua.Reply, error) {
				return lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1, First: true}}, nil
			}
			wait := func() { _, _, _ = l.Lock(within(t, 30*time.Second)) }
			go wait()
			synctest.Wait()
			f.onAcquire = func(context.Context, int) (lua.Reply, error) { return lua.Reply{TTL: time.Hour, Place: place}, nil }
			go wait()
			synctest.Wait()
			asked := len(f.calls("acquire"))
			second := f.calls("acquire")[asked-1].owner
			time.Sleep(minKeepAlive - time.Millisecond)
			require.Len(t, f.calls("acquire"), asked)
			time.Sleep(deafPause)
			byItself := slices.ContainsFunc(f.calls("acquire")[asked:], func(n noted) bool { return n.owner == second })
			require.Equal(t, !place.Held(), byItself)
			time.Sleep(time.Minute)
		})
	}
}
