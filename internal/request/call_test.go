package request

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// all are the calls of a queue in their order.
func (q *calls) all() (all []*Call) {
	for c := q.first; c != nil; c = c.next {
		all = append(all, c)
	}
	return all
}

// A call can leave its queue from anywhere, and the others keep their order.
func TestCallsKeepTheirOrder(t *testing.T) {
	var q calls
	var want []*Call
	for range 5 {
		want = append(want, new(Call))
		q.push(want[len(want)-1])
	}
	for _, n := range []int{2, 0, 2, 1, 0} { // from the middle, from both ends, the last two
		gone := want[n]
		q.remove(gone)
		want = slices.Delete(want, n, n+1)
		require.Equal(t, len(want), q.n)
		require.Nil(t, gone.in)
		got := q.all()
		require.Len(t, got, len(want))
		for i := range want {
			require.Same(t, want[i], got[i])
			require.Same(t, &q, got[i].in)
		}
	}
	require.Zero(t, q)
	c := new(Call)
	q.push(c)
	require.Same(t, c, q.first)
	require.Same(t, c, q.last)
}

// One call makes several requests, one after the other, each with the outcome of its own.
func TestFakeTimeCallIsMadeAgain(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		c := g.Call(Options{Bound: time.Second})
		defer c.Put()
		require.ErrorIs(t, c.Process(t.Context(), redis.NewCmd(t.Context(), "bad")), errBad)
		require.NoError(t, c.Process(t.Context(), redis.NewCmd(t.Context(), "good")))
		l.take(time.Minute, 0)
		require.Equal(t, ErrNoAnswer, c.Process(t.Context(), redis.NewCmd(t.Context(), "slow")))
		time.Sleep(time.Hour)
		idle(t, g)
	})
}

// A call that was taken back knows nothing of its request: neither the context of its caller nor the
// command is kept. One whose caller has left is not taken back, as its batch still has it.
func TestFakeTimeCallIsTakenBack(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		c := g.Call(Options{Key: "a", Bound: time.Second, Late: func(error) {}})
		require.NoError(t, c.Process(t.Context(), redis.NewCmd(t.Context(), "good")))
		c.Put()
		require.Nil(t, c.ctx)
		require.Nil(t, c.cmd)
		require.Nil(t, c.batch)
		require.Zero(t, c.opts.Key)
		require.Nil(t, c.opts.Late)

		l.take(least/2, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		heard := make(chan error, 2)
		left := g.Call(Options{Bound: time.Minute, Late: func(err error) { heard <- err }})
		require.Equal(t, ErrAbandoned, left.Process(ctx, redis.NewCmd(ctx, "good")))
		left.Put()
		for range 10 {
			require.NotSame(t, left, g.Call(Options{}))
		}
		require.Equal(t, ErrUnread, <-heard)
		idle(t, g)
	})
}

// A caller that has left before its call is queued sends nothing.
func TestFakeTimeCallOfACallerThatHasLeft(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 100 {
			c := g.Call(Options{Bound: time.Second})
			require.Equal(t, ErrNotSent, c.Process(ctx, redis.NewCmd(ctx, "late")))
			c.Put()
		}
		idle(t, g)
		require.False(t, l.asked("late"))
	})
}
