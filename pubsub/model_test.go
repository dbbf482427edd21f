package pubsub_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-rlock/rlock/pubsub"
)

// TestModel does anything in any order and compares the hub with what the server
// has executed.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := &model{s: &server{manual: true}}
			m.h = pubsub.NewHub(m.s, pubsub.Options{})
			defer func() { _ = m.h.Close(context.Background()) }() // a failed test may not have come to an end
			t.Repeat(map[string]func(*rapid.T){
				"join": m.join, "joinAll": m.joinAll, "joinNamed": m.joinNamed, "leave": m.leave, "take": m.take, "message": m.message,
				"answer": m.answer, "refuse": m.refuse, "moved": m.moved, "takeAway": m.takeAway,
				"break": m.breakConn, "deafen": m.deafen, "outage": m.outage,
				"sleep": m.sleep,
				"":      m.check,
			})
			m.quiesce(t)
		})
	})
}

type model struct {
	s       *server
	h       *pubsub.Hub
	waiters []*place // the longest first
}

type place struct {
	*pubsub.Waiter
	channel string
	all     bool   // joined with JoinAll
	name    string // joined with JoinNamed; "nobody" after another has joined with it
	message string // the newest for name
	heard   int64  // as it should be
	live    bool   // at the last check
}

var channels = rapid.SampledFrom([]string{"a", "b", "c"})

// conn returns the open connection, or ends the action.
func (m *model) conn(t *rapid.T) *connection {
	c := m.s.conn()
	if c == nil || m.s.opened() == 0 {
		t.Skip("no connection")
	}
	return c
}

func (m *model) join(t *rapid.T) {
	channel := channels.Draw(t, "channel")
	m.add(&place{Waiter: m.h.Join(channel), channel: channel})
}

func (m *model) joinAll(t *rapid.T) {
	channel := channels.Draw(t, "channel")
	m.add(&place{Waiter: m.h.JoinAll(channel), channel: channel, all: true})
}

func (m *model) joinNamed(t *rapid.T) {
	channel, name := channels.Draw(t, "channel"), rapid.SampledFrom([]string{"x", "y"}).Draw(t, "name")
	if before := m.called(channel, name); before != nil {
		before.name = "nobody"
	}
	m.add(&place{Waiter: m.h.JoinNamed(channel, name), channel: channel, name: name})
}

func (m *model) add(p *place) {
	p.heard = p.Heard()
	m.waiters = append(m.waiters, p)
}

func (m *model) any(t *rapid.T) int {
	if len(m.waiters) == 0 {
		t.Skip("no waiter")
	}
	return rapid.IntRange(0, len(m.waiters)-1).Draw(t, "waiter")
}

func (m *model) leave(t *rapid.T) {
	i := m.any(t)
	w := m.waiters[i]
	m.waiters = append(m.waiters[:i:i], m.waiters[i+1:]...)
	had := len(w.C()) == 1
	next, before := m.sleeper(w.channel), m.pending()
	w.Leave()
	require.Empty(t, w.C())
	if had && w.queues() && next != nil {
		require.Len(t, next.C(), 1, "a pending wake-up is handed on")
		before++
	}
	require.Equal(t, before, m.pending(), "and nobody else is woken")
}

func (p *place) queues() bool { return !p.all && p.name == "" }

// sleeper returns the longest waiter of a channel that has no wake-up.
func (m *model) sleeper(channel string) *place {
	for _, w := range m.waiters {
		if w.channel == channel && w.queues() && len(w.C()) == 0 {
			return w
		}
	}
	return nil
}

// called returns the waiter of that name.
func (m *model) called(channel, name string) *place {
	for _, w := range m.waiters {
		if w.channel == channel && w.name == name && name != "" {
			return w
		}
	}
	return nil
}

func (m *model) pending() (n int) {
	for _, w := range m.waiters {
		n += len(w.C())
	}
	return n
}

func (m *model) take(t *rapid.T) { awake(m.waiters[m.any(t)].Waiter) }

func (m *model) message(t *rapid.T) {
	c := m.conn(t)
	channel := channels.Draw(t, "channel")
	payload := rapid.SampledFrom([]string{"0", "0", "1", "junk", "x", "y", "y 1"}).Draw(t, "payload")
	name, _, _ := strings.Cut(payload, " ")
	m.check(t)
	want := make(map[*place]bool) // who is woken, or was awake
	for _, w := range m.waiters {
		want[w] = len(w.C()) == 1
	}
	if m.s.has(channel) && !c.deaf {
		called, next := m.called(channel, name), m.sleeper(channel)
		for _, w := range m.waiters {
			if w.channel != channel {
				continue
			}
			w.heard++
			switch {
			case called != nil:
				want[w] = want[w] || w == called
			case w.all, w.queues() && payload == "1", w == next:
				want[w] = true
			}
		}
		if called != nil {
			called.message = payload
		}
	}
	c.publish(channel, payload)
	synctest.Wait()
	for i, w := range m.waiters {
		require.Equal(t, want[w], len(w.C()) == 1, "waiter %d", i)
	}
}

func (m *model) answer(t *rapid.T) { m.conn(t).answer(nil) }
func (m *model) refuse(t *rapid.T) { m.conn(t).answer(errors.New("NOPERM")) }

func (m *model) moved(t *rapid.T) { m.conn(t).answerMoved() }

func (m *model) takeAway(t *rapid.T) {
	c, channel := m.conn(t), channels.Draw(t, "channel")
	if !m.s.has(channel) || c.deaf {
		t.Skip("not subscribed")
	}
	c.takeAway(channel)
}

func (m *model) breakConn(t *rapid.T) { _ = m.conn(t).Close() }

func (m *model) deafen(t *rapid.T) {
	c := m.conn(t)
	m.s.set(func() { c.deaf = true })
}

func (m *model) outage(t *rapid.T) {
	m.s.set(func() { m.s.dial = func(context.Context) error { return errBroken } })
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second}).Draw(t, "outage"))
	m.s.set(func() { m.s.dial = nil })
}

func (m *model) sleep(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{
		time.Millisecond, 20 * time.Millisecond, 500 * time.Millisecond, time.Second, 6 * time.Second, 30 * time.Second,
	}).Draw(t, "sleep"))
}

func (m *model) check(t *rapid.T) {
	synctest.Wait()
	for i, w := range m.waiters {
		require.Equal(t, w.heard, w.Heard(), "waiter %d", i)
		require.Equal(t, w.message, w.Message(), "waiter %d", i)
		live := w.Live()
		if live {
			require.True(t, m.s.has(w.channel), "waiter %d is live, %q is not subscribed", i, w.channel)
		}
		if live != w.live {
			require.Len(t, w.C(), 1, "waiter %d was not told that live is now %v", i, live)
		}
		w.live = live
	}
}

// quiesce lets the server answer again: everybody becomes live, and when they
// have left, nothing remains.
func (m *model) quiesce(t *rapid.T) {
	m.s.set(func() { m.s.manual = false })
	time.Sleep(time.Minute)
	m.check(t)
	for i, w := range m.waiters {
		require.True(t, w.Live(), "waiter %d", i)
	}
	for _, w := range m.waiters {
		w.Leave()
	}
	time.Sleep(5 * time.Second)
	for _, channel := range []string{"a", "b", "c"} {
		require.False(t, m.s.has(channel), "%q is still subscribed", channel)
	}
	time.Sleep(time.Minute)
	require.Zero(t, m.s.opened())
}
