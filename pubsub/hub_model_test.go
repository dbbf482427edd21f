package pubsub_test

import (
	"context"
	"errors"
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
				"join": m.join, "leave": m.leave, "take": m.take, "message": m.message,
				"subscribe": m.subscribe, "unsubscribe": m.unsubscribe,
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
	waiters []*place
	subs    []*ear
}

type place struct {
	*waiter
	channel string
	heard   int64 // as it should be
	live    bool  // at the last check
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
	p := &place{waiter: newWaiter(m.h, channel), channel: channel}
	m.waiters = append(m.waiters, p)
}

func (m *model) subscribe(t *rapid.T) {
	m.subs = append(m.subs, listen(m.h, channels.Draw(t, "channel")))
}

func (m *model) unsubscribe(t *rapid.T) {
	if len(m.subs) == 0 {
		t.Skip("no subscription")
	}
	i := rapid.IntRange(0, len(m.subs)-1).Draw(t, "subscription")
	m.subs[i].Close()
	m.subs = append(m.subs[:i:i], m.subs[i+1:]...)
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
	before := m.pending()
	w.Leave()
	require.Empty(t, w.C())
	require.Equal(t, before, m.pending(), "nobody else is woken")
}

func (m *model) pending() (n int) {
	for _, w := range m.waiters {
		n += len(w.C())
	}
	return n
}

func (m *model) take(t *rapid.T) { awake(m.waiters[m.any(t)].waiter) }

func (m *model) message(t *rapid.T) {
	c := m.conn(t)
	channel := channels.Draw(t, "channel")
	payload := rapid.SampledFrom([]string{"0", "0", "1", "junk"}).Draw(t, "payload")
	m.check(t)
	want := make(map[*place]bool) // who is woken, or was awake
	for _, w := range m.waiters {
		want[w] = len(w.C()) == 1
	}
	if m.s.has(channel) && !c.deaf {
		for _, w := range m.waiters {
			if w.channel != channel {
				continue
			}
			w.heard++
			want[w] = true
		}
		for _, e := range m.subs {
			if e.channel == channel {
				e.want = append(e.want, payload)
			}
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
		live := w.Live()
		if live {
			require.True(t, m.s.has(w.channel), "waiter %d is live, %q is not subscribed", i, w.channel)
		}
		if live != w.live {
			require.Len(t, w.C(), 1, "waiter %d was not told that live is now %v", i, live)
		}
		w.live = live
	}
	for i, e := range m.subs {
		require.Equal(t, e.want, e.messages(), "subscription %d", i)
		require.Equal(t, e.Live(), e.told(), "subscription %d was not told", i)
		if e.Live() {
			require.True(t, m.s.has(e.channel), "subscription %d is live, %q is not subscribed", i, e.channel)
		}
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
	for i, e := range m.subs {
		require.True(t, e.Live(), "subscription %d", i)
	}
	for _, w := range m.waiters {
		w.Leave()
	}
	for _, e := range m.subs {
		e.Close()
	}
	time.Sleep(5 * time.Second)
	for _, channel := range []string{"a", "b", "c"} {
		require.Equal(t, m.s.keeps(channel), m.s.has(channel), "%q is still subscribed", channel)
	}
	time.Sleep(time.Minute)
	require.Zero(t, m.s.opened())
}
