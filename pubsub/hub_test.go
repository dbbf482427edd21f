package pubsub_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/pubsub"
)

// bubble runs a test with a fake clock, a server and a hub. At its end all
// waiters that joined through it leave, and a hub with nothing to do has to end
// its goroutines without being closed: otherwise synctest fails the test.
func bubble(t *testing.T, test func(t *testing.T, s *server, join func(string) *waiter)) {
	t.Helper()
	redistest.Bubble(t, func(t *testing.T) {
		s := &server{}
		h := pubsub.NewHub(s, pubsub.Options{})
		var joined []*waiter
		test(t, s, func(channel string) *waiter {
			w := newWaiter(h, channel)
			joined = append(joined, w)
			synctest.Wait()
			return w
		})
		for _, w := range joined {
			w.Leave()
		}
		s.set(func() { s.manual, s.deaf, s.dial = false, false, nil })
		time.Sleep(time.Minute)
		assert.Zero(t, s.opened(), "connections of a hub at rest")
	})
}

// hubBubble is a bubble for tests that end by closing the hub.
func hubBubble(t *testing.T, test func(t *testing.T, s *server, h *pubsub.Hub)) {
	t.Helper()
	redistest.Bubble(t, func(t *testing.T) {
		s := &server{}
		h := pubsub.NewHub(s, pubsub.Options{})
		test(t, s, h)
		require.NoError(t, h.Close(t.Context()))
	})
}

// woken reports who has a wake-up, and takes them.
func woken(waiters []*waiter) (woken []bool) {
	synctest.Wait()
	for _, w := range waiters {
		woken = append(woken, awake(w))
	}
	return woken
}

func TestConfirmationIsAWakeUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		s.set(func() { s.manual = true })
		w := join("a")
		assert.False(t, awake(w))
		assert.False(t, w.Live())
		assert.Equal(t, []string{"SUBSCRIBE a"}, s.conn().requests())

		s.conn().answer(nil)
		synctest.Wait()
		assert.True(t, w.Live())
		assert.True(t, awake(w))

		second := join("a")
		assert.True(t, second.Live())
		assert.True(t, awake(second), "nothing left to wait for")
		assert.Empty(t, s.conn().requests())
	})
}

func TestRefusedChannelIsNeverLive(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		s.set(func() { s.manual = true })
		refused, granted := join("a"), join("b")
		conn := s.conn()
		conn.requests()
		conn.answer(errors.New("NOPERM no"))
		conn.answer(nil)
		synctest.Wait()
		assert.True(t, awake(refused))
		assert.False(t, refused.Live())
		assert.True(t, granted.Live())

		refused.Leave()
		for range 29 {
			conn.send(pubsub.Event{Kind: pubsub.Pong})
			time.Sleep(time.Second)
			refused = join("a")
			assert.False(t, awake(refused))
			refused.Leave()
		}
		assert.Empty(t, conn.requests(), "a refusal is remembered")

		refused = join("a")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"SUBSCRIBE a"}, conn.requests(), "for 30 s")
		conn.answer(nil)
		synctest.Wait()
		assert.True(t, refused.Live())
		assert.True(t, awake(refused))
	})
}

func TestRefusedUnsubscribeIsHarmless(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *waiter) {
		s.set(func() { s.manual = true })
		w := join("a")
		s.conn().answer(nil)
		synctest.Wait()
		w.Leave()
		time.Sleep(2 * time.Second)
		s.conn().answer(errors.New("NOPERM no"))
		synctest.Wait()
		w = join("a")
		assert.False(t, w.Live())
		s.conn().answer(nil)
		synctest.Wait()
		assert.True(t, w.Live())
	})
}

func TestLog(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &server{manual: true}
		h := pubsub.NewHub(s, pubsub.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		lines := func() []string {
			synctest.Wait()
			defer log.Reset()
			return strings.Split(strings.TrimSpace(log.String()), "\n")
		}
		for _, refusal := range []string{"NOPERM a", "NOPERM b", "ERR c", "ERR d"} {
			newWaiter(h, refusal)
			synctest.Wait()
			s.conn().answer(errors.New(refusal))
		}
		logged := lines()
		require.Len(t, logged, 2, "one of each kind")
		assert.Contains(t, logged[0], `error="NOPERM a"`)
		assert.Contains(t, logged[1], `error="ERR c"`)

		s.set(func() { s.dial = func(context.Context) error { return errors.New("no route") } })
		_ = s.conn().Close()
		time.Sleep(time.Minute)
		logged = lines()
		require.Len(t, logged, 1, "one for an outage")
		assert.Contains(t, logged[0], errBroken.Error())
		assert.NotContains(t, logged[0], "server=", "it has no name")

		s.set(func() { s.dial = nil })
		newWaiter(h, "e")
		for !s.conn().answer(nil) { // no connection yet, or between two
			time.Sleep(10 * time.Millisecond)
		}
		logged = lines()
		require.Len(t, logged, 1, "one for its end")
		assert.Contains(t, logged[0], `level=INFO msg="pubsub: connected again"`)

		require.NoError(t, h.Close(t.Context()))
		assert.Equal(t, []string{""}, lines())
	})
}

func TestNothingLingers(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		s := &server{}
		h := pubsub.NewHub(s, pubsub.Options{}.Lingering(-1).Idling(-1))
		w := newWaiter(h, "a")
		synctest.Wait()
		assert.True(t, w.Live())
		w.Leave()
		synctest.Wait()
		assert.Zero(t, s.opened())
	})
}

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
