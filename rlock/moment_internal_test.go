package rlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// The client converts a time of the server's clock to its own. The result is never later
// than the true time, however long requests take, if the rates of the clocks differ by no
// more than 1 %.
func TestFakeTimeReckoning(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const us = int64(time.Microsecond)
		sent := time.Now()
		m := moment{sent, 5_000_000}
		for _, tt := range []struct {
			after time.Duration // by the server's clock
			want  time.Duration
			ok    bool
		}{
			{0, 0, true},
			{2 * time.Millisecond, 0, true},
			{time.Second, 988 * time.Millisecond, true},
			{30 * time.Second, 30*time.Second - 302*time.Millisecond, true},
			{30*time.Second + time.Microsecond, 0, false},
			{-time.Microsecond, 0, false},
		} {
			at, ok := m.before(m.there + int64(tt.after)/us)
			require.Equal(t, tt.ok, ok, tt.after)
			if ok {
				require.Equal(t, tt.want, at.Sub(sent), tt.after)
			}
		}
		_, ok := moment{}.before(5_000_000)
		require.False(t, ok, "nothing is known of the server's clock")
	})
}
