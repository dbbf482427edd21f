package pubsub_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-rlock/rlock/pubsub"
)

func TestConnectionClosesWhenIdle(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		w := join("a")
		assert.Equal(t, 1, s.opened())
		w.Leave()
		time.Sleep(time.Second + 10*time.Second - 1)
		assert.Equal(t, 1, s.opened())
		w = join("b")
		assert.True(t, w.Live(), "on the same connection")

		w.Leave()
		time.Sleep(time.Second + 10*time.Second)
		synctest.Wait()
		assert.Zero(t, s.opened())
		assert.Len(t, s.dialled(), 1)

		w = join("a")
		assert.True(t, w.Live())
		assert.Len(t, s.dialled(), 2)
	})
}

func TestSilentConnectionIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		w, refused := join("a"), join("b")
		start := time.Now()
		assert.True(t, awake(w))
		assert.True(t, awake(refused))
		old := s.conn()
		s.set(func() {
			old.deaf = true
			old.probe = func(context.Context) error { // hangs, whatever its context says
				time.Sleep(time.Minute)
				return nil
			}
		})

		time.Sleep(3550*time.Millisecond - 1)
		assert.True(t, w.Live(), "nobody can know")
		assert.Equal(t, 50*time.Millisecond, old.at(t, "PROBE", "").Sub(start))
		assert.Equal(t, 3, old.probes(), "and 0.5 and 1.5 s later")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.False(t, w.Live())
		assert.True(t, awake(w))
		assert.True(t, awake(refused))
		assert.Zero(t, s.opened())

		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		assert.True(t, w.Live())
		assert.True(t, awake(w))
		assert.Equal(t, 1, s.opened())
	})
}

func TestAnsweredProbeKeepsTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		w := join("a")
		assert.True(t, awake(w))
		s.conn().requests()
		time.Sleep(time.Minute + time.Second)
		assert.True(t, w.Live())
		assert.False(t, awake(w))
		assert.InDelta(t, 36, s.conn().probes(), 1, "one in 2 s in the end")
		assert.Len(t, s.dialled(), 1)
	})
}

func TestTrafficSparesTheProbe(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		join("a")
		s.conn().requests()
		for range 100 {
			time.Sleep(400 * time.Millisecond)
			s.conn().publish("a", "0")
		}
		assert.InDelta(t, 20, s.conn().probes(), 2, "but for one in 2 s: is it the right server?")
	})
}

func TestLateTrafficAfterAProbeKeepsTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		s.set(func() { s.manual = true })
		w := join("a")
		s.conn().answer(nil)
		time.Sleep(3550*time.Millisecond - 1)
		s.conn().send(pubsub.Event{Kind: pubsub.Pong})
		time.Sleep(3 * time.Second)
		assert.True(t, w.Live())
		assert.Len(t, s.dialled(), 1)
	})
}

func TestConnectionThatIgnoresRequestsIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		s.set(func() { s.manual = true })
		w := join("a")
		old := s.conn()
		for range 4 {
			assert.Len(t, s.dialled(), 1)
			time.Sleep(time.Second)
			old.send(pubsub.Event{Kind: pubsub.Pong})
		}
		s.set(func() { s.manual = false })
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Len(t, s.dialled(), 2)
		assert.True(t, w.Live())
	})
}

func TestBrokenConnectionIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		w := join("a")
		assert.True(t, awake(w))
		for range 100 {
			_ = s.conn().Close()
			synctest.Wait()
			assert.False(t, w.Live())
			assert.True(t, awake(w), "a message may have been lost")
			time.Sleep(20 * time.Millisecond)
			synctest.Wait()
			assert.True(t, w.Live())
			assert.True(t, awake(w), "or the lock released before the confirmation")
		}
	})
}

func TestUnexpectedAnswerEndsTheConnection(t *testing.T) {
	for name, event := range map[string]pubsub.Event{
		"subscribed by someone else":        {Kind: pubsub.Subscribed, Channel: "b"},
		"resubscribed by someone else":      {Kind: pubsub.Subscribed, Channel: "a"},
		"error that answers nothing":        {Kind: pubsub.Refused, Err: errors.New("ERR what?")},
		"unsubscribed from what is unheard": {Kind: pubsub.Unsubscribed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
				w := join("a")
				assert.True(t, awake(w))
				s.conn().send(event)
				synctest.Wait()
				assert.False(t, w.Live())
				assert.True(t, awake(w))
				time.Sleep(20 * time.Millisecond)
				synctest.Wait()
				assert.True(t, w.Live())
				assert.Len(t, s.dialled(), 2)
			})
		})
	}
}

func TestContraryAnswerEndsTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		s.set(func() { s.manual = true })
		join("a")
		s.conn().send(pubsub.Event{Kind: pubsub.Unsubscribed, Channel: "a"})
		synctest.Wait()
		assert.Zero(t, s.opened())
	})
}

func TestAbandonedConnectionHasNoEffect(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		w := join("a")
		old := s.conn()
		s.set(func() {
			s.manual = true
			old.deaf = true
			old.close = func() { time.Sleep(time.Minute) } // behind a write that hangs
		})
		time.Sleep(7 * time.Second)
		assert.NotSame(t, old, s.conn())
		for awake(w) {
		}
		old.events <- pubsub.Event{Kind: pubsub.Subscribed, Channel: "a"}
		old.events <- pubsub.Event{Kind: pubsub.Message, Channel: "a"}
		synctest.Wait()
		assert.Empty(t, old.events)
		assert.False(t, awake(w))
		assert.False(t, w.Live())
	})
}

func TestHangingWriteIsLeftBehind(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		join("a")
		old := s.conn()
		s.set(func() {
			old.deaf = true
			old.wrote = func() { time.Sleep(6*time.Second + 5*time.Millisecond) }
			old.probe = func(context.Context) error {
				old.events <- pubsub.Event{Kind: pubsub.Pong}
				return nil
			}
		})
		join("b") // hangs, and when it is done there is no connection
		w := join("c")
		time.Sleep(time.Minute)
		assert.True(t, w.Live())
		assert.NotContains(t, old.requests(), "SUBSCRIBE c")
	})
}
