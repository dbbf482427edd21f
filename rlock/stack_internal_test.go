package rlock

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// A goroutine that waits behind another of its client keeps a stack of the first size, 2 KB: there may be
// very many of them.
func TestStackOfAWaiter(t *testing.T) {
	if redistest.RaceEnabled {
		t.Skip("the race detector needs more")
	}
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onAcquire = func(context.Context, int) (lua.Reply, error) { return lua.Reply{TTL: time.Hour, Holder: "x:1"}, nil }
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		wait := func() {
			_, _, err := l.Lock(ctx)
			assert.ErrorIs(t, err, ErrNotAcquired)
		}
		stacks := func() uint64 {
			synctest.Wait()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.StackInuse
		}
		all.Go(wait)
		before := stacks()
		const waiters = 4000
		for range waiters {
			all.Go(wait)
		}
		require.Less(t, float64(stacks()-before)/waiters, 3000.0)
		leave()
		all.Wait()
	})
}
