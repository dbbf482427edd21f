package lua_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-rlock/rlock/lua"
)

// ticket is a place in the queue.
type ticket struct {
	owner  string
	how    int
	called bool // after a lapse, and has not asked since
}

// queueModel is a lock with its queue as the scripts should treat it. Short names are
// used throughout.
type queueModel struct {
	holder    string
	tickets   []ticket
	record    string          // owner of the newest grant by the queue
	hears     map[string]bool // clients
	strangers bool            // listen

	granted []string // by the queue, in order
}

func clientOf(owner string) string { client, _, _ := strings.Cut(owner, ":"); return client }

func (m *queueModel) drop(owner string) {
	m.tickets = slices.DeleteFunc(m.tickets, func(t ticket) bool { return t.owner == owner })
}

// settle ends the record of a grant that has lapsed, or is released.
func (m *queueModel) settle(asker string) {
	if m.record != "" && clientOf(m.record) != clientOf(asker) {
		lives := map[string]bool{clientOf(asker): true}
		for _, t := range m.tickets {
			lives[clientOf(t.owner)] = lives[clientOf(t.owner)] || !t.called || t.how == 0
		}
		lives[clientOf(m.record)] = false
		m.tickets = slices.DeleteFunc(m.tickets, func(t ticket) bool { return !lives[clientOf(t.owner)] })
		for i, t := range m.tickets {
			m.tickets[i].called = t.called || t.how > 0 && clientOf(t.owner) != clientOf(asker)
		}
	}
	m.record = ""
}

// serve passes the lock on, up to the asker, and reports whether it is that one's turn.
func (m *queueModel) serve(shared bool, own, asker string) bool {
	for len(m.tickets) > 0 && m.tickets[0].owner != asker {
		t := m.tickets[0]
		client := clientOf(t.owner)
		if client == own || t.how == 0 || t.how == 2 || m.hears[client] {
			if !shared {
				m.tickets = m.tickets[1:]
				m.holder, m.record = t.owner, t.owner
				m.granted = append(m.granted, t.owner)
			}
			return false
		}
		for len(m.tickets) > 0 && clientOf(m.tickets[0].owner) == client && m.tickets[0].owner != asker {
			m.tickets = m.tickets[1:] // the client is dead
		}
	}
	return true
}

func (m *queueModel) ask(owner string, how int) {
	switch m.holder {
	case owner:
		return
	case "":
		if m.settle(owner); !slices.ContainsFunc(m.tickets, func(t ticket) bool { return t.owner == owner }) {
			defer func() { // its place is the last
				if m.holder != owner && how >= 0 {
					m.tickets = append(m.tickets, ticket{owner: owner, how: how})
				}
			}()
		} else {
			m.place(owner, how)
		}
		if m.serve(false, "", owner) {
			m.drop(owner)
			m.holder = owner
		}
		return
	}
	m.place(owner, how)
}

func (m *queueModel) place(owner string, how int) {
	if how < 0 {
		return
	}
	i := slices.IndexFunc(m.tickets, func(t ticket) bool { return t.owner == owner })
	if i < 0 {
		m.tickets = append(m.tickets, ticket{owner: owner, how: how})
		return
	}
	m.tickets[i].called = false
	if how > 0 {
		m.tickets[i].how = how
	}
}

func (m *queueModel) release(owner string, tickets []string) {
	for _, t := range append(slices.Clip(tickets), owner) { // a late request may have left the own ticket
		m.drop(t)
	}
	told := "" // by the answer; nobody may read that to a repetition
	switch {
	case m.holder == owner:
		m.holder, told = "", clientOf(owner)
	case m.holder != "" || len(m.tickets) == 0 && m.record == "":
		return
	}
	m.settle(owner)
	m.serve(m.strangers && len(m.tickets) > 0, told, "")
}

func (m *queueModel) String() string {
	var members []string
	if m.record != "" {
		members = append(members, "!"+m.record)
	}
	for _, t := range m.tickets {
		text := t.owner + hearing[t.how:][:1]
		if t.called {
			text += "?"
		}
		members = append(members, text)
	}
	return strings.TrimSpace(m.holder + " | " + strings.Join(members, " "))
}

// holderOnly is what is left without the hold count and the TTL.
func holderOnly(left string) string {
	lock, queue, _ := strings.Cut(left, "|")
	holder, _, _ := strings.Cut(lock, "=")
	return strings.TrimSpace(strings.TrimSpace(holder) + " | " + strings.TrimSpace(queue))
}

// queueRequest is a script call as it may lie about in the network.
type queueRequest struct {
	script  string
	owner   string
	how     int // -1: without a ticket
	tickets []string
}

func (r queueRequest) deliver(t require.TestingT, rdb *redis.Client, lock func(string) lua.Grant, m *queueModel) {
	ctx, g := context.Background(), lock(own(r.owner))
	switch r.script {
	case "ask":
		ticket := lua.Ticket{}
		if r.how >= 0 {
			ticket = lua.Ticket{Claim: claim, Hears: lua.Hearing(r.how)}
		}
		m.ask(r.owner, r.how)
		reply, err := lua.Ask(ctx, rdb, g, time.Minute, ticket, 0)
		require.NoError(t, err)
		require.Equal(t, m.holder == r.owner, reply.Acquired, "%+v", r)
		if !reply.Acquired && r.how >= 0 {
			require.Equal(t, m.tickets[0].owner == r.owner, reply.Place.First, "%+v", r)
		}
	case "try":
		if m.holder == "" {
			m.holder = r.owner
		}
		reply, err := lua.Acquire(ctx, rdb, g, time.Minute, 0)
		require.NoError(t, err)
		require.Equal(t, m.holder == r.owner, reply.Acquired)
	case "release":
		held := m.holder == r.owner
		m.release(r.owner, r.tickets)
		var e lua.Ending
		for _, ticket := range r.tickets {
			e.Tickets = append(e.Tickets, own(ticket))
		}
		released, err := lua.Release(ctx, rdb, g, e)
		if !held {
			require.ErrorIs(t, err, lua.ErrNotOwner)
		} else {
			require.NoError(t, err)
		}
		// Whoever of the same client has the lock now is named in the answer, or was
		// woken; nobody else is.
		if next := lua.ReadMessage(released.Message).Owner; next != "" {
			require.Equal(t, clientOf(r.owner), clientOf(shorten(next)))
		} else if held && m.holder != "" {
			require.NotEqual(t, clientOf(r.owner), clientOf(m.holder))
		}
	}
}

// Whatever is delivered, in whatever order, repeated or late, while clients come and
// go: server and model agree, whose queue is in order of arrival. So at most one owner
// holds the lock, a ticket is granted once, and who was released last has nothing.
func TestQueueInAnyOrder(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		for kind, lock := range map[string]func(string) lua.Grant{"plain": grant, "fenced": fenced, "fair": fair} {
			t.Run(kind, func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) { anyOrder(t, rt, rdb, lock) })
			})
		}
	})
}

func anyOrder(t *testing.T, rt *rapid.T, rdb *redis.Client, lock func(string) lua.Grant) {
	w := newWaiters(t, rdb, lock)
	defer func() {
		for client := range w.subs {
			w.deafen(client)
		}
	}()
	m := &queueModel{hears: make(map[string]bool)}
	var sent []queueRequest
	waiting := make(map[string]bool) // whose newest request may have left something
	n := 0
	for range rapid.IntRange(1, 40).Draw(rt, "events") {
		before, grants := m.String(), len(m.granted)
		event := rapid.SampledFrom([]string{"ask", "ask", "ask", "try", "release", "release", "again", "again", "expires", "client", "strangers"}).Draw(rt, "event")
		client := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "client")
		switch event {
		case "expires":
			require.NoError(rt, rdb.Del(context.Background(), "lock").Err())
			m.holder = ""
		case "client", "strangers":
			if event == "strangers" {
				client = "redisson"
				m.strangers = !m.strangers
			} else {
				m.hears[client] = !m.hears[client]
			}
			if _, ok := w.subs[client]; ok {
				w.deafen(client)
			} else {
				w.hear(client)
			}
		default:
			n++
			r := queueRequest{script: event, owner: fmt.Sprintf("%s:%d", client, n), how: rapid.IntRange(-1, 2).Draw(rt, "how")}
			if len(sent) > 0 && event != "try" && rapid.Bool().Draw(rt, "of somebody who asked") {
				r.owner = rapid.SampledFrom(sent).Draw(rt, "who").owner
			}
			if event == "release" && rapid.Bool().Draw(rt, "with ticket") {
				r.tickets = []string{r.owner}
			}
			if event == "again" {
				if len(sent) == 0 {
					continue
				}
				r = rapid.SampledFrom(sent).Draw(rt, "late")
			}
			sent = append(sent, r)
			r.deliver(rt, rdb, lock, m)
			waiting[r.owner] = r.script != "release"
			event = fmt.Sprint(r)
		}
		after := left(rt, rdb, "lock")
		require.Equal(rt, m.String(), holderOnly(after), "%s on %s", event, before)
		for _, owner := range m.granted[grants:] {
			require.Contains(rt, before+" "+event, owner, "it had a ticket")
			require.NotContains(rt, after, " "+owner+hearing[1:2], "it has one still")
		}
		for owner, may := range waiting {
			if !may {
				require.False(rt, m.holder == owner || slices.ContainsFunc(m.tickets, func(t ticket) bool { return t.owner == owner }))
			}
		}
	}
}
