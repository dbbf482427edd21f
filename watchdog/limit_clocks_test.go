package watchdog

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A suspension within the window, which the monotonic clock does not show, counts for a limit.
func TestSuspensionBeyondALimit(t *testing.T) {
	over := errors.New("over")
	onSuspendable(t, func(t *testing.T, m *suspendable) {
		seen, lost := m.take(t, 30*time.Second, false)
		unseen, later := m.take(t, 30*time.Second, false)
		for _, e := range []*Entry[string]{seen, unseen} {
			e.Limit(m.now().Add(10*time.Second), over)
		}
		time.Sleep(1500 * time.Millisecond)
		m.suspended.Store(int64(9 * time.Second))
		require.False(t, seen.Check())
		require.Equal(t, over, lost())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, over, later())

		both, lost := m.take(t, 30*time.Second, false)
		both.Limit(m.now().Add(10*time.Second), over)
		m.suspended.Add(int64(time.Minute))
		require.False(t, both.Check())
		require.ErrorIs(t, lost(), ErrLapsed, "the lease was over as well, and that is worse")
	})
}
