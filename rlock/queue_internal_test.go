package rlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// The context of a whole queue ends. Whoever becomes the head by that must
// neither ask the server any more nor take a busy lock for a silent server.
func TestFakeTimeQueueLeavesAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		acquire func(ctx context.Context) (lua.Reply, error)
		want    error
	}{
		"busy": {func(context.Context) (lua.Reply, error) {
			time.Sleep(time.Millisecond)
			return lua.Reply{TTL: time.Hour}, nil
		}, ErrNotAcquired},
		"silent": {func(ctx context.Context) (lua.Reply, error) { return lua.Reply{}, hang(ctx) }, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				_, l, f := newFake(t)
				f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) { return tt.acquire(ctx) }
				leave := errors.New("leave")
				ctx, cancel := context.WithCancelCause(t.Context())
				errs := make(chan error, 1000)
				for range cap(errs) {
					go func() {
						_, _, err := l.Lock(ctx)
						errs <- err
					}()
				}
				sleepLong(2500 * time.Millisecond) // the head has seen how it stands
				require.Empty(t, errs)
				before := f.times("acquire")
				cancel(leave)
				synctest.Wait()
				require.Len(t, errs, cap(errs), "all leave at the same instant")
				other := make(map[string]int)
				for range cap(errs) {
					err := <-errs
					assert.ErrorIs(t, err, context.Canceled)
					assert.ErrorIs(t, err, leave)
					if !errors.Is(err, tt.want) {
						other[err.Error()]++
					}
				}
				assert.Empty(t, other, "all should be: %v", tt.want)
				assert.Equal(t, before, f.times("acquire"), "attempts for callers that have left")
			})
		})
	}
}

// The waiters of a busy lock end one after another, faster than the server
// answers: each becomes the head, asks, and is gone before it is refused. The
// server is well, and none of them may say otherwise.
func TestFakeTimeBusyIsNotUnavailable(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onAcquire = func(context.Context, int) (lua.Reply, error) {
			time.Sleep(time.Millisecond)
			return lua.Reply{TTL: time.Hour}, nil
		}
		errs := make(chan error, 100)
		for i := range cap(errs) {
			ctx := within(t, time.Second+time.Duration(i)*100*time.Microsecond)
			go func() {
				_, _, err := l.Lock(ctx)
				errs <- err
			}()
		}
		wrong := make(map[string]int)
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				wrong[err.Error()]++
			}
		}
		require.Empty(t, wrong)
	})
}

// Waiters leave a line from its ends and from the middle. The first is always the one that came before all others.
func TestOrderOfWaiters(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		_, l, f := newFake(t)
		a, first := f.enter(t, l, lua.Reply{TTL: time.Hour})
		all := []*waiter{first}
		for range 4 {
			all = append(all, behind(t, l))
		}
		q := a.queue
		for _, gone := range []int{2, 0, 4, 3, 1} {
			all[gone].leave()
			all[gone] = nil
			left, queued := slices.DeleteFunc(slices.Clone(all), func(w *waiter) bool { return w == nil }), []*waiter{}
			for w := a.first; w != nil; w = w.next {
				queued = append(queued, w)
			}
			require.Equal(t, left, queued)
			if len(left) > 0 {
				require.Same(t, left[len(left)-1], a.last)
			}
		}
		require.Nil(t, a.first)
		require.Nil(t, a.last)
		require.Empty(t, l.queues.byKey)
		require.Equal(t, []*queue{q}, l.queues.spare, "it is used again")
	})
}

// The holder is the newest grant that excludes others.
func TestHolderOfAQueue(t *testing.T) {
	reader, writer, newer := &grant{}, &grant{}, &grant{}
	writer.exclusives.Store(1)
	newer.exclusives.Store(1)
	require.Nil(t, new(queue).holder())
	require.Nil(t, (&queue{grants: []*grant{reader}}).holder(), "readers exclude nobody")
	require.Same(t, newer, (&queue{grants: []*grant{writer, newer, reader}}).holder())
}

// A waiter comes and goes behind many others.
func BenchmarkLeave(b *testing.B) {
	for _, n := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("behind %d", n), func(b *testing.B) {
			rdb := redis.NewClient(&redis.Options{})
			defer rdb.Close()
			c, err := New(rdb, nil)
			require.NoError(b, err)
			l := c.NewLock("a")
			enter := func() *waiter {
				w := &waiter{lock: l, ctx: b.Context(), since: time.Now()}
				_, _, _ = l.queues.enter(w)
				return w
			}
			for range n + 1 { // the first is not refused yet
				enter()
			}
			for b.Loop() {
				enter().leave()
			}
		})
	}
}
