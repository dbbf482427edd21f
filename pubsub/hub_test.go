package pubsub_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/pubsub"
)

// bubble runs a test with a fake clock, a server and a hub. At its end all
// waiters that joined through it leave, and a hub with nothing to do has to end
// its goroutines without being closed: otherwise synctest fails the test.
func bubble(t *testing.T, test func(t *testing.T, s *server, join func(string) *pubsub.Waiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		h := pubsub.NewHub(s, pubsub.Options{})
		var joined []*pubsub.Waiter
		test(t, s, func(channel string) *pubsub.Waiter {
			w := h.Join(channel)
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
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		h := pubsub.NewHub(s, pubsub.Options{})
		test(t, s, h)
		require.NoError(t, h.Close(t.Context()))
	})
}

// woken reports who has a wake-up, and takes them.
func woken(waiters []*pubsub.Waiter) (woken []bool) {
	synctest.Wait()
	for _, w := range waiters {
		woken = append(woken, awake(w))
	}
	return woken
}

func TestConfirmationIsAWakeUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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

func TestMessageWakesTheLongestWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
		first, second, third, other := join("a"), join("a"), join("a"), join("b")
		all := []*pubsub.Waiter{first, second, third, other}
		for _, w := range all {
			assert.True(t, awake(w))
		}
		for _, payload := range []string{"0", "", "unlock", "10", "\x80"} {
			s.conn().publish("a", payload)
			assert.Equal(t, []bool{true, false, false, false}, woken(all), "payload %q", payload)
		}
		s.conn().publish("a", "1")
		assert.Equal(t, []bool{true, true, true, false}, woken(all))

		s.conn().publish("a", "0")
		s.conn().publish("a", "0")
		assert.Equal(t, []bool{true, true, false, false}, woken(all), "one each")
		for range 10 {
			s.conn().publish("a", "0")
		}
		assert.Equal(t, []bool{true, true, true, false}, woken(all), "coalesced")

		s.conn().send(pubsub.Event{Kind: pubsub.Message, Channel: "unheard of"})
		assert.Equal(t, []bool{false, false, false, false}, woken(all))
	})
}

func TestEachMessageWakesThoseThatWantAll(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
		first, all, second, other := h.Join("a"), h.JoinAll("a"), h.Join("a"), h.JoinAll("a")
		waiters := []*pubsub.Waiter{first, all, second, other}
		synctest.Wait()
		assert.Equal(t, []bool{true, true, true, true}, woken(waiters), "confirmed")

		s.conn().publish("a", "0")
		assert.Equal(t, []bool{true, true, false, true}, woken(waiters))
		s.conn().publish("a", "1")
		assert.Equal(t, []bool{true, true, true, true}, woken(waiters))
		_ = s.conn().Close()
		assert.Equal(t, []bool{true, true, true, true}, woken(waiters), "in doubt")
		time.Sleep(20 * time.Millisecond)
		assert.Equal(t, []bool{true, true, true, true}, woken(waiters))

		s.conn().publish("a", "0")
		s.conn().publish("a", "0")
		synctest.Wait()
		all.Leave()
		second.Leave()
		assert.Equal(t, []bool{true, false, false, true}, woken(waiters), "nothing to hand on")
	})
}

func TestHeardCountsEveryMessage(t *testing.T) {
	hubBubble(t, func(t *testing.T, s *server, h *pubsub.Hub) {
		w := h.Join("a")
		synctest.Wait()
		assert.Zero(t, w.Heard())
		all := h.JoinAll("a")
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

func TestLeaveHandsAPendingWakeUpOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
		first, second, third := join("a"), join("a"), join("a")
		for _, w := range []*pubsub.Waiter{first, second, third} {
			assert.True(t, awake(w))
		}
		s.conn().publish("a", "0")
		synctest.Wait()
		first.Leave()
		first.Leave()
		assert.False(t, awake(first))
		assert.False(t, first.Live())
		assert.True(t, awake(second))
		assert.False(t, awake(third), "handed on once")

		second.Leave()
		assert.False(t, awake(third), "nothing to hand on")
	})
}

func TestChannelLingers(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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

func TestConnectionClosesWhenIdle(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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

func TestPauseBetweenConnectionsGrows(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := &server{dial: func(context.Context) error {
			time.Sleep(time.Minute) // does not care about its context
			return nil
		}}
		h := pubsub.NewHub(s, pubsub.Options{})
		w := h.Join("a")
		time.Sleep(time.Second)
		assert.False(t, w.Live())
		h.Join("b").Leave()
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

func TestRefusedChannelIsNeverLive(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &server{manual: true}
		h := pubsub.NewHub(s, pubsub.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		lines := func() []string {
			synctest.Wait()
			defer log.Reset()
			return strings.Split(strings.TrimSpace(log.String()), "\n")
		}
		for _, refusal := range []string{"NOPERM a", "NOPERM b", "ERR c", "ERR d"} {
			h.Join(refusal)
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
		time.Sleep(time.Minute)
		h.Join("e")
		synctest.Wait()
		s.conn().answer(nil)
		logged = lines()
		require.Len(t, logged, 1, "one for its end")
		assert.Contains(t, logged[0], `level=INFO msg="pubsub: connected again"`)

		require.NoError(t, h.Close(t.Context()))
		assert.Equal(t, []string{""}, lines())
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
			bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
		s.set(func() { s.manual = true })
		join("a")
		s.conn().send(pubsub.Event{Kind: pubsub.Unsubscribed, Channel: "a"})
		synctest.Wait()
		assert.Zero(t, s.opened())
	})
}

func TestLingeringChannelIsNotWorthAConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
		join("a").Leave()
		_ = s.conn().Close()
		time.Sleep(time.Minute)
		assert.Len(t, s.dialled(), 1)
	})
}

func TestAbandonedConnectionHasNoEffect(t *testing.T) {
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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
	bubble(t, func(t *testing.T, s *server, join func(string) *pubsub.Waiter) {
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

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
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

func TestOptions(t *testing.T) {
	assert.Panics(t, func() { pubsub.NewHub(nil, pubsub.Options{ProbeInterval: -1}) })
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		h := pubsub.NewHub(s, pubsub.Options{Linger: -1, Idle: -1})
		w := h.Join("a")
		synctest.Wait()
		assert.True(t, w.Live())
		w.Leave()
		synctest.Wait()
		assert.Zero(t, s.opened())
	})
}

// Channels that hardly linger make SUBSCRIBE and UNSUBSCRIBE cross all the time.
func TestManyJoinAndLeave(t *testing.T) {
	s := &server{}
	h := pubsub.NewHub(s, pubsub.Options{Linger: time.Microsecond, Idle: time.Microsecond})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 2000 {
				channel := strconv.Itoa(rand.IntN(4))
				w := h.Join(channel)
				if rand.IntN(4) > 0 {
					for <-w.C(); !w.Live(); {
						<-w.C()
					}
					if !s.has(channel) {
						t.Errorf("live on %s without a subscription", channel)
					}
				}
				w.Leave()
			}
		})
	}
	wg.Wait()
	require.NoError(t, h.Close(t.Context()))
	assert.Zero(t, s.opened())
}
