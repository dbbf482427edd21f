package rlock

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
)

// Owners of this library are told from those of Redisson.
func TestOurs(t *testing.T) {
	for owner, want := range map[string]bool{
		"d2k7m3o6n88ekjf0v0vg:1": true, "d2k7m3o6n88ekjf0v0vg:4711": true,
		"5f2b6f0e-90d1-4b0c-9d0f-6c43b6ac4d5f:1": false, "": false, "x:1": false,
		"d2k7m3o6n88ekjf0v0v-:1": false, "d2k7m3o6n88ekjf0v0vgg:1": false,
	} {
		require.Equal(t, want, ours(owner), owner)
	}
}

// A message that grants the lock is trusted if it is known when that was at the
// earliest, and not for longer than the claim from then on. Otherwise the waiter asks.
func TestGrantByMessage(t *testing.T) {
	const second = 1e6 // of the server
	for name, test := range map[string]struct {
		opts    []LockOption
		time    int64 // of the grant, after the waiter's newest answer
		late    bool  // the answer to another waiter is older than that, and came later
		token   int64
		after   time.Duration // when the message is looked at
		trusted bool
		since   time.Duration // when the window begins
	}{
		"at once":                         {trusted: true},
		"later":                           {time: 10 * second, after: 10 * time.Second, trusted: true, since: 10*time.Second - 102*time.Millisecond},
		"after half of the claim":         {time: 10 * second, after: 13 * time.Second},
		"longer than can be reckoned":     {time: 31 * second, after: 31 * time.Second},
		"before the newest answer":        {time: -1},
		"from the future":                 {time: 10 * second, after: time.Second},
		"before the ticket":               {time: -1, late: true},
		"of a fixed lease":                {opts: []LockOption{WithoutRenewal()}},
		"of a lock that asks replicas":    {opts: []LockOption{WithReplicas(1, time.Second)}},
		"without the token that it needs": {opts: []LockOption{WithFencing()}},
		"with the token that it needs":    {opts: []LockOption{WithFencing()}, token: 7, trusted: true},
		"with a token that it cannot use": {token: 7, trusted: true},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				c, _, f := newFake(t)
				l := c.NewLock("a", test.opts...)
				if test.late {
					l = c.NewFairLock("a") // two of its waiters may ask at a time
				}
				l.use(f)
				const there = 100 * second
				w := f.withTicket(t, l, there)
				defer w.leave()
				if test.late {
					defer f.withTicket(t, l, there-2).leave()
				}
				sent := time.Now()
				time.Sleep(test.after)
				l.hear(fmt.Sprint(w.place.attempt.owner, " ", int64(there)+test.time, " 5000 ", test.token, " 9"))
				s := w.step()
				require.Equal(t, test.trusted, s.grant != nil)
				require.Equal(t, !test.trusted, s.ask)
				if g := s.grant; g != nil {
					require.Equal(t, sent.Add(test.since), g.sent)
					require.Equal(t, 5*time.Second, g.initialLease)
					require.Equal(t, l.terms.fenced, g.token == 7)
					require.Equal(t, l.terms.fenced, g.run.spare == 9)
				}
				require.False(t, w.place.message.Granted, "it is looked at once")
			})
		})
	}
}

// withTicket returns a waiter that is refused, and has a ticket since then by the server's clock.
func (f *fake) withTicket(t *testing.T, l *Lock, there int64) *waiter {
	w, _ := l.queues.enter(l, time.Now())
	for range 3 { // who hears nothing takes a ticket when it was refused two times
		f.refuse(t, w, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: there}})
	}
	return w
}

// What was reserved for a waiter that leaves before it has looked at the message is given
// back with the lock. A grant that it has by a request keeps its token.
func TestTokensOfAMessageThatNobodyLookedAt(t *testing.T) {
	for _, owned := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			c, _, f := newFake(t)
			l := c.NewLock("a", WithFencing())
			l.use(f)
			w := f.withTicket(t, l, 1)
			g := w.place.attempt
			l.hear(g.owner + " 2 6000 7 1024")
			if owned {
				f.onAcquire = func(context.Context, int) (lua.Reply, error) { return lua.Reply{Acquired: true, Token: 3}, nil }
				got, err := w.ask(t.Context())
				require.NoError(t, err)
				require.Same(t, g, got)
			}
			w.leave()
			synctest.Wait()
			if owned {
				require.Empty(t, f.calls("release"))
				require.EqualValues(t, 3, g.token)
				return
			}
			require.Len(t, f.calls("release"), 1)
			require.EqualValues(t, 7, g.token)
			require.EqualValues(t, 1024, g.run.spare)
		})
	}
}
