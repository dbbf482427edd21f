package interop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whose release a waiter has slept through, which needs no JVM.
func TestMissed(t *testing.T) {
	base := time.Now()
	visit := func(side string, asked, acquired, released int) visited {
		at := func(s int) time.Time { return base.Add(time.Duration(s) * time.Second) }
		return visited{section: section{side: side, asked: at(asked), acquired: at(acquired), released: at(released), done: at(released)}}
	}
	waiter := visit("waiter", 1, 40, 41)
	all := []visited{
		waiter, visit("awake meanwhile", 30, 33, 35), visit("before", 0, 0, 0), visit("first", 0, 0, 2), visit("missed", 2, 3, 4), visit("after", 40, 42, 50),
	}
	last, asleep := missed(all, waiter)
	require.Equal(t, "missed", last.side)
	require.Equal(t, 31*time.Second, asleep)
	last, asleep = missed(all[1:2], waiter)
	require.Equal(t, "awake meanwhile", last.side)
	require.Equal(t, 5*time.Second, asleep)
	_, asleep = missed(all[:1], waiter)
	require.Zero(t, asleep)
}
