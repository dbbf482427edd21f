package pubsub_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

// cluster implements pubsub.Servers with several servers. A client of it has an
// old map until it refreshes.
type cluster struct {
	mu      sync.Mutex // guards what follows
	servers map[string]*server
	owners  map[string]string // server by channel
	known   map[string]string // what Find says
	hang    chan struct{}     // Refresh waits for it; nil: for nothing
	asked   int               // calls of Refresh
}

var errUnknown = errors.New("no map")

func newCluster(servers ...string) *cluster {
	c := &cluster{servers: map[string]*server{}, owners: map[string]string{}, known: map[string]string{}}
	for _, name := range servers {
		c.servers[name] = &server{}
	}
	return c
}

// own makes a server the owner of channels, and has the client know it.
func (c *cluster) own(name string, channels ...string) {
	c.move(name, channels...)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range channels {
		c.known[ch] = name
	}
}

// move does it without the client's knowledge.
func (c *cluster) move(name string, channels ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range channels {
		c.owners[ch] = name
	}
}

func (c *cluster) Find(_ context.Context, channel string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name, ok := c.known[channel]; ok {
		return name, nil
	}
	return "", errUnknown
}

func (c *cluster) Refresh(ctx context.Context) {
	c.mu.Lock()
	hang := c.hang
	c.asked++
	c.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch, name := range c.owners {
		c.known[ch] = name
	}
}

func (c *cluster) Open(ctx context.Context, name, channel string) (pubsub.Source, error) {
	return c.servers[name].Open(ctx, name, channel)
}

// answerMoved answers the oldest request with MOVED, and reports whether there
// was one.
func (c *connection) answerMoved() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.over || c.deaf || len(c.unanswered) == 0 {
		return false
	}
	c.unanswered = c.unanswered[1:]
	c.events <- pubsub.Event{Kind: pubsub.Moved, Err: errors.New("MOVED")}
	return true
}

// takeAway ends a subscription as a server does that gives the slot away.
func (c *connection) takeAway(channel string) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	delete(c.subscribed, channel)
	c.events <- pubsub.Event{Kind: pubsub.Unsubscribed, Channel: channel}
}

func clusterBubble(t *testing.T, test func(t *testing.T, c *cluster, h *pubsub.Hub)) {
	t.Helper()
	redistest.Bubble(t, func(t *testing.T) {
		c := newCluster("A", "B")
		c.own("A", "a", "a2")
		c.own("B", "b")
		h := pubsub.NewHub(c, pubsub.Options{})
		test(t, c, h)
		require.NoError(t, h.Close(t.Context()))
		for name, s := range c.servers {
			assert.Zero(t, s.opened(), "connections to %s", name)
		}
	})
}

func TestEachServerHasItsConnection(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		a, a2, b := newWaiter(h, "a"), newWaiter(h, "a2"), newWaiter(h, "b")
		waiters := []*waiter{a, a2, b}
		assert.Equal(t, []bool{true, true, true}, woken(waiters))
		assert.Equal(t, 1, c.servers["A"].opened())
		assert.Equal(t, 1, c.servers["B"].opened())

		c.servers["A"].set(func() { c.servers["A"].dial = func(context.Context) error { return errBroken } })
		_ = c.servers["A"].conn().Close()
		assert.Equal(t, []bool{true, true, false}, woken(waiters), "the others rely on theirs")
		assert.True(t, b.Live())
		c.servers["B"].conn().publish("b", "0")
		assert.Equal(t, []bool{false, false, true}, woken(waiters))

		time.Sleep(time.Minute)
		assert.Len(t, c.servers["B"].dialled(), 1)
		assert.Greater(t, len(c.servers["A"].dialled()), 50)
		assert.Less(t, len(c.servers["A"].dialled()), 150, "the pauses grow")
		c.servers["A"].set(func() { c.servers["A"].dial = nil })
		time.Sleep(time.Second)
		assert.Equal(t, []bool{true, true, false}, woken(waiters))
		assert.True(t, a.Live())

		for _, w := range waiters {
			w.Leave()
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		assert.Zero(t, c.servers["A"].opened())
		assert.Zero(t, c.servers["B"].opened())
	})
}

func TestChannelThatTheServerGivesAway(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		waiters := []*waiter{newWaiter(h, "a"), newWaiter(h, "a"), newWaiter(h, "a2"), newWaiter(h, "b")}
		assert.Equal(t, []bool{true, true, true, true}, woken(waiters))
		c.move("B", "a")
		c.servers["A"].conn().takeAway("a")
		assert.Equal(t, []bool{true, true, false, false}, woken(waiters), "in doubt")
		assert.False(t, waiters[0].Live())
		time.Sleep(20 * time.Millisecond)
		assert.Equal(t, []bool{true, true, false, false}, woken(waiters), "confirmed by another server")
		assert.True(t, waiters[0].Live())
		assert.True(t, c.servers["B"].has("a"))
		c.servers["B"].conn().publish("a", "0")
		assert.Equal(t, []bool{true, true, false, false}, woken(waiters))
		assert.Len(t, c.servers["A"].dialled(), 1)
		assert.Len(t, c.servers["B"].dialled(), 1)

		waiters[2].Leave()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		assert.Zero(t, c.servers["A"].opened(), "nothing is left there")
	})
}

func TestChannelThatServersPassOn(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		c.move("B", "a")
		c.hang = make(chan struct{}) // the map stays old
		s := c.servers["A"]
		s.set(func() { s.manual = true })
		w := newWaiter(h, "a")
		asked := 0
		for range 3000 { // 30 s
			synctest.Wait()
			for s.conn().answerMoved() {
				asked++
			}
			time.Sleep(10 * time.Millisecond)
		}
		assert.False(t, awake(w), "nothing to tell")
		assert.Greater(t, asked, 30)
		assert.Less(t, asked, 80, "the pauses grow")
		close(c.hang)
		time.Sleep(time.Second)
		assert.True(t, w.Live())
		assert.True(t, awake(w))
	})
}

// A request that waits for its turn must not be sent to the former server.
func TestChannelThatMovesBeforeItsRequest(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		c := newCluster("A", "B")
		c.own("A", "a", "a2", "a3")
		h := pubsub.NewHub(c, pubsub.Options{}.Lingering(-1))
		newWaiter(h, "a3") // keeps the connection
		synctest.Wait()
		w := newWaiter(h, "a")
		synctest.Wait()
		a := c.servers["A"].conn()
		c.servers["A"].set(func() { a.wrote = func() { time.Sleep(time.Second) } })
		c.servers["B"].dial = func(context.Context) error { time.Sleep(1500 * time.Millisecond); return nil }
		newWaiter(h, "a2") // is written for a second
		synctest.Wait()
		w.Leave() // to be unsubscribed, then
		synctest.Wait()
		w = newWaiter(h, "a")
		c.move("B", "a")
		a.takeAway("a")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"SUBSCRIBE a3", "SUBSCRIBE a", "SUBSCRIBE a2"}, a.requests())
		assert.True(t, w.Live())
		assert.True(t, c.servers["B"].has("a"))
		require.NoError(t, h.Close(t.Context()))
	})
}

// The owner of a channel changes while its server is silent, or about to answer.
func TestServerThatIsSupersededIsLeft(t *testing.T) {
	for name, hang := range map[string]bool{"connected": false, "connecting": true} {
		t.Run(name, func(t *testing.T) {
			clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
				s := c.servers["A"]
				s.set(func() {
					s.deaf = true
					if hang {
						s.dial = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
					}
				})
				w := newWaiter(h, "a")
				time.Sleep(100 * time.Millisecond)
				c.move("B", "a")
				time.Sleep(500 * time.Millisecond)
				synctest.Wait()
				assert.True(t, w.Live(), "the second probe asks who is in charge")
				assert.True(t, c.servers["B"].has("a"))
			})
		})
	}
}

// A connection is given up by a probe that says so, without waiting for silence.
func TestProbeThatMissesEndsTheConnection(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
		w := newWaiter(h, "a")
		synctest.Wait()
		assert.True(t, awake(w))
		conn := s.conn()
		s.set(func() { conn.probe = func(context.Context) error { return errBroken } })
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		assert.False(t, w.Live())
		assert.True(t, awake(w))
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		assert.True(t, w.Live())
	})
}

func TestServerThatIsNotYetKnown(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		c.hang = make(chan struct{})
		c.move("A", "new")
		w, left := newWaiter(h, "new"), newWaiter(h, "new too")
		left.Leave()
		time.Sleep(10 * time.Second)
		assert.False(t, awake(w))
		close(c.hang)
		time.Sleep(time.Second)
		assert.True(t, w.Live())
		assert.True(t, awake(w))
	})
}

// Nobody says that the owner has changed, and the former goes on answering.
func TestServerThatDoesNotKnowIsLeft(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		w := newWaiter(h, "a")
		time.Sleep(time.Minute)
		assert.True(t, awake(w))
		c.move("B", "a")
		time.Sleep(4*time.Second + 520*time.Millisecond)
		synctest.Wait()
		assert.True(t, awake(w))
		assert.True(t, c.servers["B"].has("a"))
	})
}

// Channels move to and fro while waiters come and go; whoever is live has a
// subscription at the owner.
func TestManyMoves(t *testing.T) {
	clusterBubble(t, func(t *testing.T, c *cluster, h *pubsub.Hub) {
		var waiters []*waiter
		for range 10 {
			waiters = append(waiters, newWaiter(h, "a"), newWaiter(h, "a2"), newWaiter(h, "b"))
		}
		for i := range 200 {
			for j, ch := range []string{"a", "a2", "b"} {
				from, to := "A", "B"
				if (i+j)%2 == 0 {
					from, to = to, from
				}
				c.move(to, ch)
				if s := c.servers[from]; s.has(ch) {
					s.conn().takeAway(ch)
				}
			}
			time.Sleep(time.Duration(i%7) * 5 * time.Millisecond)
		}
		time.Sleep(2 * time.Second)
		for i, w := range waiters {
			require.True(t, w.Live(), "waiter %d", i)
		}
		for ch, owner := range c.owners {
			require.True(t, c.servers[owner].has(ch))
		}
	})
}

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
