package lua_test

import (
	"context"
	"errors"
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

// request is a script call as it may lie about in the network.
type request struct {
	script string
	owner  string
	lease  time.Duration // in steps of 10 s, which is what show tells apart
	n      int           // of count
}

// deliver has the server execute a request, and returns its answer.
func (r request) deliver(t require.TestingT, rdb *redis.Client) string {
	ctx := context.Background()
	var err error
	switch r.script {
	case "acquire":
		var reply lua.Reply
		reply, err = lua.Acquire(ctx, rdb, grant(r.owner), r.lease, 0)
		if err == nil && !reply.Acquired {
			return "refused, " + showTTL(reply.TTL)
		}
	case "count":
		err = lua.Count(ctx, rdb, grant(r.owner), r.lease, r.n)
	case "release":
		_, err = lua.Release(ctx, rdb, grant(r.owner), lua.Ending{})
	case "renew":
		err = lua.Renew(ctx, rdb, []lua.Renewal{{Grant: grant(r.owner), Lease: r.lease}})[0]
	}
	if errors.Is(err, lua.ErrNotOwner) {
		return "not owner"
	}
	require.NoError(t, err)
	return "done"
}

// model is a lock as the scripts should treat it. Its time stands still.
type model struct {
	owner string // "" if free
	holds int
	ttl   time.Duration
}

func (m *model) deliver(r request) string {
	switch {
	case r.script == "acquire" && m.owner == "":
		*m = model{r.owner, 1, r.lease}
		return "done"
	case r.script == "acquire" && m.owner != r.owner:
		return "refused, " + showTTL(m.ttl)
	case m.owner != r.owner:
		return "not owner"
	case r.script == "release":
		*m = model{}
		return "done"
	case r.script == "count":
		m.holds = r.n
	}
	m.ttl = max(m.ttl, r.lease) // never shortened
	return "done"
}

func (m *model) String() string {
	if m.owner == "" {
		return ""
	}
	return fmt.Sprintf("%s=%d %s", m.owner, m.holds, showTTL(m.ttl))
}

func drawRequest(t *rapid.T, owner string) request {
	return request{
		script: rapid.SampledFrom([]string{"acquire", "count", "release", "renew"}).Draw(t, "script"),
		owner:  owner,
		lease:  time.Duration(rapid.IntRange(3, 6).Draw(t, "lease")) * 10 * time.Second,
		n:      rapid.IntRange(1, 5).Draw(t, "n"),
	}
}

// Whatever is delivered, in whatever order, server and model agree, and a
// repetition changes nothing. In particular no key is without TTL, no TTL is
// shortened, and nothing of one owner touches another.
func TestAnyOrderOfDeliveries(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			require.NoError(t, rdb.Del(context.Background(), "lock").Err())
			m := &model{}
			for range rapid.IntRange(1, 30).Draw(t, "requests") {
				r := drawRequest(t, rapid.SampledFrom([]string{"a:1", "a:2", "b:1"}).Draw(t, "owner"))
				require.Equal(t, m.deliver(r), r.deliver(t, rdb))
				require.Equal(t, m.String(), show(t, rdb, "lock"))
				if rapid.Bool().Draw(t, "again") {
					r.deliver(t, rdb)
					require.Equal(t, m.String(), show(t, rdb, "lock"), "repeated")
				}
			}
		})
	})
}

// A client takes the lock again and again, with a new owner each time, while
// requests of earlier grants, and of this one, are delivered once more. They may
// show a wrong number until the next request; they never end the grant, and the
// number is right whenever one of the client's own requests has been answered.
func TestLateDeliveriesLeaveTheGrant(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, rdb *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			require.NoError(t, rdb.Del(context.Background(), "lock").Err())
			var sent []request
			late := func(holder string) {
				for range rapid.IntRange(0, 3).Draw(t, "late") {
					r := rapid.SampledFrom(sent).Draw(t, "late request")
					if r.owner == holder && r.script == "release" {
						continue // not sent yet
					}
					r.deliver(t, rdb)
					if holder == "" {
						// A late acquire has made an orphan. It ends with its
						// lease, or by the release that follows in such a case.
						request{script: "release", owner: r.owner}.deliver(t, rdb)
						require.Empty(t, show(t, rdb, "lock"))
					}
				}
			}
			for i := range rapid.IntRange(1, 4).Draw(t, "grants") {
				owner := fmt.Sprintf("a:%d", i)
				send := func(r request) string {
					r.owner = owner
					sent = append(sent, r)
					return r.deliver(t, rdb)
				}
				require.Equal(t, "done", send(request{script: "acquire", lease: 10 * time.Second}))
				late(owner)
				for range rapid.IntRange(0, 4).Draw(t, "nested") {
					r := request{script: "count", lease: 10 * time.Second, n: rapid.IntRange(1, 5).Draw(t, "n")}
					require.Equal(t, "done", send(r))
					require.Equal(t, fmt.Sprintf("%s=%d 10s", owner, r.n), show(t, rdb, "lock"))
					late(owner)
				}
				require.Equal(t, "done", send(request{script: "release"}))
				require.Empty(t, show(t, rdb, "lock"))
				late("")
			}
		})
	})
}

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
