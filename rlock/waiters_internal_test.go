package rlock

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWaitersKeepTheirOrder(t *testing.T) {
	var ws waiters
	all := make([]*waiter, 5)
	for i := range all {
		all[i] = new(waiter)
		ws.push(all[i])
	}
	for _, gone := range []int{2, 0, 4, 3, 1} { // from the middle, from both ends, the last two
		ws.remove(all[gone])
		all[gone] = nil
		left := slices.DeleteFunc(slices.Clone(all), func(w *waiter) bool { return w == nil })
		require.Equal(t, left, slices.AppendSeq([]*waiter{}, ws.all()))
		require.Equal(t, len(left), ws.n)
	}
	require.Zero(t, ws)
	ws.push(new(waiter))
	require.NotNil(t, ws.first)
}

// BenchmarkLeave is what a waiter costs that comes and goes behind many others.
func BenchmarkLeave(b *testing.B) {
	for _, n := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("behind %d", n), func(b *testing.B) {
			var ws waiters
			for range n {
				ws.push(new(waiter))
			}
			first, w := ws.first, new(waiter)
			for b.Loop() {
				ws.push(w)
				ws.remove(w)
				ws.remove(first)
				ws.push(first)
				first = ws.first
			}
		})
	}
}
