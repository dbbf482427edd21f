package watchdog_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/watchdog"
)

// A lease of 30 s that somebody else renews each 10 s until quiet, and that was 25 s
// from its end when the entry was added.
func newLooked(t *testing.T, quiet time.Duration) dog {
	d := newDog(t, watchdog.Options{}, nil)
	d.answer = func(context.Context, int, string) error {
		since := min(time.Since(d.start), quiet) + 5*time.Second
		renewed := since / (lease / 3) * (lease / 3)
		return watchdog.Left(renewed + lease - 5*time.Second - time.Since(d.start))
	}
	return d
}

func TestLookedAtLeaseIsTrustedAsLongAsItIsRenewed(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newLooked(t, time.Hour)
		_, lost := d.take("a", 25*time.Second, false)
		time.Sleep(50 * time.Minute)
		synctest.Wait()
		lost.requireNone(t)
		at := d.times()
		for i := 2; i < len(at); i++ {
			require.InDelta(t, lease/3, at[i]-at[i-1], float64(2*time.Second), "a third of the longest that was seen")
		}
	})
}

// Nobody renews any more: looking at the lease must not lengthen the trust in it, nor
// shorten the time to stop, nor become more and more frequent.
func TestLookedAtLeaseEndsBeforeTheLeaseDoes(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newLooked(t, time.Minute)
		e, lost := d.take("a", 25*time.Second, false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		// Renewed last 55 s after the start, for 30 s. Guard and drift go by the longest that
		// was seen of it, but by no more than Renew.
		const end, least = 85 * time.Second, 25 * time.Second
		at, until := lost.at[0], e.Until().Sub(d.start)
		lost.requireOne(t, at, watchdog.ErrLapsed)
		require.GreaterOrEqual(t, at, end-lease+lapse)
		require.Less(t, at, end-least/10)
		require.GreaterOrEqual(t, until, end-lease+window)
		require.Less(t, until, end-least/100)
		looks := d.times()
		for i := 1; i < len(looks); i++ {
			require.GreaterOrEqual(t, looks[i]-looks[i-1], least/20)
		}
	})
}

func TestLookedAtLeaseWithoutEndIsNotTrusted(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		for _, left := range []watchdog.Left{0, -1, watchdog.Left(-time.Hour)} {
			d := newDog(t, watchdog.Options{}, func(context.Context, int, string) error { return left })
			_, lost := d.take("a", lease, false)
			time.Sleep(time.Minute)
			synctest.Wait()
			lost.requireOne(t, lapse, watchdog.ErrLapsed)
		}
	})
}

func TestLookedAtLeaseThatIsGone(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, func(_ context.Context, call int, _ string) error {
			if call < 3 {
				return watchdog.Left(lease)
			}
			return watchdog.ErrRefused
		})
		_, lost := d.take("a", lease, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		lost.requireOne(t, d.times()[2], watchdog.ErrRefused)
	})
}
