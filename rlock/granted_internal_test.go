package rlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
)

// A message that grants the lock is trusted if it is known when that was at the
// earliest, and not for longer than the claim from then on. Otherwise the waiter asks.
func TestGrantByMessage(t *testing.T) {
	const second = 1e6 // of the server
	sent := time.Now()
	for name, test := range map[string]struct {
		lock    Lock
		time    int64 // of the grant, after the newest answer
		ticket  int64 // of the owner, likewise
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
		"before the ticket":               {ticket: 1},
		"of a fixed lease":                {lock: Lock{lockOptions: lockOptions{fixed: true}}},
		"of a lock that asks replicas":    {lock: Lock{lockOptions: lockOptions{replicas: replicas{n: 1}}}},
		"without the token that it needs": {lock: Lock{lockOptions: lockOptions{fenced: true}}},
		"with the token that it needs":    {lock: Lock{lockOptions: lockOptions{fenced: true}}, token: 7, trusted: true},
		"with a token that it cannot use": {token: 7, trusted: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := &grant{owner: "o", lock: &test.lock, acquisition: acquisition{place: moment{sent, test.ticket}}}
			w := &waiter{lock: &test.lock, queue: &queue{snapshot: snapshot{clock: moment{sent, 0}}}, attempt: g}
			w.place.message = lua.Message{Owner: "o", Granted: true, Time: test.time, Claim: 5 * time.Second, Token: test.token, Spare: 9}
			got := w.granted(sent.Add(test.after))
			require.Equal(t, test.trusted, got != nil)
			require.Equal(t, !test.trusted, w.again, "it asks instead")
			if got != nil {
				require.Equal(t, sent.Add(test.since), got.sent)
				require.Equal(t, 5*time.Second, got.initialLease)
				require.Equal(t, test.lock.fenced, got.token == 7)
				require.Equal(t, test.lock.fenced, got.run.spare == 9)
			}
			require.False(t, w.place.message.Granted, "it is looked at once")
		})
	}
}

// What was reserved for a waiter that leaves before it has looked at the message is given
// back with the lock. A grant that it has by a request keeps its token.
func TestTokensOfAMessageThatNobodyLookedAt(t *testing.T) {
	for _, owned := range []bool{false, true} {
		l := &Lock{lockOptions: lockOptions{fenced: true}}
		g := &grant{owner: "o", lock: l, acquisition: acquisition{token: 3}}
		w := &waiter{lock: l, queue: &queue{}, attempt: g}
		w.place.message = lua.Message{Owner: "o", Granted: true, Token: 7, Spare: 1024}
		if owned {
			w.got = g
			require.Nil(t, w.disown())
			require.EqualValues(t, 3, g.token)
			continue
		}
		require.Equal(t, g, w.disown())
		require.EqualValues(t, 7, g.token)
		require.EqualValues(t, 1024, g.run.spare)
	}
}

// When a foreign owner has released the lock, the first in the queue asks at once, and
// the others soon if they hear nothing of that.
func TestUnlockedByAForeignOwner(t *testing.T) {
	first, second, soon := &waiter{place: standing{Place: lua.Place{First: true}}}, &waiter{}, &waiter{askAt: time.Now()}
	second.askAt = time.Now().Add(time.Minute)
	q := &queue{tickets: map[string]*waiter{"a": first, "b": second, "c": soon}}
	before := soon.askAt
	q.unlocked()
	require.True(t, first.again)
	require.False(t, second.again)
	require.Less(t, time.Until(second.askAt), 2*reaction)
	require.Equal(t, before, soon.askAt)
}
