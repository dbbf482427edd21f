package pubsub_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-rlock/rlock/pubsub"
)

// set changes c while nobody looks.
func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// fallSilent has a server's newest connection, and all that come, answer nothing.
func (s *server) fallSilent() {
	conn := s.conn()
	s.set(func() {
		s.deaf = true
		s.dial = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		conn.deaf = true
		conn.probe = func(ctx context.Context) error { <-ctx.Done(); return nil }
	})
}

// soon is how long it takes at most until a waiter is live on a new master: half an
// interval to the next question, and the pause before a connection.
const soon = 250*time.Millisecond + 20*time.Millisecond

// However long a server has been silent, its successor is found soon after the
// silence was noticed, and by somebody who does nothing but wait.
func TestSuccessorOfASilentServer(t *testing.T) {
	for after := 2600 * time.Millisecond; after < 12*time.Second; after += 90 * time.Millisecond {
		clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
			w := newWaiter(h, "a")
			time.Sleep(10 * time.Second)
			c.servers["A"].fallSilent()
			time.Sleep(after)
			c.move("B", "a", "a2")
			time.Sleep(soon)
			synctest.Wait()
			assert.True(t, w.Live(), "%v after the silence began", after)
			assert.True(t, c.servers["B"].has("a"))
			assert.True(t, awake(w))
		})
	}
}

// Nor does it take longer if some of the questions are put to the silent server.
func TestQuestionsThatHang(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		w := newWaiter(h, "a")
		time.Sleep(10 * time.Second)
		c.servers["A"].fallSilent()
		never := make(chan struct{})
		c.set(func() { c.hang = never })
		time.Sleep(3 * time.Second)
		c.set(func() { c.hang = nil })
		c.move("B", "a", "a2")
		time.Sleep(soon)
		synctest.Wait()
		assert.True(t, w.Live())
	})
}

// If all of them do, they are not repeated without end.
func TestAllQuestionsHang(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		newWaiter(h, "a")
		synctest.Wait()
		c.set(func() { c.hang = make(chan struct{}) })
		c.servers["A"].fallSilent()
		time.Sleep(time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		assert.LessOrEqual(t, c.asked, 12+1)
	})
}

// A server that stalls for a second keeps its connection and its waiters, who then
// hear what it has to say.
func TestStall(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		a := c.servers["A"]
		w := newWaiter(h, "a")
		time.Sleep(10 * time.Second)
		assert.True(t, awake(w))
		for range 100 {
			c.set(func() { c.asked = 0 })
			a.set(func() { a.manual = true })
			time.Sleep(time.Second)
			a.set(func() { a.manual = false })
			assert.True(t, w.Live())
			assert.False(t, awake(w))
			c.mu.Lock()
			assert.LessOrEqual(t, c.asked, 3)
			c.mu.Unlock()
			a.conn().publish("a", "0")
			synctest.Wait()
			assert.True(t, awake(w))
			time.Sleep(3300 * time.Millisecond)
		}
		assert.Len(t, a.dialled(), 1)
	})
}

// A server that refuses connections is asked for more and more rarely; whether there
// is another one, is not.
func TestSuccessorOfADeadServer(t *testing.T) {
	for after := 500 * time.Millisecond; after < 20*time.Second; after += 370 * time.Millisecond {
		clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
			a := c.servers["A"]
			w := newWaiter(h, "a")
			synctest.Wait()
			a.set(func() { a.dial = func(context.Context) error { return errBroken } })
			_ = a.conn().Close()
			time.Sleep(after)
			c.move("B", "a", "a2")
			time.Sleep(soon)
			synctest.Wait()
			assert.True(t, w.Live(), "%v after its death", after)
		})
	}
}
