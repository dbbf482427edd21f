package pubsub_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestChannelLingers(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		w := join("a")
		s.conn().requests()
		w.Leave()
		time.Sleep(time.Second - 1)
		w = join("a")
		assert.True(t, awake(w))

		time.Sleep(time.Minute)
		w.Leave()
		left := time.Now()
		time.Sleep(2 * time.Second)
		assert.Equal(t, time.Second, s.conn().at(t, "UNSUBSCRIBE", "a").Sub(left))
		assert.False(t, s.has("a"))
	})
}

func TestLateUnsubscribeDoesNotDeafenANewWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		join("a").Leave()
		s.set(func() { s.manual = true })
		time.Sleep(2 * time.Second)
		w := join("a")
		assert.Equal(t, []string{"SUBSCRIBE a", "UNSUBSCRIBE a", "SUBSCRIBE a"}, s.conn().requests())
		assert.False(t, awake(w))
		assert.False(t, w.Live(), "confirmed once, but about to be undone")

		s.conn().answer(nil)
		synctest.Wait()
		assert.False(t, w.Live())
		s.conn().answer(nil)
		synctest.Wait()
		assert.True(t, w.Live())
		assert.True(t, awake(w))
	})
}

func TestOnlyTheLastAnswerCounts(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		s.set(func() { s.manual = true })
		join("a").Leave()
		time.Sleep(2 * time.Second)
		w := join("a")
		assert.Equal(t, []string{"SUBSCRIBE a", "UNSUBSCRIBE a", "SUBSCRIBE a"}, s.conn().requests())
		for i := range 3 {
			assert.False(t, w.Live(), "%d of 3 requests answered", i)
			s.conn().answer(nil)
			synctest.Wait()
		}
		assert.True(t, w.Live())
	})
}
