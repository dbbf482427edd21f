package watchdog_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/watchdog"
)

func TestLossAtTheExactInstant(t *testing.T) {
	tests := []struct {
		name   string
		answer func(release <-chan struct{}) func(context.Context, int, string) error
		cause  error
	}{
		{"errors", func(<-chan struct{}) func(context.Context, int, string) error { return away }, errAway},
		{"hangs", func(<-chan struct{}) func(context.Context, int, string) error { return hang }, context.DeadlineExceeded},
		{"hangs for good", func(release <-chan struct{}) func(context.Context, int, string) error {
			return func(context.Context, int, string) error { <-release; return nil }
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				release := make(chan struct{})
				d := newDog(t, watchdog.Options{}, tt.answer(release))
				defer close(release)
				e, lost := d.take("a", lease, false)

				time.Sleep(lapse - 1)
				synctest.Wait()
				lost.requireNone(t)
				require.True(t, e.Check())
				require.Equal(t, d.start.Add(window), e.Until())

				time.Sleep(time.Minute)
				synctest.Wait()
				lost.requireOne(t, lapse, watchdog.ErrLapsed)
				if tt.cause != nil {
					lost.requireOne(t, lapse, tt.cause)
				}
				require.False(t, e.Stop())
				require.False(t, e.Check())
				for _, at := range d.times() {
					require.Less(t, at, lapse, "no attempt after the loss")
				}
			})
		})
	}
}

func TestRefusedIsLostAtOnce(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, func(_ context.Context, _ int, key string) error {
			time.Sleep(20 * time.Millisecond)
			if key == "gone" {
				return watchdog.ErrRefused
			}
			return nil
		})
		_, gone := d.take("gone", lease, false)
		_, kept := d.take("kept", 3*lease, false) // not in one batch
		time.Sleep(time.Minute)
		synctest.Wait()
		kept.requireNone(t)
		calls := d.seen()
		first := slices.IndexFunc(calls, func(c call) bool { return c.due[0].Key == "gone" })
		gone.requireOne(t, calls[first].at+20*time.Millisecond, watchdog.ErrRefused)
	})
}

func TestFixedLapsesUnrenewed(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		_, lost := d.take("a", lease, true)
		time.Sleep(time.Minute)
		synctest.Wait()
		lost.requireOne(t, lapse, watchdog.ErrLapsed)
		require.Empty(t, d.seen())
	})
}

func TestAddRefusesALapsedLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		for _, tt := range []struct {
			length, age time.Duration
			want        error
		}{
			{lease, lapse - 1, nil},
			{lease, lapse, watchdog.ErrLapsed},
			{0, 0, watchdog.ErrLapsed},
			{-time.Second, 0, watchdog.ErrLapsed},
		} {
			e, err := d.Add(watchdog.Lease[string]{Duration: tt.length, Sent: time.Now().Add(-tt.age)})
			require.ErrorIs(t, err, tt.want)
			require.Equal(t, tt.want == nil, e != nil)
		}
	})
}

// odd is an error that looks at the entry it is about.
type odd struct{ look func() }

func (o odd) Error() string {
	o.look()
	return "odd"
}

func (o odd) Is(error) bool {
	o.look()
	return false
}

// No mutex is held while methods of an error are called.
func TestErrorThatUsesTheScheduler(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var entry atomic.Pointer[watchdog.Entry[string]]
		seen := make(chan time.Duration, 1)
		d := newDog(t, watchdog.Options{}, func(_ context.Context, call int, _ string) error {
			if call > 1 {
				return nil
			}
			return odd{func() { seen <- entry.Load().Asks() }}
		})
		e, lost := d.take("a", lease, false)
		entry.Store(e)
		require.Equal(t, lease, <-seen)
		time.Sleep(time.Minute)
		lost.requireNone(t)
	})
	redistest.Bubble(t, func(t *testing.T) {
		var entry atomic.Pointer[watchdog.Entry[string]]
		d := newDog(t, watchdog.Options{}, func(context.Context, int, string) error {
			return odd{func() { entry.Load().Asks() }}
		})
		e, lost := d.take("a", lease, false)
		entry.Store(e)
		time.Sleep(time.Minute)
		lost.requireOne(t, lapse, watchdog.ErrLapsed)
		require.ErrorContains(t, e.Err(), "the lease is over; last renewal: odd")
	})
}

// A negative length is none, and a negative Renew is not set, whenever Sent is.
func TestAddTakesNegativeLengths(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		e, err := d.Add(watchdog.Lease[string]{Duration: lease, Renew: -time.Second, Sent: time.Now()})
		require.NoError(t, err)
		require.Equal(t, lease, e.Asks())
		e, err = d.Add(watchdog.Lease[string]{Duration: -lease, Renew: -lease, Sent: time.Now().Add(time.Hour)})
		require.NoError(t, err)
		require.Zero(t, e.Asks())
		require.Equal(t, watchdog.Until(time.Now().Add(time.Hour), 0), e.Until())
		e.Stop()
	})
}

func TestStopIsFinal(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, func(context.Context, int, string) error {
			time.Sleep(time.Second)
			return nil
		})
		e, lost := d.take("a", lease, false)
		for len(d.seen()) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		require.True(t, e.Stop()) // a renewal is under way
		require.False(t, e.Stop())
		require.False(t, e.Check())
		time.Sleep(time.Minute)
		require.Len(t, d.seen(), 1)
		require.Equal(t, d.start.Add(window), e.Until(), "a renewal counted after Stop")
		lost.requireNone(t)
	})
}

// Every entry has exactly one end, although Stop, Check, the loop and a refusal
// meet in one instant.
func TestOneEnd(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const length = 100 * time.Millisecond
		d := newDog(t, watchdog.Options{}, func(ctx context.Context, _ int, _ string) error {
			<-ctx.Done() // the bound of the last attempts is the loss point
			return watchdog.ErrRefused
		})
		for range 300 {
			d.start = time.Now()
			e, lost := d.take("a", length, false)
			d.mu.Lock()
			d.calls = nil
			d.mu.Unlock()
			var stopped bool
			var race sync.WaitGroup
			at := 87 * time.Millisecond // 100 − 1 − 2 − 10
			if calls := d.seen(); len(calls) > 0 {
				at = calls[0].deadline
			}
			race.Go(func() { time.Sleep(at); stopped = e.Stop() })
			race.Go(func() { time.Sleep(at); e.Check() })
			race.Wait()
			time.Sleep(length)
			lost.mu.Lock()
			ends := len(lost.errs)
			lost.mu.Unlock()
			if stopped {
				ends++
			}
			require.Equal(t, 1, ends)
		}
	})
}

func TestLateLoopLooksAtWindowsFirst(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		d.stall(20 * time.Second)
		_, over := d.take("over", 20*time.Second, false)
		_, open := d.take("open", lease, false)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		over.requireOne(t, 20*time.Second, watchdog.ErrLapsed)
		open.requireNone(t)
		require.Len(t, d.seen(), 1)
		require.Equal(t, call{20 * time.Second, 25 * time.Second, []watchdog.Renewal[string]{{Key: "open", Duration: lease, Before: lease}}}, d.seen()[0])
	})
}

func TestCheckDoesNotWaitForTheLoop(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		d.stall(time.Minute)
		e, lost := d.take("a", lease, false)
		time.Sleep(lapse - 1)
		require.True(t, e.Check())
		time.Sleep(time.Nanosecond)
		require.False(t, e.Check())
		lost.requireOne(t, lapse, watchdog.ErrLapsed)
		require.False(t, e.Check())
		time.Sleep(time.Minute)
		lost.requireOne(t, lapse)
		require.Empty(t, d.seen())
	})
}

func TestCallbacksRunWithoutMutex(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		other, _ := d.take("other", lease, false)
		done := false
		_, err := d.Add(watchdog.Lease[string]{Duration: time.Second, Sent: time.Now(), Fixed: true, OnLost: func(error) {
			d.take("another", lease, false)
			done = other.Check() && other.Stop()
		}})
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, done)
	})
}
