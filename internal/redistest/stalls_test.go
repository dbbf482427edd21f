package redistest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A process that stands still does not look at the clock. In the bubble, Stop has the same
// effect.
func TestStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := WatchStalls()
		time.Sleep(time.Minute)
		require.Zero(t, s.Total())
		s.Stop()
		time.Sleep(3 * time.Second)
		require.InDelta(t, 3*time.Second, s.Total(), float64(2*stallTick), "nothing has looked for 3 s")
		time.Sleep(stallMin / 2)
		require.InDelta(t, 3*time.Second, s.Total(), float64(2*stallTick), "that is no stall")
	})
}
