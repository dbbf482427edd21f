package watchdog

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever is added, moved and removed, the earliest entry is at the top, and each knows
// its index.
func TestQueueInAnyOrder(t *testing.T) {
	start := time.Now()
	rapid.Check(t, func(t *rapid.T) {
		at := func() time.Time { return start.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "at"))) }
		var q queue[int]
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, 2*len(q)).Draw(t, "entry")
			switch {
			case i >= len(q):
				q = append(q, &Entry[int]{at: at(), index: len(q)})
				q.fix(len(q) - 1)
			case rapid.Bool().Draw(t, "removed"):
				gone := q[i]
				q.remove(i)
				require.False(t, slices.Contains(q, gone))
			default:
				q[i].at = at()
				q.fix(i)
			}
			for i, e := range q {
				require.Equal(t, i, e.index)
				require.False(t, e.at.Before(q[(i-1)/2].at), "%d is before the one above it", i)
			}
		}
	})
}
