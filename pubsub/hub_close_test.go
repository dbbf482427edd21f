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
		first, second, left := newWaiter(h, "a"), newWaiter(h, "b"), newWaiter(h, "c")
		left.Leave()
		synctest.Wait()
		assert.True(t, awake(first))

		require.NoError(t, h.Close(t.Context()))
		assert.Zero(t, s.opened())
		assert.True(t, awake(first))
		assert.True(t, awake(second))
		for _, w := range []*waiter{first, second, newWaiter(h, "a"), newWaiter(h, "d")} {
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
		w := newWaiter(h, "a")
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
		w := newWaiter(h, "a")
		time.Sleep(time.Minute)
		start := time.Now()
		require.NoError(t, h.Close(t.Context()))
		assert.Equal(t, start, time.Now())
		assert.True(t, awake(w))
	})
}
