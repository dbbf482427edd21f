package rlock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// A hand-over is the release, and nothing that the new holder sends.
func TestFairHandoverIsOneCommand(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	here, there := newClient(t, srv, nil), newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), here.NewFairLock("a", rlock.WithFencing()))
	w := begin(t.Context(), there.NewFairLock("a", rlock.WithFencing()))
	awaitHearing(t, rdb, "a", 1)
	commands := sent(t, srv, func() {
		require.NoError(t, hold.Unlock(held))
		w.acquired(t)
	})
	require.Equal(t, []string{"evalsha"}, commands[:1])
	require.NotContains(t, commands[1:], "evalsha", "unless it is the first renewal: see below")
	next, nextHold := w.acquired(t)
	require.Greater(t, nextHold.Token(), hold.Token())
	ttl := rdb.PTTL(t.Context(), "a").Val()
	require.LessOrEqual(t, ttl, longestClaim, "a claim")
	require.True(t, time.Until(nextHold.Until()) < ttl)
	redistest.Eventually(t, "the first renewal makes it the full lease", func() bool {
		return rdb.PTTL(t.Context(), "a").Val() > longestClaim
	})
	redistest.Eventually(t, "and the holder knows", func() bool {
		return time.Until(nextHold.Until()) > longestClaim
	})
	require.NoError(t, next.Err())
	require.NoError(t, nextHold.Unlock(next))
}

// Unlock and the next Lock are all that a hand-over costs, with few waiters and
// with many.
func TestFairCommandsPerHandover(t *testing.T) {
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	for _, waiters := range []int{8, 64} {
		t.Run(strconv.Itoa(waiters), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			var mutex sync.Mutex
			taken := make([]int, waiters)
			turns := func() []int {
				mutex.Lock()
				defer mutex.Unlock()
				return slices.Clone(taken)
			}
			total := func() (n int) {
				for _, k := range turns() {
					n += k
				}
				return n
			}
			for i := range waiters {
				wg.Go(func() {
					for {
						held, hold, err := mu.Lock(ctx)
						if err != nil {
							return
						}
						mutex.Lock()
						taken[i]++
						mutex.Unlock()
						if err := hold.Unlock(held); err != nil {
							t.Error(err)
						}
					}
				})
			}
			// From then on everybody is in line, or about to be.
			redistest.Eventually(t, "everybody had a turn", func() bool { return slices.Min(turns()) > 0 })
			start := turns()
			before, first := total(), srv.CommandCalls(t)["evalsha"]
			redistest.Eventually(t, "everybody had ten turns, or most more", func() bool {
				return total() > before+10*waiters && slices.Min(since(turns(), start)) >= 5 // a goroutine may stand still on a busy machine
			})
			last, after := srv.CommandCalls(t)["evalsha"], total()
			cancel()
			wg.Wait()
			// One of the two figures is always taken a little earlier than the other.
			require.LessOrEqual(t, float64(last-first)/float64(after-before), 2.1+float64(2)/float64(10*waiters))
		})
	}
}

// since returns how many turns each has had since then.
func since(turns, then []int) []int {
	for i := range turns {
		turns[i] -= then[i]
	}
	return turns
}

// Goroutines and subscriptions do not grow with the waiters, but for their own.
func TestFairManyWaiters(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	held, hold := lock(t, t.Context(), mu)
	before := redistest.Goroutines()
	ctx, cancel := context.WithCancel(t.Context())
	const waiters = 300
	all := make([]*waiting, waiters)
	for i := range all {
		all[i] = begin(ctx, mu)
	}
	awaitQueue(t, rdb, "a", waiters)
	redistest.Eventually(t, "they rest", func() bool { return redistest.Goroutines() < before+waiters+10 })
	redistest.Eventually(t, "they listen to one channel", func() bool {
		return len(rdb.PubSubChannels(t.Context(), "rlock_channel:*").Val()) == 1
	})
	cancel()
	for _, w := range all {
		<-w.done
		if !errors.Is(w.err, rlock.ErrNotAcquired) {
			require.ErrorIs(t, w.err, context.Canceled)
		}
	}
	awaitQueue(t, rdb, "a", 0)
	require.NoError(t, hold.Unlock(held))
}
