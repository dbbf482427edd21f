package watchdog_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/watchdog"
)

func TestRenewalTimes(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, func(context.Context, int, string) error {
			time.Sleep(2 * time.Second) // a slow reply changes neither schedule nor window
			return nil
		})
		e, lost := d.take("a", lease, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		lost.requireNone(t)

		calls := d.seen()
		first := calls[0].at
		require.GreaterOrEqual(t, first, lease/6)
		require.LessOrEqual(t, first, lease/3)
		for i, c := range calls {
			require.Equal(t, first+time.Duration(i)*lease/3, c.at)
			require.Equal(t, c.at+lease/6, c.deadline)
			require.Equal(t, []watchdog.Renewal[string]{{Key: "a", Duration: lease, Before: lease}}, c.due)
		}
		confirmed := calls[len(calls)-1].at
		if confirmed > 58*time.Second { // not answered yet
			confirmed -= lease / 3
		}
		require.Equal(t, d.start.Add(confirmed+window), e.Until())
	})
}

func TestHangingAttemptsAreOvertaken(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, hang)
		d.take("a", lease, false)
		time.Sleep(time.Minute)
		calls := d.seen()
		require.LessOrEqual(t, len(calls), 5)
		for i, c := range calls {
			require.Equal(t, calls[0].at+time.Duration(i)*lease/6, c.at)
			require.Equal(t, min(c.at+lease/6, lapse), c.deadline, "the bound ends with the window")
		}
		require.Greater(t, calls[len(calls)-1].at, lapse-lease/6)
	})
}

// The first attempt succeeds after the second has started: the window moves by
// the send time of the first, and the third attempt is due a third of the lease
// after it.
func TestOvertakenSuccessCountsFromItsOwnSend(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, func(ctx context.Context, call int, _ string) error {
			if call == 1 {
				time.Sleep(lease/6 + time.Second)
				return nil
			}
			<-ctx.Done()
			return errAway
		})
		e, lost := d.take("a", lease, false)
		time.Sleep(time.Minute)
		times := d.times()
		first := times[0]
		require.Equal(t, []time.Duration{first, first + lease/6, first + lease/3}, times[:3])
		require.Equal(t, d.start.Add(first+window), e.Until())
		lost.requireOne(t, first+lapse, watchdog.ErrLapsed, errAway)
	})
}

// However short a lease has become, its renewals do not chase one another.
func TestShortestRenewal(t *testing.T) {
	for name, become := range map[string]func(*watchdog.Lease[string]) (rearm time.Duration, answer error){
		"renews less": func(l *watchdog.Lease[string]) (time.Duration, error) { l.Renew = 1; return 0, nil },
		"is looked at": func(l *watchdog.Lease[string]) (time.Duration, error) {
			l.Renew = 1
			return 0, watchdog.Left(time.Hour)
		},
		"is armed for less": func(*watchdog.Lease[string]) (time.Duration, error) { return 1, nil },
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				l := watchdog.Lease[string]{Duration: time.Hour, Sent: time.Now()}
				rearm, answer := become(&l)
				d := newDog(t, watchdog.Options{}, func(context.Context, int, string) error {
					time.Sleep(10 * time.Microsecond)
					return answer
				})
				e, err := d.Add(l)
				require.NoError(t, err)
				if rearm > 0 {
					time.Sleep(time.Millisecond)
					e.Rearm(time.Now(), rearm, false)
				}
				time.Sleep(100 * time.Millisecond)
				require.True(t, e.Check())
				require.InDelta(t, 100, len(d.seen()), 2)
			})
		})
	}
}

// The second attempt succeeds, then the first is answered, which is no news.
func TestStaleAnswerChangesNothing(t *testing.T) {
	for _, stale := range []error{nil, errAway} {
		t.Run(fmt.Sprint(stale), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				d := newDog(t, watchdog.Options{}, func(_ context.Context, call int, _ string) error {
					if call == 1 {
						time.Sleep(lease/6 + time.Second)
						return stale
					}
					return nil
				})
				e, _ := d.take("a", lease, false)
				time.Sleep(lease/3 + lease/6 + 2*time.Second)
				first := d.times()[0]
				require.Equal(t, d.start.Add(first+lease/6+window), e.Until())
				time.Sleep(lease / 3)
				require.Equal(t, []time.Duration{first, first + lease/6, first + lease/2}, d.times()[:3])
			})
		})
	}
}

func TestFailureOlderThanRearmChangesNothing(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, func(_ context.Context, call int, _ string) error {
			if call == 1 {
				time.Sleep(2 * time.Second)
				return errAway
			}
			return nil
		})
		e, _ := d.take("a", lease, false)
		for len(d.seen()) == 0 {
			time.Sleep(time.Second)
		}
		e.Rearm(time.Now(), lease, false)
		rearmed := time.Since(d.start)
		time.Sleep(lease)
		require.Equal(t, rearmed+lease/3, d.times()[1])
	})
}

func TestRetriesBackOff(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const length = 6 * time.Second // bound 1s, lapse 5338ms
		d := newDog(t, watchdog.Options{}, away)
		d.take("a", length, false)
		time.Sleep(time.Minute)
		times := d.times()
		longest := 50 * time.Millisecond
		for i, at := range times[1:] {
			gap := at - times[i]
			require.Greater(t, gap, longest/2-1)
			require.LessOrEqual(t, gap, longest)
			longest = min(2*longest, length/6)
		}
		require.Equal(t, length/6, longest, "the bound was reached")
		require.Greater(t, times[len(times)-1], 5338*time.Millisecond-length/6)
	})
}

// A success ends a series of failures: the next failure is retried as soon as
// the first was, and what was wrong before is not blamed for a later loss.
func TestSuccessForgetsFailures(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		d := newDog(t, watchdog.Options{}, func(_ context.Context, call int, _ string) error {
			switch {
			case call == 5 || call == 7:
				return nil
			case call > 7:
				<-release
			}
			return errAway
		})
		defer close(release)
		_, lost := d.take("a", lease, false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		times := d.times()
		require.LessOrEqual(t, times[6]-times[5], 50*time.Millisecond)
		lost.requireOne(t, times[6]+lapse, watchdog.ErrLapsed)
		require.NotErrorIs(t, lost.errs[0], errAway)
	})
}

func TestRenewedAgainAfterAnOutage(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		start := time.Now()
		d := newDog(t, watchdog.Options{}, func(context.Context, int, string) error {
			if since := time.Since(start); since > 20*time.Second && since < 30*time.Second {
				return errAway
			}
			return nil
		})
		_, lost := d.take("a", lease, false)
		time.Sleep(10 * time.Minute)
		lost.requireNone(t)
		times := d.times()
		require.Equal(t, lease/3, times[len(times)-1]-times[len(times)-2])
	})
}

func TestRearm(t *testing.T) {
	const long, longWindow = time.Minute, 59398 * time.Millisecond
	const short = 3 * time.Second
	tests := []struct {
		name          string
		fixed         bool
		sent          time.Duration // Rearm comes at 4s
		length        time.Duration
		fixedFromNow  bool
		until, lostAt time.Duration // lostAt 0: held for good
		next          time.Duration // first renewal after Rearm; 0: none
	}{
		{"longer", false, 4 * time.Second, long, false, 4*time.Second + longWindow, 0, 24 * time.Second},
		{"shorter", false, 4 * time.Second, short, false, window, 0, 5 * time.Second},
		{"fixed from now on", false, 4 * time.Second, lease, true, 4*time.Second + window, 4*time.Second + lapse, 0},
		{"fixed and shorter", false, 4 * time.Second, short, true, window, lapse, 0},
		{"renewed from now on", true, 4 * time.Second, lease, false, 4*time.Second + window, 0, 14 * time.Second},
		{"sent before the lease", true, -time.Minute, lease, true, window, lapse, 0},
		{"no length", true, 4 * time.Second, -1, true, window, lapse, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				d := newDog(t, watchdog.Options{}, well)
				e, lost := d.take("a", lease, tt.fixed)
				time.Sleep(4 * time.Second)
				e.Rearm(d.start.Add(tt.sent), tt.length, tt.fixedFromNow)
				require.Equal(t, d.start.Add(tt.until), e.Until())
				time.Sleep(10 * time.Minute)
				if tt.lostAt > 0 {
					lost.requireOne(t, tt.lostAt, watchdog.ErrLapsed)
				} else {
					lost.requireNone(t)
				}
				if tt.next > 0 {
					require.Equal(t, tt.next, d.times()[0])
					require.Equal(t, tt.length, d.seen()[0].due[0].Duration)
				} else {
					require.Empty(t, d.seen())
				}

				e.Stop()
				until := e.Until()
				e.Rearm(time.Now(), time.Hour, false)
				require.Equal(t, until, e.Until(), "rearmed after its end")
			})
		})
	}
}

// No bound is below a millisecond: a lease of no length must not spin.
func TestRearmWithoutLengthDoesNotSpin(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		d := newDog(t, watchdog.Options{}, away)
		e, lost := d.take("a", 100*time.Millisecond, false)
		e.Rearm(time.Now(), 0, false)
		time.Sleep(time.Second)
		lost.requireOne(t, 87*time.Millisecond, watchdog.ErrLapsed)
		require.Less(t, len(d.seen()), 200)
	})
}

// A lease that begins shorter than it is to be: until the first renewal is
// answered, attempts are as frequent as a short lease needs them.
func TestLeaseThatGrows(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		const short = 6 * time.Second
		d := newDog(t, watchdog.Options{}, func(_ context.Context, call int, _ string) error {
			if call == 1 {
				time.Sleep(time.Minute) // it has no answer
			}
			return nil
		})
		e, err := d.Add(watchdog.Lease[string]{Key: "a", Duration: short, Renew: lease, Sent: time.Now()})
		require.NoError(t, err)
		require.Equal(t, d.start.Add(short-62*time.Millisecond), e.Until())
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.True(t, e.Check())
		calls := d.seen()
		require.LessOrEqual(t, calls[0].at, short/3)
		require.Equal(t, calls[0].at+short/6, calls[1].at)
		require.Equal(t, calls[1].at+lease/3, calls[2].at)
		for i, c := range calls {
			before := short
			if i > 1 { // the second was the first to be answered
				before = lease
			}
			require.Equal(t, []watchdog.Renewal[string]{{Key: "a", Duration: lease, Before: before}}, c.due)
		}
		time.Sleep(time.Minute)
	})
}

// The successor has the window and the renewals of the one before it, which hears
// nothing more.
func TestPass(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var refuse atomic.Bool
		f := newFake(func(context.Context, int, string) error {
			if refuse.Load() {
				return watchdog.ErrRefused
			}
			return nil
		})
		s := watchdog.New(f.renew, watchdog.Options{})
		defer s.Close(context.Background())
		never := func(error) { t.Error("the entry before was lost") }
		e, err := s.Add(watchdog.Lease[string]{Key: "before", Duration: lease, Sent: time.Now(), OnLost: never})
		require.NoError(t, err)
		time.Sleep(time.Second)

		var lost error
		successor, ok := e.Pass("successor", func(err error) { lost = err }, time.Now(), lease/2, lease)
		require.True(t, ok)
		require.Equal(t, e.Until(), successor.Until())
		require.True(t, successor.Check())
		require.False(t, e.Check())
		require.NoError(t, e.Err())
		require.False(t, e.Stop(), "it has ended")
		_, again := e.Pass("another", never, time.Now(), 0, lease)
		require.False(t, again)

		time.Sleep(time.Minute)
		synctest.Wait()
		require.NotEmpty(t, f.seen())
		for _, c := range f.seen() {
			require.Equal(t, "successor", c.due[0].Key)
		}
		require.Equal(t, time.Now().Add(window).Round(15*time.Second), successor.Until().Round(15*time.Second))

		refuse.Store(true)
		time.Sleep(lease)
		synctest.Wait()
		require.ErrorIs(t, lost, watchdog.ErrRefused)
	})
}

func TestPassIsRefused(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFake(hang)
		s := watchdog.New(f.renew, watchdog.Options{})
		defer s.Close(context.Background())
		e, err := s.Add(watchdog.Lease[string]{Key: "a", Duration: lease, Sent: time.Now(), OnLost: func(error) {}})
		require.NoError(t, err)
		_, ok := e.Pass("b", nil, time.Now(), lease, lease)
		require.False(t, ok, "the window is shorter than that")
		_, ok = e.Pass("b", nil, time.Now(), 0, 2*lease)
		require.False(t, ok, "it asks for less")
		fixed, err := s.Add(watchdog.Lease[string]{Key: "f", Duration: lease, Sent: time.Now(), Fixed: true})
		require.NoError(t, err)
		_, ok = fixed.Pass("b", nil, time.Now(), 0, lease)
		require.False(t, ok, "it asks for nothing")
		require.True(t, fixed.Stop())

		time.Sleep(lease/3 + time.Second) // a renewal hangs
		synctest.Wait()
		require.NotEmpty(t, f.seen())
		_, ok = e.Pass("b", nil, time.Now(), 0, lease)
		require.False(t, ok)
		require.True(t, e.Check(), "nothing has changed")

		time.Sleep(lapse)
		_, ok = e.Pass("b", nil, time.Now(), 0, lease)
		require.False(t, ok)
		require.True(t, errors.Is(e.Err(), watchdog.ErrLapsed))
	})
}

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
