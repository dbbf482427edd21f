package watchdog_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/watchdog"
)

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
