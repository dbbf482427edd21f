package watchdog_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/watchdog"
)

var (
	errLimit = errors.New("the limit is over")
	errLater = errors.New("the later limit is over")
)

// A limit ends an entry at its instant, however well the lease is renewed, and no renewal begins after it.
func TestLimit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit time.Duration
		fixed bool
	}{
		{"while the lease is renewed", 10 * time.Minute, false},
		{"before the first renewal", time.Second, false},
		{"of a lease that is not renewed", time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				d := newDog(t, watchdog.Options{}, well)
				e, lost := d.take("a", lease, tt.fixed)
				e.Limit(d.start.Add(tt.limit), errLimit)
				time.Sleep(tt.limit - 1)
				synctest.Wait()
				lost.requireNone(t)
				require.True(t, e.Check())
				require.Equal(t, tt.limit > lease, len(d.seen()) > 0)
				time.Sleep(time.Minute)
				synctest.Wait()
				lost.requireOne(t, tt.limit, errLimit)
				require.Equal(t, errLimit, e.Err())
				require.False(t, e.Stop())
				for _, at := range d.times() {
					require.Less(t, at, tt.limit)
				}
			})
		})
	}
}

// A limit without a cause is one as well.
func TestLimitWithoutCause(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		e, lost := d.take("a", lease, false)
		e.Limit(d.start.Add(time.Second), nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		lost.requireOne(t, time.Second, watchdog.ErrLapsed)
	})
}

// The lease is over before the limit: then that is the reason.
func TestLimitBehindTheWindow(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, away)
		e, lost := d.take("a", lease, false)
		e.Limit(d.start.Add(lease), errLimit)
		time.Sleep(time.Minute)
		synctest.Wait()
		lost.requireOne(t, lapse, watchdog.ErrLapsed)
	})
}

// Each further limit counts from the moment at which it was set, if it is later.
func TestLimitMovesForward(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		e, lost := d.take("a", lease, false)
		e.Limit(d.start.Add(time.Minute), errLimit)
		time.Sleep(time.Minute - 1)
		e.Limit(d.start.Add(time.Hour), errLater)
		e.Limit(d.start.Add(time.Minute), errLimit) // never backward
		time.Sleep(time.Hour)
		synctest.Wait()
		lost.requireOne(t, time.Hour, errLater)
		e.Limit(d.start.Add(24*time.Hour), errLimit) // of an entry that has ended: no effect
		require.False(t, e.Check())
		require.Equal(t, errLater, e.Err())
	})
}

// A limit that comes after the end of its entry leaves the queue as it is.
func TestLimitOfAnEndedEntry(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		e, lost := d.take("a", lease, false)
		require.True(t, e.Stop())
		e.Limit(d.start.Add(time.Second), errLimit)
		time.Sleep(time.Minute)
		synctest.Wait()
		lost.requireNone(t)
		require.NoError(t, e.Err())
	})
}

// The goroutine of the scheduler may be late: Check sees the end of the limit itself.
func TestCheckDoesNotWaitForTheLimit(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		d.stall(10 * time.Second)
		e, lost := d.take("a", lease, false)
		e.Limit(d.start.Add(5*time.Second), errLimit)
		time.Sleep(5 * time.Second)
		require.False(t, e.Check())
		lost.requireOne(t, 5*time.Second, errLimit)
	})
}

// The next holder has no limit until it sets its own.
func TestPassGivesNoLimit(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		e, lost := d.take("a", lease, false)
		e.Limit(d.start.Add(time.Second), errLimit)
		next, ok := e.Pass("a", func(error) { t.Error("lost") }, time.Now(), 0, lease)
		require.True(t, ok)
		time.Sleep(time.Hour)
		synctest.Wait()
		lost.requireNone(t)
		require.True(t, next.Check())
		require.True(t, next.Stop())
	})
}
