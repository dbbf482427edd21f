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

// Clients that write one after another get the lock equally often.
func TestFakeTimeWritersTakeTurns(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		grants := make([]int, 8)
		var all sync.WaitGroup
		for i := range grants {
			writer := f.client(t, nil).NewRWLock("a").Writer()
			all.Go(func() {
				for {
					_, hold, err := writer.Lock(ctx)
					if err != nil {
						assert.ErrorIs(t, err, rlock.ErrNotAcquired)
						return
					}
					grants[i]++
					time.Sleep(2 * time.Millisecond)
					assert.NoError(t, hold.Unlock(t.Context()))
				}
			})
		}
		all.Wait()
		require.Greater(t, slices.Min(grants), 50)
		require.GreaterOrEqual(t, float64(slices.Min(grants)), 0.9*float64(slices.Max(grants)), grants)
	})
}

// Readers that wait enter together when a reader's turn comes, past the writers among them. A reader that
// comes then queues behind these writers, who are passed no second time.
func TestFakeTimeBatchOfReaders(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		client := func() *rlock.RWLock { return f.client(t, nil).NewRWLock("a") }
		queue := func(side *rlock.Lock) *waiting {
			w := begin(t.Context(), side)
			time.Sleep(time.Second)
			synctest.Wait()
			return w
		}
		waits := func(w *waiting) {
			t.Helper()
			synctest.Wait()
			select {
			case <-w.done:
				t.Fatal("it has entered")
			default:
			}
		}
		one := client()
		first, hold := lock(t, t.Context(), client().Writer())
		r1, w, r2, w2 := queue(one.Reader()), queue(client().Writer()), queue(client().Reader()), queue(client().Writer())

		require.NoError(t, hold.Unlock(first))
		in1, reads1 := r1.acquired(t)
		in2, reads2 := r2.acquired(t)
		waits(w)
		time.Sleep(time.Second) // longer than readers of its client may join
		r3 := queue(one.Reader())
		waits(r3)
		require.NoError(t, reads1.Unlock(in1))
		waits(w)
		require.NoError(t, reads2.Unlock(in2))
		for _, next := range []*waiting{w, w2, r3} {
			held, hold := next.acquired(t)
			if next != r3 {
				waits(r3)
			}
			require.NoError(t, hold.Unlock(held))
		}
		require.Empty(t, f.Keys())
	})
}

// The readers of a client that wait enter with the first of them, as one owner, and with one request.
func TestFakeTimeWaitingReadersShareAGrant(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		readers := f.client(t, nil).NewRWLock("a").Reader()
		first, hold := lock(t, t.Context(), f.client(t, nil).NewRWLock("a").Writer())
		var all []*waiting
		for range 64 {
			all = append(all, begin(t.Context(), readers))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		asked := len(f.scripts("rwask"))
		require.NoError(t, hold.Unlock(first))
		began := time.Now()
		held, of := all[0].acquired(t)
		for _, w := range all[1:] {
			ctx, beside := w.acquired(t)
			require.Equal(t, of.Owner(), beside.Owner())
			defer func() { require.NoError(t, beside.Unlock(ctx)) }()
		}
		require.Less(t, time.Since(began), 5*time.Millisecond)
		require.Len(t, f.scripts("rwask"), asked)
		require.NoError(t, of.Unlock(held))
	})
}

// A reader behind a writer of its own client has a place in the queue, and enters when that writer leaves.
func TestFakeTimeReaderBehindItsOwnClientsWriter(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewRWLock("a")
		held, hold := lock(t, t.Context(), mu.Writer())
		reader := begin(t.Context(), mu.Reader())
		time.Sleep(20 * time.Millisecond) // less than the first pause of a waiter without a place
		synctest.Wait()
		began := time.Now()
		require.NoError(t, hold.Unlock(held))
		inside, reads := reader.acquired(t)
		require.Less(t, time.Since(began), 5*time.Millisecond)
		require.NoError(t, reads.Unlock(inside))
	})
}
