package rlock

import (
	"context"
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
		asker := func(after time.Duration, first bool) *asker {
			a, w := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1, First: first}})
			t.Cleanup(func() { w.leave() })
			a.askAt = time.Now().Add(after)
			return a
		}
		first, second, soon := asker(time.Hour, true), asker(time.Hour, false), asker(10*time.Millisecond, false)
		f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) { return lua.Reply{}, hang(ctx) }
		before := soon.askAt
		l.withQueue(func(q *queue) {
			q.unlocked()
			require.True(t, first.asking)
			require.False(t, second.asking)
			require.Equal(t, reaction, time.Until(second.askAt))
			require.False(t, soon.asking)
			require.Equal(t, before, soon.askAt)
		})
	})
}
