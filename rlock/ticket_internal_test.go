package rlock

import (
	"context"
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

// A message that grants the lock is trusted if it is known when that was at the earliest, and not for longer than the
// claim from then on. Otherwise the asker asks.
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
					l = c.NewFairLock("a") // two of its calls may ask at a time
				}
				l.use(f)
				const there = 100 * second
				a, w := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: there}})
				defer w.leave()
				if test.late {
					_, other := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: there - 2}})
					defer other.leave()
				}
				sent := time.Now()
				now := sent.Add(test.after)
				m := lua.Message{Owner: a.owner.name, Granted: true, Time: there + test.time, Claim: 5 * time.Second, Token: test.token, Spare: 9}
				since, trusted := a.trusts(m, now)
				require.Equal(t, test.trusted, trusted)
				if !trusted {
					return
				}
				require.Equal(t, sent.Add(test.since), since)
				l.withQueue(func(q *queue) {
					a.message = m
					g := a.accept(now)
					require.False(t, a.message.Granted, "it is looked at once")
					require.Equal(t, since, g.sent)
					require.Equal(t, 5*time.Second, g.initialLease)
					require.Equal(t, l.terms.fenced, g.token == 7)
					require.Equal(t, l.terms.fenced, g.run.spare == 9)
					c.background(g.forgo)
				})
			})
		})
	}
}

// What was reserved for a waiter that leaves before a message was looked at is given back with the lock. A grant
// by a request keeps its token.
func TestTokensOfAMessageThatNobodyLookedAt(t *testing.T) {
	for _, owned := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			c, _, f := newFake(t)
			l := c.NewLock("a", WithFencing())
			l.use(f)
			a, w := f.enter(t, l, lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1}})
			owner := a.owner.name
			asked := make(chan struct{})
			f.onAcquire = func(context.Context, int) (lua.Reply, error) {
				<-asked
				if owned {
					return lua.Reply{Acquired: true, Token: 3}, nil
				}
				return lua.Reply{TTL: time.Hour, Place: lua.Place{Time: 1}}, nil
			}
			l.withQueue((*queue).askAll)
			synctest.Wait() // a request is under way
			l.hear(owner + " 2 6000 7 1024")
			if !owned {
				w.leave()
				synctest.Wait() // the owner is withdrawn before its answer comes
			}
			close(asked)
			synctest.Wait()
			if owned {
				<-w.served
				require.EqualValues(t, 3, w.grant.token)
				require.Empty(t, f.calls("release"))
				w.grant.forgo()
				return
			}
			require.Len(t, f.calls("release"), 2, "the second as the answer tells of a ticket")
			require.Equal(t, lua.Ending{Tickets: []string{owner}, Used: 7, Reserved: 7 + 1024}, f.ends[0])
		})
	}
}
