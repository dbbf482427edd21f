package pubsub_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/pubsub"
)

func TestEachMessageWakesEveryWaiter(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
		first, second, other := h.Join("a"), h.Join("a"), h.Join("b")
		waiters := []*pubsub.Waiter{first, second, other}
		assert.Equal(t, []bool{true, true, true}, woken(waiters), "confirmed")

		for _, payload := range []string{"0", "1", "", "unlock", "10", "\x80"} {
			s.conn().publish("a", payload)
			assert.Equal(t, []bool{true, true, false}, woken(waiters), "payload %q", payload)
		}
		for range 10 {
			s.conn().publish("a", "0")
		}
		assert.Equal(t, []bool{true, true, false}, woken(waiters))
		assert.Equal(t, []bool{false, false, false}, woken(waiters), "one wake-up")

		s.conn().send(pubsub.Event{Kind: pubsub.Message, Channel: "unheard of"})
		assert.Equal(t, []bool{false, false, false}, woken(waiters))
		_ = s.conn().Close()
		assert.Equal(t, []bool{true, true, true}, woken(waiters), "in doubt")
		time.Sleep(20 * time.Millisecond)
		assert.Equal(t, []bool{true, true, true}, woken(waiters), "confirmed anew")
	})
}

func TestHeardCountsEveryMessage(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
		w := h.Join("a")
		synctest.Wait()
		assert.Zero(t, w.Heard())
		all := h.Join("a")
		h.Join("b")
		for _, payload := range []string{"0", "1", "x", "junk"} {
			s.conn().publish("a", payload)
		}
		s.conn().publish("b", "0")
		synctest.Wait()
		assert.EqualValues(t, 4, w.Heard())
		assert.EqualValues(t, 4, all.Heard())

		_ = s.conn().Close()
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		s.conn().publish("a", "0")
		synctest.Wait()
		w.Leave()
		assert.EqualValues(t, 5, all.Heard())
		assert.Zero(t, testing.AllocsPerRun(10, func() { all.Heard() }))

		require.NoError(t, h.Close(t.Context()))
		assert.Zero(t, h.Join("a").Heard())
	})
}

func TestLeaveTakesAWakeUpAlong(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
		first, second := join("a"), join("a")
		waiters := []*pubsub.Waiter{first, second}
		assert.Equal(t, []bool{true, true}, woken(waiters))
		s.conn().publish("a", "0")
		synctest.Wait()
		first.Leave()
		first.Leave()
		assert.False(t, first.Live())
		assert.Equal(t, []bool{false, true}, woken(waiters))
		s.conn().publish("a", "0")
		assert.Equal(t, []bool{false, true}, woken(waiters))
	})
}

// A waiter of one channel is woken by way of another's, until one of them leaves.
func TestJoinWithSharesTheWakeUps(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
		w := h.Join("a")
		with := h.JoinWith("b", w)
		assert.Equal(t, []bool{true, false}, woken([]*pubsub.Waiter{w, with}), "one wake-up for both")
		s.conn().publish("b", "0")
		assert.Equal(t, []bool{true}, woken([]*pubsub.Waiter{w}))
		assert.EqualValues(t, 1, with.Heard())
		assert.Zero(t, w.Heard())
		with.Leave()
		s.conn().publish("b", "0")
		assert.Equal(t, []bool{false}, woken([]*pubsub.Waiter{w}))
		assert.True(t, w.Live())
	})
}
