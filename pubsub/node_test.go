package pubsub_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

func TestPauseBetweenConnectionsGrows(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		s.set(func() { s.dial = func(context.Context) error { return errBroken } })
		w := join("a")
		time.Sleep(10 * time.Second)
		assert.False(t, awake(w), "it was not live, and lost nothing")
		pause := 10 * time.Millisecond
		dials := s.dialled()
		for i := 1; i < len(dials); i++ {
			gap := dials[i].Sub(dials[i-1])
			assert.GreaterOrEqual(t, gap, pause, "pause %d", i)
			assert.LessOrEqual(t, gap, 2*pause, "pause %d", i)
			pause = min(2*pause, 500*time.Millisecond)
		}
		assert.Greater(t, len(dials), 15)

		s.set(func() { s.dial = nil })
		time.Sleep(time.Second)
		assert.True(t, w.Live())
		_ = s.conn().Close()
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		assert.True(t, w.Live(), "the pause starts anew")
	})
}

func TestNobodyWaitsForADial(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		start := time.Now()
		s := &server{dial: func(context.Context) error {
			time.Sleep(time.Minute) // does not care about its context
			return nil
		}}
		h := pubsub.NewHub(s, pubsub.Options{})
		w := newWaiter(h, "a")
		time.Sleep(time.Second)
		assert.False(t, w.Live())
		newWaiter(h, "b").Leave()
		assert.Equal(t, time.Second, time.Since(start))

		time.Sleep(6 * time.Second)
		assert.Len(t, s.dialled(), 2, "the first took too long")

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		closing := time.Now()
		require.ErrorIs(t, h.Close(ctx), context.DeadlineExceeded)
		assert.Equal(t, 100*time.Millisecond, time.Since(closing))
		require.NoError(t, h.Close(t.Context()))
		assert.Equal(t, s.dialled()[1].Add(time.Minute), time.Now())
		assert.Zero(t, s.opened(), "what came too late was closed")
	})
}

func TestLingeringChannelIsNotWorthAConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		join("a").Leave()
		_ = s.conn().Close()
		time.Sleep(time.Minute)
		assert.Len(t, s.dialled(), 1)
	})
}
