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

func TestClose(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := &server{}
		h := pubsub.NewHub(s, pubsub.Options{})
		first, second, left := h.Join("a"), h.Join("b"), h.Join("c")
		left.Leave()
		synctest.Wait()
		assert.True(t, awake(first))

		require.NoError(t, h.Close(t.Context()))
		assert.Zero(t, s.opened())
		for _, w := range []*pubsub.Waiter{first, second, h.Join("a"), h.Join("d")} {
			assert.True(t, awake(w))
			assert.False(t, w.Live())
			w.Leave()
			w.Leave()
		}
		require.NoError(t, h.Close(t.Context()))
		assert.Len(t, s.dialled(), 1)
	})
}

func TestNothingIsLiveAfterClose(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := &server{manual: true}
		h := pubsub.NewHub(s, pubsub.Options{})
		w := h.Join("a")
		synctest.Wait()
		conn := s.conn()
		s.set(func() { conn.close = func() { time.Sleep(time.Minute) } })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, h.Close(ctx), context.DeadlineExceeded)
		conn.answer(nil)
		synctest.Wait()
		assert.False(t, w.Live())
		require.NoError(t, h.Close(t.Context()))
	})
}

func TestCloseWhileNothingWasEverJoined(t *testing.T) {
	h := pubsub.NewHub(nil, pubsub.Options{})
	require.NoError(t, h.Close(t.Context()))
}

func TestCloseDuringAnOutage(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := &server{dial: func(context.Context) error { return errBroken }}
		h := pubsub.NewHub(s, pubsub.Options{})
		w := h.Join("a")
		time.Sleep(time.Minute)
		start := time.Now()
		require.NoError(t, h.Close(t.Context()))
		assert.Equal(t, start, time.Now())
		assert.True(t, awake(w))
	})
}
