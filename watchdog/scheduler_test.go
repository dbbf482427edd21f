package watchdog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/watchdog"
)

func TestTenThousandLeases(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const n = 10_000
		before := redistest.Goroutines()
		var inside, most atomic.Int64
		start := time.Now()
		perSecond := make([]atomic.Int64, 121)
		var calls, renewals atomic.Int64
		s := watchdog.New(func(_ context.Context, due []watchdog.Renewal[int]) []error {
			calls.Add(1)
			renewals.Add(int64(len(due)))
			perSecond[time.Since(start)/time.Second].Add(1)
			if now := inside.Add(1); now > most.Load() {
				most.Store(now)
			}
			defer inside.Add(-1)
			time.Sleep(5 * time.Millisecond)
			return make([]error, len(due))
		}, watchdog.Options{})
		defer s.Close(context.Background())

		var lost atomic.Int64
		for i := range n {
			_, err := s.Add(watchdog.Lease[int]{Key: i, Duration: lease, Sent: start, OnLost: func(error) { lost.Add(1) }})
			require.NoError(t, err)
		}
		require.LessOrEqual(t, redistest.Goroutines(), before+1)
		time.Sleep(2 * time.Minute)
		synctest.Wait()

		require.Zero(t, lost.Load())
		require.GreaterOrEqual(t, renewals.Load(), int64(n*11))
		require.GreaterOrEqual(t, renewals.Load()/calls.Load(), int64(50), "batches must be nearly full")
		require.LessOrEqual(t, most.Load(), int64(30), "a batch under way has a goroutine")
		for second := range perSecond {
			require.LessOrEqual(t, perSecond[second].Load(), int64(40), "second %d", second)
		}
	})
}

// Ten thousand renewals that were all late go out at once, but are spread again.
func TestSpreadAgainAfterAStall(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		d.stall(15 * time.Second)
		for range 1000 {
			d.take("a", lease, false)
		}
		time.Sleep(26 * time.Second)
		synctest.Wait()
		sent := make(map[time.Duration]int)
		for _, c := range d.seen() {
			sent[c.at.Truncate(time.Second)] += len(c.due)
		}
		require.Equal(t, 1000, sent[15*time.Second])
		delete(sent, 15*time.Second)
		require.GreaterOrEqual(t, len(sent), 5)
		for second, n := range sent {
			require.Less(t, n, 500, "at %v", second)
		}
	})
}

func TestEqualKeysAreTwoEntries(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		one, _ := d.take("a", lease, false)
		two, lost := d.take("a", lease, false)
		require.True(t, one.Stop())
		time.Sleep(time.Minute)
		require.True(t, two.Check())
		lost.requireNone(t)
	})
}

func TestShortLeaseWakesTheLoop(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		d.take("long", lease, false)
		time.Sleep(1500 * time.Millisecond) // the loop sleeps until 2s
		_, lost := d.take("short", 60*time.Millisecond, false)
		_, fixed := d.take("fixed", 100*time.Millisecond, true)
		time.Sleep(400 * time.Millisecond)
		lost.requireNone(t)
		fixed.requireOne(t, 1587*time.Millisecond, watchdog.ErrLapsed)
		require.GreaterOrEqual(t, len(d.seen()), 19)
	})
}

func TestLoopEndsWhenIdleAndStartsAgain(t *testing.T) {
	loops := func() int {
		stacks := make([]byte, 1<<20)
		return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("]).loop("))
	}
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		require.Zero(t, loops())
		for range 3 {
			e, lost := d.take("a", lease, false)
			time.Sleep(time.Minute)
			synctest.Wait()
			lost.requireNone(t)
			require.Equal(t, 1, loops())
			require.True(t, e.Stop())
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, 1, loops(), "the loop lingers")
			time.Sleep(4 * time.Second)
			synctest.Wait()
			require.Zero(t, loops())
		}
	})
}

func TestClose(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		d := newDog(t, watchdog.Options{}, func(ctx context.Context, _ int, _ string) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), watchdog.ErrClosed)
			<-release
			return watchdog.ErrRefused
		})
		renewed, lost := d.take("a", lease, false)
		_, fixed := d.take("b", lease, true)
		for len(d.seen()) == 0 {
			time.Sleep(time.Millisecond)
		}
		closed := time.Since(d.start)

		cause := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(context.Background(), 2*time.Second, cause)
		defer cancel()
		require.ErrorIs(t, d.Close(ctx), cause)
		require.Equal(t, closed+2*time.Second, time.Since(d.start))
		lost.requireOne(t, closed, watchdog.ErrClosed)
		fixed.requireOne(t, closed, watchdog.ErrClosed)
		require.False(t, renewed.Stop())
		require.False(t, renewed.Check())
		_, err := d.Add(watchdog.Lease[string]{Duration: lease, Sent: time.Now()})
		require.ErrorIs(t, err, watchdog.ErrClosed)

		time.AfterFunc(time.Second, func() { close(release) })
		require.NoError(t, d.Close(context.Background()))
		require.Equal(t, closed+3*time.Second, time.Since(d.start))
		lost.requireOne(t, closed)
	})
}

func TestFailedRenewalsAreLogged(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		d := newDog(t, watchdog.Options{Logger: log}, func(_ context.Context, call int, _ string) error {
			if call == 1 {
				return errAway
			}
			return nil
		})
		d.take("a", lease, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 2, bytes.Count(out.Bytes(), []byte("\n")))
		require.Contains(t, out.String(), `level=WARN msg="watchdog: renewals failed" failed=1 of=1 lock=a error="server is away"`)
		require.Contains(t, out.String(), `level=INFO msg="watchdog: renewed again" renewed=1 of=1`)
	})
}

func TestWrongNumberOfResultsIsUnknown(t *testing.T) {
	for _, n := range []int{0, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				s := watchdog.New(func(context.Context, []watchdog.Renewal[string]) []error {
					return make([]error, n)
				}, watchdog.Options{})
				defer s.Close(context.Background())
				_, lost := dog{s, newFake(nil), t}.take("a", lease, false)
				time.Sleep(time.Minute)
				synctest.Wait()
				lost.requireOne(t, lapse, watchdog.ErrLapsed)
				require.ErrorContains(t, lost.errs[0], fmt.Sprintf("%d results for 1 renewals", n))
			})
		})
	}
}

func TestBatches(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, well)
		const mid = 12 * time.Second // bound 2s, less than half of the others'
		const wake = 10200 * time.Millisecond
		d.stall(wake)
		for i := range 2*256 + 2 {
			d.take("long"+strconv.Itoa(i), lease, false)
		}
		for i := range 3 {
			d.take("mid"+strconv.Itoa(i), mid, false)
		}
		time.Sleep(wake)
		synctest.Wait()
		var got []string
		for _, c := range d.seen() {
			require.Equal(t, wake, c.at)
			got = append(got, fmt.Sprint(len(c.due), "×", c.due[0].Duration, " until ", c.deadline))
		}
		slices.Sort(got)
		require.Equal(t, []string{
			"256×30s until 15.2s",
			"256×30s until 15.2s",
			"2×30s until 15.2s",
			"3×12s until 10.678s", // where the window, less the guard, is over
		}, got)
	})
}

func TestHungBatchTouchesNoOther(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		d := newDog(t, watchdog.Options{}, func(_ context.Context, _ int, key string) error {
			if key == "hangs" {
				<-release
			}
			return nil
		})
		defer close(release)
		_, hangs := d.take("hangs", lease, false)
		_, fine := d.take("fine", 3*lease, false) // not in one batch
		time.Sleep(5 * time.Minute)
		hangs.requireOne(t, lapse, watchdog.ErrLapsed)
		fine.requireNone(t)
	})
}
