package rlock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestFakeTimeQueueIsFIFO(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		_, hold := lock(t, t.Context(), mu)
		var order []int
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				_ = mu.Do(t.Context(), func(context.Context) error {
					order = append(order, i)
					return nil
				})
			})
			synctest.Wait() // it is in the queue
		}
		require.NoError(t, hold.Unlock(t.Context()))
		all.Wait()
		require.True(t, slices.IsSorted(order), "%v", order)
		require.Len(t, order, 50)
	})
}

// The first waiter of a client gives up because Redis did not answer for so long. Those
// who have waited behind it from the start have waited as long, and give up as well.
func TestFakeTimeQueueGivesUpWithItsHead(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, &rlock.Options{LeaseTime: time.Second}).NewLock("a")
		f.deafUp.Store(true)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, _, err := mu.Lock(t.Context())
				assert.ErrorIs(t, err, rlock.ErrUnavailable)
			})
		}
		all.Wait()
		require.LessOrEqual(t, f.now(), 6*time.Second, "5 s, and a little for those behind")
	})
}
