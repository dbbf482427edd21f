package watchdog_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/watchdog"
)

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
