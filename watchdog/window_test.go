package watchdog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/watchdog"
)

func TestWindow(t *testing.T) {
	tests := []struct{ lease, window, guard time.Duration }{
		{30 * time.Second, 29698 * time.Millisecond, 3 * time.Second},
		{time.Second, 988 * time.Millisecond, 100 * time.Millisecond},
		{10 * time.Millisecond, 7900 * time.Microsecond, 2 * time.Millisecond},
		{0, -2 * time.Millisecond, 2 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.lease.String(), func(t *testing.T) {
			sent := time.Now()
			require.Equal(t, sent.Add(tt.window), watchdog.Until(sent, tt.lease))
			require.Equal(t, tt.guard, watchdog.Guard(tt.lease))
		})
	}
}
