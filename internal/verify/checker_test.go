package verify

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// script writes a history by hand: each line is an event 10 ms after the one before.
type script []event

// ret is the return of an operation, with defaults.
func ret(client int, id string, k kind, grant string, r result) event {
	return event{Client: client, ID: id, Kind: k, Return: true, Grant: grant, Result: r}
}

func call(client int, id string, k kind, grant string) event {
	return event{Client: client, ID: id, Kind: k, Grant: grant}
}

// both are the call and return of an operation that nothing overlaps.
func both(client int, id string, k kind, grant string, r result) script {
	return script{call(client, id, k, grant), ret(client, id, k, grant, r)}
}

// token gives the operation's return a token, value what it read or wrote.
func (s script) token(n int64) script { s[len(s)-1].Token = n; return s }
func (s script) value(n int64) script { s[0].Value, s[len(s)-1].Value = n, n; return s }

// of gives the grant an owner on the server.
func (s script) of(owner string) script { s[len(s)-1].Owner = owner; return s }

// seen is the time of the operation's own call, as the holder looked right before it.
func (s script) seen() script { s[0].Seen = -1; return s }

func join(parts ...script) (events []event) {
	for _, part := range parts {
		for _, e := range part {
			e.At, e.Lock = int64(len(events)+1)*int64(10*ms), "a"
			if e.Seen < 0 {
				e.Seen = e.At
			}
			events = append(events, e)
		}
	}
	return events
}

// The checker accepts what a lock may do and refuses what it must not. Without
// this, a table full of zeros would mean nothing.
func TestChecker(t *testing.T) {
	lockA, lockB := both(0, "A", opLock, "", ok), both(1, "B", opLock, "", ok)
	unlockA, unlockB := both(0, "a", opUnlock, "A", ok).seen(), both(1, "b", opUnlock, "B", ok).seen()
	lostA := script{{Client: 0, ID: "x", Kind: opLost, Grant: "A"}}
	unlockC := both(2, "c", opUnlock, "C", ok).seen()
	flushed := []oblivion{{span{int64(25 * ms), int64(26 * ms)}, ""}}
	look := both(0, "w", opNest, "A", unknown).seen() // shows no more than that A believes in its lock

	for _, test := range []struct {
		name   string
		events []event
		gone   []oblivion
		ok     bool
	}{
		{"one after the other", join(lockA, unlockA, lockB, unlockB), nil, true},
		{"granted while the unlock is under way", join(lockA, unlockA[:1], lockB, unlockA[1:], unlockB), nil, true},
		{"two holders at once", join(lockA, lockB, unlockA, unlockB), nil, false},
		{"two holders at once, and one never unlocks", join(lockA, lockB, look, unlockB), nil, false},
		{"next holder after a loss", join(lockA, lostA, lockB, unlockB), nil, true},
		{"next holder before the loss is told", join(lockA, lockB, look, lostA, unlockB), nil, false},
		{"next holder before the loss is told, but nobody looked", join(lockA, lockB, lostA, unlockB), nil, true},
		{"next holder before the loss is told, of a lock that the server forgot", join(lockA, lockB, look, lostA, unlockB), []oblivion{{span{int64(25 * ms), int64(26 * ms)}, "a"}}, true},
		{"the server forgot another lock", join(lockA, lockB, look, lostA, unlockB), []oblivion{{span{int64(25 * ms), int64(26 * ms)}, "b"}}, false},
		{"the server forgot too late", join(lockA, lockB, look, lostA, unlockB), []oblivion{{span{int64(55 * ms), int64(56 * ms)}, "a"}}, false},
		{"next holder after a killed one", join(lockA, lockB, unlockB), nil, true},
		{"next holder after an unlock without an answer", join(lockA, both(0, "a", opUnlock, "A", unknown).seen(), lockB, unlockB), nil, true},

		{"a stranger's Unlock frees the lock", join(lockB, unlockB, lockA, both(1, "b2", opUnlock, "B", unknown).seen(), both(1, "C", opLock, "", ok), look, unlockA), nil, false},
		{"Unlock of a lost lock succeeds", join(lockA, lostA, unlockA), nil, false},
		{"Unlock of a lock that somebody else holds by now succeeds", join(lockA, lockB, both(1, "w", opNest, "B", unknown).seen(), both(0, "a", opUnlock, "A", ok)), nil, false},

		{"refused while it is held", join(lockA, both(1, "T", opTry, "", denied), unlockA), nil, true},
		{"refused although it is free", join(lockA, unlockA, both(1, "T", opTry, "", denied)), nil, false},
		{"refused by a request that was left behind", join(both(0, "A", opLock, "", unknown), both(1, "T", opTry, "", denied)), nil, true},

		{"passed on", join(tokens(5).of("o"), unlockA, tokensB(6).of("o"), unlockB), nil, true},
		{"passed on before the unlock", join(tokens(5).of("o"), tokensB(6).of("o"), look, unlockA, unlockB), nil, false},
		{"passed on by a holder that is not the newest", join(tokens(5).of("o"), unlockA, tokensC(6).of("p"), unlockC, tokensB(7).of("o"), unlockB), nil, false},
		{"passed on beside another holder", join(tokens(5).of("o"), tokensC(8).of("p"), unlockA, tokensB(6).of("o"), unlockB, unlockC), nil, false},
		{"passed on beside another holder, of a lock that the server forgot", join(tokens(5).of("o"), tokensC(8).of("p"), unlockA, tokensB(6).of("o"), unlockB, unlockC), flushed, true},
		{"passed on with the same token, of a lock that the server forgot", join(tokens(5).of("o"), tokensC(8).of("p"), unlockA, tokensB(5).of("o"), unlockB, unlockC), flushed, false},
		{"passed on before the unlock, of a lock that the server forgot", join(tokens(5).of("o"), tokensC(8).of("p"), tokensB(6).of("o"), look, unlockA, unlockB, unlockC), flushed, false},
		{"granted beside another holder, after the server forgot one before", join(tokens(5).of("o"), tokensC(8).of("p"), unlockA, tokensB(9).of("q"), unlockB, unlockC), flushed, false},

		{"free after as many unlocks as locks", join(lockA, both(0, "n", opNest, "A", ok), unlockA, both(0, "a2", opUnlock, "A", ok).seen(), lockB), nil, true},
		{"free after too few unlocks", join(lockA, both(0, "n", opNest, "A", ok), unlockA, lockB, both(0, "a2", opUnlock, "A", ok).seen()), nil, false},
		{"nested in a lock that somebody else holds by now", join(lockA, unlockA[:1], lockB, both(0, "n", opNest, "A", ok)), nil, false},
		{"nested in a lock that the server forgot", join(lockA, both(0, "n", opNest, "A", ok)), []oblivion{{span{int64(24 * ms), int64(26 * ms)}, ""}}, false},

		{"tokens grow", join(tokens(5), unlockA, tokensB(6), unlockB), nil, true},
		{"a token goes back", join(tokens(5), unlockA, tokensB(4), unlockB), nil, false},
		{"a token is given twice", join(tokens(5), unlockA, tokensB(5), unlockB), nil, false},
		{"a nested hold has its grant's token", join(tokens(5), both(0, "n", opNest, "A", ok).token(5), unlockA), nil, true},
		{"a nested hold has another token", join(tokens(5), both(0, "n", opNest, "A", ok).token(6), unlockA), nil, false},

		{"read, then written", join(tokens(5), touch("r", opRead, "A", ok, 0), touch("w", opWrite, "A", ok, 1), unlockA), nil, true},
		{"a stale write is refused", join(tokens(5), touch("r", opRead, "A", ok, 0), lostA, tokensB(6), touch("r2", opRead, "B", ok, 0), touch("w", opWrite, "A", stale, 1), touch("w2", opWrite, "B", ok, 1)), nil, true},
		{"a stale write is taken", join(tokens(5), touch("r", opRead, "A", ok, 0), lostA, tokensB(6), touch("r2", opRead, "B", ok, 0), touch("w", opWrite, "A", ok, 1), touch("w2", opWrite, "B", ok, 1)), nil, false},
		{"a fresh write is refused", join(tokens(5), touch("r", opRead, "A", ok, 0), touch("w", opWrite, "A", stale, 1)), nil, false},
		{"a write got lost", join(tokens(5), touch("r", opRead, "A", ok, 0), touch("w", opWrite, "A", ok, 1), unlockA, tokensB(6), touch("r2", opRead, "B", ok, 0)), nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			judge(t, plain, test.events, test.gone, test.ok)
		})
	}
}

// judge shows a history of one lock to the checker.
func judge(t *testing.T, v variety, events []event, gone []oblivion, right bool) {
	t.Helper()
	histories := assemble(events, gone, 10*time.Millisecond, rules{variety: v})
	require.Len(t, histories, 1)
	h := histories[0]
	if v == fair {
		h.inOrder(2*time.Second, nil)
	}
	wrong := h.check(noPicture)
	require.Equal(t, right, len(wrong) == 0, "%v", wrong)
}

func tokens(n int64) script  { return both(0, "A", opLock, "", ok).token(n) }
func tokensB(n int64) script { return both(1, "B", opLock, "", ok).token(n) }
func tokensC(n int64) script { return both(2, "C", opLock, "", ok).token(n) }

func touch(id string, k kind, grant string, r result, value int64) script {
	return both(int(grant[0]-'A'), id, k, grant, r).value(value)
}

func noPicture(string, porcupine.Model, porcupine.LinearizationInfo) string { return "" }

// A waiter that sleeps beside a free lock is found.
func TestMissedWakeUp(t *testing.T) {
	second := int64(time.Second)
	samples := func(free ...bool) (all []sample) {
		for i, f := range free {
			at := int64(i) * second
			all = append(all, sample{span{at, at + 1}, f})
		}
		return all
	}
	w := wait{span: span{0, 5 * second}, got: true}
	h := &history{}
	require.Greater(t, h.slept(w, 0, samples(false, true, true, true, true)), 2*time.Second)
	require.Zero(t, h.slept(w, 0, samples(false, true, false, true, false)))
	require.Less(t, h.slept(w, 3*second, samples(true, true, true, true, true)), 2*time.Second, "before healing nothing counts")
	h.handed = []int64{2*second + second/2}
	require.Less(t, h.slept(w, 0, samples(false, true, true, true, false)), 2*time.Second, "somebody had it in between")
}
