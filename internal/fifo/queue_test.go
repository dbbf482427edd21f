package fifo_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/fifo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// grant is one that excludes others, or one of several.
type grant struct{ shared bool }

func (g *grant) Exclusive() bool { return !g.shared }

// waiter is what a user of the package knows of a waiter.
type waiter struct {
	fifo.Waiter[waiter, *grant]
	n int
}

type queue = fifo.Queue[waiter, *grant]

func enter(q *queue, n int) *waiter {
	w := &waiter{n: n}
	q.Enter(&w.Waiter, w)
	return w
}

// woken reports whether a waiter that sleeps is woken, once.
func woken(w *waiter) bool {
	select {
	case <-w.C():
		return true
	default:
		return false
	}
}

func TestOrderOfWaiters(t *testing.T) {
	var q queue
	require.Nil(t, q.First())
	all := make([]*waiter, 5)
	for i := range all {
		all[i] = enter(&q, i)
	}
	for _, gone := range []int{2, 0, 4, 3, 1} { // from the middle, from both ends, the last two
		require.Same(t, all[slices.IndexFunc(all, func(w *waiter) bool { return w != nil })], q.First())
		left := slices.DeleteFunc(slices.Clone(all), func(w *waiter) bool { return w == nil })
		require.Equal(t, len(left) > 1, q.Several())
		q.Leave(&all[gone].Waiter)
		all[gone] = nil
		left = slices.DeleteFunc(slices.Clone(all), func(w *waiter) bool { return w == nil })
		require.Equal(t, left, slices.AppendSeq([]*waiter{}, q.All()))
	}
	require.Nil(t, q.First())
	require.Zero(t, q, "nothing is left of them")
	require.Equal(t, 7, enter(&q, 7).n)
	require.Equal(t, 7, q.First().n)
}

// Who comes asks only if nobody waits, and the process has no grant.
func TestFirstState(t *testing.T) {
	var q queue
	first, second := enter(&q, 1), enter(&q, 2)
	require.Equal(t, fifo.Asking, first.State)
	require.Equal(t, fifo.Blocked, second.State)
	q.Leave(&first.Waiter)
	q.Leave(&second.Waiter)
	q.Grants = append(q.Grants, &grant{})
	require.Equal(t, fifo.Blocked, enter(&q, 3).State)
}

func TestGrantsOfTheProcess(t *testing.T) {
	var q queue
	require.Nil(t, q.Holder())
	reader, other, writer := &grant{shared: true}, &grant{shared: true}, &grant{}
	q.Grants = append(q.Grants, reader, other)
	require.Nil(t, q.Holder(), "readers exclude nobody")
	q.Replace(other, writer)
	require.Equal(t, []*grant{reader, writer}, q.Grants)
	require.Same(t, writer, q.Holder())
	newer := &grant{}
	q.Replace(other, newer) // which has ended meanwhile
	require.Same(t, newer, q.Holder(), "the newest")
	q.End(writer)
	q.End(writer)
	require.Equal(t, []*grant{reader, newer}, q.Grants)
	q.End(reader)
	q.End(newer)
	require.Empty(t, q.Grants)
	waits := enter(&q, 1)
	q = q.Emptied()
	require.Nil(t, q.First(), "%v", waits)
	require.Positive(t, cap(q.Grants), "its room is used again")
}

// A waiter can be handed one grant, unless it asks for one itself.
func TestHandingOver(t *testing.T) {
	var q queue
	first, w := enter(&q, 1), enter(&q, 2)
	require.False(t, first.Ready(), "it asks")
	require.True(t, w.Ready())
	require.Nil(t, w.Take())
	g := &grant{}
	w.Give(g)
	require.True(t, woken(w))
	require.False(t, w.Ready(), "it has been handed one")
	require.Same(t, g, w.Take())
	require.Same(t, g, w.Got)
	require.Nil(t, w.Take())
	require.False(t, w.Ready(), "it has one")
	w.Got, w.State = nil, fifo.Queued
	require.True(t, w.Ready(), "that came too late to be held")
}

// A wake-up is kept for a waiter that does not sleep yet. Several are one.
func TestWakeups(t *testing.T) {
	var q queue
	early, late := enter(&q, 1), enter(&q, 2)
	early.Wake()
	early.Wake()
	require.True(t, woken(early))
	require.False(t, woken(early))
	require.False(t, woken(late))
	q.WakeAll()
	q.WakeAll()
	for _, w := range []*waiter{early, late} {
		require.True(t, woken(w))
		require.False(t, woken(w))
	}
}

// BenchmarkLeave is what a waiter costs that comes and goes behind many others.
func BenchmarkLeave(b *testing.B) {
	for _, n := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("behind %d", n), func(b *testing.B) {
			var q queue
			for i := range n {
				enter(&q, i)
			}
			w := new(waiter)
			for b.Loop() {
				q.Enter(&w.Waiter, w)
				q.Leave(&w.Waiter)
				first := q.First()
				q.Leave(&first.Waiter)
				q.Enter(&first.Waiter, first)
			}
		})
	}
}
