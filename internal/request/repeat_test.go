package request

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// A request is given up when nobody was answered for as long as Total, not earlier.
func TestFakeTimeTotalCountsFromTheNewestAnswer(t *testing.T) {
	const total = 5 * time.Second
	for name, others := range map[string]time.Duration{"nobody": 0, "somebody": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				start := time.Now()
				p := Policy{Attempt: time.Second, Total: total, Classify: Classify, Report: func(error) time.Time {
					if time.Since(start) < others {
						return time.Now()
					}
					return start.Add(others)
				}}
				a := Do(t.Context(), p, func(context.Context, Options, func(int, error)) (int, bool, error) {
					return 0, false, ErrNoAnswer
				}, nil)
				require.Equal(t, Exhausted, a.End)
				require.True(t, a.Doubt)
				require.True(t, a.Lost)
				require.InDelta(t, others+total, time.Since(start), float64(time.Second))
			})
		})
	}
}
