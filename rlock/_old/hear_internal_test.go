package rlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// When a foreign owner has released the lock, the first in the queue asks at once, and
// the others soon if they hear nothing of that.
func TestUnlockedByAForeignOwner(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c, _, f := newFake(t)
		l := c.NewFairLock("a")
		l.use(f)
		waiter := func(ttl time.Duration, first bool) *waiter {
			w, _ := l.queues.enter(l, time.Now())
			for range 5 { // the pauses of who hears nothing become longer
				f.refuse(t, w, lua.Reply{TTL: ttl, Place: lua.Place{Time: 1, First: first}})
			}
			return w
		}
		first, second, soon := waiter(time.Hour, true), waiter(time.Hour, false), waiter(10*time.Millisecond, false)
		defer first.leave()
		defer second.leave()
		defer soon.leave()
		require.Greater(t, time.Until(second.askAt), 2*reaction)
		before := soon.askAt
		l.withQueue((*queue).unlocked)
		require.True(t, first.again)
		require.False(t, second.again)
		require.Equal(t, reaction, time.Until(second.askAt))
		require.Equal(t, before, soon.askAt)
	})
}
