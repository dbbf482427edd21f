package watchdog

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// wallAhead returns t with the wall clock d further on, in whole seconds, and
// the monotonic clock as it was: what time.Now returns after a suspension. The
// seconds of a time with a monotonic reading begin at bit 30 of its first word.
func wallAhead(tb testing.TB, t time.Time, d time.Duration) time.Time {
	tb.Helper()
	moved := t
	*(*uint64)(unsafe.Pointer(&moved)) += uint64(d/time.Second) << 30
	require.Zero(tb, moved.Sub(t), "the layout of time.Time has changed")
	require.Equal(tb, d, moved.Round(0).Sub(t.Round(0)), "the layout of time.Time has changed")
	return moved
}

func TestRemainingAsksBothClocks(t *testing.T) {
	now := time.Now()
	until := Until(now, 30*time.Second)
	require.Positive(t, remaining(now.Add(time.Second), until))
	require.Negative(t, remaining(wallAhead(t, now.Add(time.Second), time.Minute), until), "suspended")
	require.Positive(t, remaining(wallAhead(t, now.Add(time.Second), -time.Hour), until), "wall clock set back")
	require.Negative(t, remaining(wallAhead(t, now.Add(time.Minute), -time.Hour), until), "wall clock set back, window over")
	require.Positive(t, remaining(now.Round(0), now.Add(1)), "without a monotonic reading")
}

// suspendable is a scheduler on a machine that can be suspended, with the
// number of renewals it has sent.
type suspendable struct {
	*Scheduler[string]
	suspended atomic.Int64 // nanoseconds
	renewals  atomic.Int64
}

// onSuspendable runs test in a bubble. Times in a bubble have no monotonic
// reading, so the machine's are counted from one taken outside.
func onSuspendable(t *testing.T, test func(*testing.T, *suspendable)) {
	t.Helper()
	boot := time.Now()
	redistest.Bubble(t, func(t *testing.T) {
		m, start := new(suspendable), time.Now()
		m.Scheduler = New(func(_ context.Context, due []Renewal[string]) []error {
			m.renewals.Add(int64(len(due)))
			return make([]error, len(due))
		}, Options{})
		m.now = func() time.Time {
			return wallAhead(t, boot.Add(time.Since(start)), time.Duration(m.suspended.Load()))
		}
		defer func() { require.NoError(t, m.Close(context.Background())) }()
		test(t, m)
	})
}

// take adds a lease taken this moment; lost returns why it was lost.
func (m *suspendable) take(t *testing.T, d time.Duration, fixed bool) (e *Entry[string], lost func() error) {
	t.Helper()
	cause := make(chan error, 1)
	e, err := m.Add(Lease[string]{Duration: d, Sent: m.now(), Fixed: fixed, OnLost: func(err error) { cause <- err }})
	require.NoError(t, err)
	return e, func() error {
		select {
		case err := <-cause:
			return err
		default:
			return nil
		}
	}
}

func TestSuspensionBeyondTheWindowLosesWithinASecond(t *testing.T) {
	onSuspendable(t, func(t *testing.T, m *suspendable) {
		_, renewed := m.take(t, 30*time.Second, false)
		_, fixed := m.take(t, 30*time.Second, true)
		time.Sleep(1500 * time.Millisecond)
		m.suspended.Store(int64(time.Minute))
		short, _ := m.take(t, 6*time.Second, false) // due before the others by the monotonic clock

		time.Sleep(time.Second)
		synctest.Wait()
		require.ErrorIs(t, renewed(), ErrLapsed)
		require.ErrorIs(t, fixed(), ErrLapsed)
		require.True(t, short.Check())
	})
}

func TestCheckSeesASuspensionAtOnce(t *testing.T) {
	onSuspendable(t, func(t *testing.T, m *suspendable) {
		e, lost := m.take(t, 30*time.Second, false)
		time.Sleep(time.Second)
		require.True(t, e.Check())
		m.suspended.Store(int64(time.Minute))
		require.False(t, e.Check())
		require.ErrorIs(t, lost(), ErrLapsed)
		require.False(t, e.Stop())
	})
}

func TestSuspensionWithinTheWindowBringsRenewalForward(t *testing.T) {
	onSuspendable(t, func(t *testing.T, m *suspendable) {
		e, lost := m.take(t, 30*time.Second, false)
		time.Sleep(1500 * time.Millisecond)
		m.suspended.Store(int64(15 * time.Second))

		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, int64(1), m.renewals.Load())
		require.NoError(t, lost())
		require.Greater(t, remaining(m.now(), e.Until()), 28*time.Second)
	})
}

func TestWallClockSetBackChangesNothing(t *testing.T) {
	onSuspendable(t, func(t *testing.T, m *suspendable) {
		_, renewed := m.take(t, 30*time.Second, false)
		_, fixed := m.take(t, 30*time.Second, true)
		time.Sleep(time.Second)
		m.suspended.Store(int64(-time.Hour))

		time.Sleep(25697 * time.Millisecond)
		synctest.Wait()
		require.NoError(t, fixed())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.ErrorIs(t, fixed(), ErrLapsed)

		time.Sleep(10 * time.Minute)
		require.NoError(t, renewed())
	})
}

// The wall clock is ahead while the queue is put in order, and set right again:
// the queue then holds a time that comes too early.
func TestWallClockSetForwardAndBack(t *testing.T) {
	onSuspendable(t, func(t *testing.T, m *suspendable) {
		e, _ := m.take(t, 30*time.Second, true)
		m.suspended.Store(int64(20 * time.Second))
		time.Sleep(2 * time.Second) // 4.698s are left
		m.suspended.Store(0)
		time.Sleep(10 * time.Second)
		require.True(t, e.Check())
	})
}

// A lease taken while the wall clock is behind sees it set right, which is the
// same as a suspension, although the clocks then differ as they first did.
func TestWallClockSetBackAndForward(t *testing.T) {
	onSuspendable(t, func(t *testing.T, m *suspendable) {
		m.take(t, 30*time.Second, false)
		m.suspended.Store(int64(-20 * time.Second))
		time.Sleep(2 * time.Second)
		_, lost := m.take(t, 30*time.Second, true)
		m.suspended.Store(0)
		time.Sleep(7 * time.Second) // it lapses after 6.698s
		synctest.Wait()
		require.ErrorIs(t, lost(), ErrLapsed)
	})
}
