package rlock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/internal/request"
	"github.com/go-rlock/rlock/lua"
)

// The table of what ends the sleep of a waiter, in docs/architecture.md, row by row: what happens,
// and what the waiter does next. It was refused a moment ago, has the first ticket, hears, and would
// sleep for a second. That a context ends is seen by sleep, not here.
func TestNext(t *testing.T) {
	const asks, sleeps, has, fails = "asks", "sleeps", "has the lock", "fails"
	now, held := time.Now(), (*Hold)(nil)
	refused := func(w *waiter, ttl time.Duration, p lua.Place) {
		a := request.Answer[lua.Reply]{Sent: now}
		a.Value.TTL, a.Value.Place = ttl, p
		require.NoError(t, w.queueUp(a, &NotAcquiredError{}, lua.Ticket{Claim: time.Second, Hears: 1}))
	}
	own := func(w *waiter) {
		_, hold, err := w.lock.Lock(context.Background())
		require.NoError(t, err)
		w.queue.grants, held = []*grant{hold.grant}, hold
	}
	for name, row := range map[string]struct {
		happens  func(w *waiter)
		then     string
		from, to time.Duration // for how long it sleeps
	}{
		"a grant by a message": {happens: func(w *waiter) {
			w.queue.heard(lua.Message{Owner: "mine", Granted: true, Time: 1, Claim: longestClaim})
		}, then: has},
		"a grant by a message that is not trusted": {happens: func(w *waiter) {
			w.queue.heard(lua.Message{Owner: "mine", Granted: true, Time: 1, Claim: time.Millisecond})
		}, then: asks},
		"a message without a grant": {happens: func(w *waiter) { w.queue.heard(lua.Message{Owner: "mine"}) }, then: asks},
		"a message to another":      {happens: func(w *waiter) { w.queue.heard(lua.Message{Owner: "other"}) }, then: sleeps, from: 900 * time.Millisecond, to: time.Second},
		"the loss of all places":    {happens: func(w *waiter) { w.queue.heard(lua.Message{Owner: lua.Everybody}) }, then: asks},
		"the subscription was lost": {happens: func(w *waiter) { w.queue.changed() }, then: asks},
		"the subscription was lost while a request is under way": {happens: func(w *waiter) {
			w.state = waiterAsking
			w.queue.changed()
			refused(w, time.Hour, lua.Place{Time: 2, First: true})
		}, then: asks},
		"the subscription cannot be relied on": {happens: func(w *waiter) {
			w.queue.signal = nil
			refused(w, time.Hour, lua.Place{Time: 2})
		}, then: sleeps, from: 50 * time.Millisecond, to: 50 * time.Millisecond},
		"nor for the first ticket, for the fifth time": {happens: func(w *waiter) {
			w.queue.signal, w.place.silent = nil, 5
			refused(w, time.Hour, lua.Place{Time: 2, First: true})
		}, then: sleeps, from: firstPause, to: firstPause},
		"the holder's TTL ends soon": {happens: func(w *waiter) {
			refused(w, 100*time.Millisecond, lua.Place{Time: 2, First: true})
		}, then: sleeps, from: 101 * time.Millisecond, to: 105 * time.Millisecond},
		"the holder's TTL ends soon, and another ticket is the first": {happens: func(w *waiter) {
			refused(w, 200*time.Millisecond, lua.Place{Time: 2})
		}, then: sleeps, from: 250 * time.Millisecond, to: 360 * time.Millisecond},
		"the holder's TTL has passed": {happens: func(w *waiter) { w.askAt = now }, then: asks},
		"the key has no TTL": {happens: func(w *waiter) {
			w.since = now.Add(-time.Minute)
			refused(w, -1, lua.Place{Time: 2, First: true})
		}, then: sleeps, from: ttlPause, to: ttlPause},
		"the server has no memory for a ticket": {happens: func(w *waiter) {
			refused(w, time.Hour, lua.Place{})
		}, then: sleeps, from: deafPause, to: deafPause},
		"its own client has the lock":               {happens: own, then: sleeps, from: time.Second, to: time.Second},
		"its own client still has it after a while": {happens: func(w *waiter) { own(w); w.askAt = now }, then: asks},
		"it has waited for long": {happens: func(w *waiter) {
			w.since = now.Add(-time.Minute)
			refused(w, time.Hour, lua.Place{Time: 2, First: true})
		}, then: sleeps, from: keepAlive, to: keepAlive * 11 / 10},
		"many wait": {happens: func(w *waiter) {
			refused(w, time.Hour, lua.Place{Time: 2, First: true, Queue: 60})
		}, then: sleeps, from: 3 * time.Second, to: 3300 * time.Millisecond},
		"a foreign owner announces a release": {happens: func(w *waiter) { w.queue.unlocked() }, then: asks},
		"a foreign owner announces a release to another than the first ticket": {happens: func(w *waiter) {
			w.place.First = false
			w.queue.unlocked()
		}, then: sleeps, from: reaction - 50*time.Millisecond, to: reaction + time.Second/2},
		"a hand-off":                    {happens: func(w *waiter) { w.state, w.grant = waiterGiven, &grant{} }, then: has},
		"another comes to be before it": {happens: func(w *waiter) { w.queue.writers.first = &waiter{} }, then: sleeps, from: maxPause, to: maxPause},
		"and has no answer": {happens: func(w *waiter) {
			w.queue.writers.first, w.since = &waiter{}, now.Add(-time.Minute)
			w.queue.news.since, w.queue.news.failed, w.queue.news.trouble = w.since, now, errCut
		}, then: fails},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				now = time.Now()
				_, l, _ := newFake(t)
				l.terms.tickets = true
				q := &queue{key: l.key, signal: live{}}
				w := &waiter{lock: l, queue: q, since: now, state: waiterQueued, askAt: now.Add(time.Second), place: place{attempt: &grant{lock: l, owner: "mine"}}}
				w.place.Place = lua.Place{Time: 1, First: true}
				q.writers.first, q.writers.last, q.tickets, q.news.clock = w, w, map[string]*waiter{"mine": w}, moment{now, 1}
				row.happens(w)
				s := w.next(now, w.blocker())
				require.Equal(t, row.then == has, s.grant != nil)
				require.Equal(t, row.then == asks, s.ask)
				require.Equal(t, row.then == fails, s.err != nil)
				require.GreaterOrEqual(t, s.sleep, row.from)
				require.LessOrEqual(t, s.sleep, row.to)
				if held != nil {
					require.NoError(t, held.Unlock(t.Context()))
					held = nil
				}
			})
		})
	}
}
