package verify

import (
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
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

// shared makes an operation one of a reader.
func (s script) shared() script {
	for i := range s {
		s[i].Shared = true
	}
	return s
}

// The checker knows what readers and writers may do beside each other.
func TestCheckerOfReaders(t *testing.T) {
	readA, readB := both(0, "A", opLock, "", ok).shared(), both(1, "B", opLock, "", ok).shared()
	writeA, writeB := both(0, "A", opLock, "", ok), both(1, "B", opLock, "", ok)
	leaveA, leaveB := both(0, "a", opUnlock, "A", ok).seen().shared(), both(1, "b", opUnlock, "B", ok).seen().shared()
	unlockA, unlockB := both(0, "a2", opUnlock, "A", ok).seen(), both(1, "b2", opUnlock, "B", ok).seen()
	alsoRead := both(0, "n", opNest, "A", ok).shared()
	lostA := script{{Client: 0, ID: "x", Kind: opLost, Grant: "A"}}
	flushed := []oblivion{{span{int64(25 * ms), int64(26 * ms)}, ""}}
	forced := []oblivion{{span{int64(25 * ms), int64(26 * ms)}, "a"}}
	try := func(r result) script { return both(2, "T", opTry, "", r) }

	for _, test := range []struct {
		name   string
		events []event
		gone   []oblivion
		ok     bool
	}{
		{"readers share", join(readA, readB, leaveA, leaveB), nil, true},
		{"a writer beside a reader", join(readA, writeB, leaveA, unlockB), nil, false},
		{"a reader beside a writer", join(writeA, readB, unlockA, leaveB), nil, false},
		{"two writers", join(writeA, writeB, unlockA, unlockB), nil, false},
		{"a writer after all readers but one", join(readA, readB, leaveA, both(2, "C", opLock, "", ok), leaveB), nil, false},
		{"a writer after all readers", join(readA, readB, leaveA, leaveB, both(2, "C", opLock, "", ok)), nil, true},
		{"a writer after a reader that is lost", join(readA, lostA, writeB, unlockB), nil, true},
		{"a writer beside a reader, of a lock that the server forgot", join(readA, writeB, leaveA, unlockB), flushed, true},

		{"a writer reads", join(writeA, alsoRead, leaveA, unlockA), nil, true},
		{"a writer reads, others too", join(writeA, alsoRead, readB, unlockA, leaveA, leaveB), nil, false},
		{"downgraded, others read", join(writeA, alsoRead, unlockA, readB, leaveA, leaveB), nil, true},
		{"downgraded, others write", join(writeA, alsoRead, unlockA, writeB, leaveA, unlockB), nil, false},
		{"downgraded while others read already", join(writeA, alsoRead, unlockA[:1], readB, unlockA[1:], leaveA, leaveB), nil, true},
		{"more read holds unlocked than there were", join(writeA, leaveA, unlockA), nil, false},

		{"an upgrade", join(readA, both(0, "n", opNest, "A", ok), unlockA, leaveA), nil, false},
		{"an upgrade after a downgrade", join(writeA, alsoRead, unlockA, both(0, "n2", opNest, "A", ok)), nil, false},
		{"an upgrade refused", join(readA, both(0, "n", opNest, "A", upgrade), leaveA), nil, true},
		{"a writer's nested hold refused as an upgrade", join(writeA, both(0, "n", opNest, "A", upgrade), unlockA), nil, false},

		{"a writer refused beside a reader", join(readA, try(denied), leaveA), nil, true},
		{"a reader refused beside a reader", join(readA, try(denied).shared(), leaveA), nil, false},
		{"a reader refused beside a reader while a writer waits", join(readA, writeB[:1], try(denied).shared(), leaveA, writeB[1:], unlockB), nil, true},
		{"a reader refused beside a reader while a reader waits", join(readA, readB[:1], try(denied).shared(), leaveA, readB[1:], leaveB), nil, false},

		{"readers have the token of the writer before", join(writeA.token(5), unlockA, readB.token(5), leaveB), nil, true},
		{"a reader has an older token", join(writeA.token(5), unlockA, readB.token(4), leaveB), nil, false},
		{"a reader has a token of its own", join(writeA.token(5), unlockA, readB.token(6), leaveB), nil, false},
		{"a reader has the token of a writer that left", join(writeA.token(5), unlockA, both(2, "C", opLock, "", unknown), readB.token(6), leaveB), nil, true},
		{"a reader has a token older than that of a writer that left", join(writeA.token(5), unlockA, both(2, "C", opLock, "", unknown), readB.token(4), leaveB), nil, false},
		{"a reader has the token of a writer that did not learn it", join(writeA.token(5), unlockA, both(2, "C", opLock, "", ok), both(2, "c", opUnlock, "C", ok), readB.token(6), leaveB), nil, true},
		{"a reader has the first token", join(readB.token(6), leaveB), nil, true},
		{"a reader has a token of its own, of a counter that the server forgot", join(writeA.token(5), unlockA, readB.token(6), leaveB), flushed, true},
		{"a writer has the token of a reader", join(readA.token(5), leaveA, writeB.token(5), unlockB), nil, false},

		{"a writer beside one whose lock was removed by force", join(writeA.token(5), writeB.token(6), unlockA, unlockB), forced, true},
		{"a writer has the token of one whose lock was removed by force", join(writeA.token(5), writeB.token(5), unlockA, unlockB), forced, false},
		{"a writer has an older token than one whose lock was removed by force", join(writeA.token(5), writeB.token(4), unlockA, unlockB), forced, false},
		{"a writer has the token of readers whose lock was removed by force", join(readA.token(5), writeB.token(5), leaveA, unlockB), forced, false},
		{"two writers after a removal by force", join(writeA.token(5), writeB.token(6), both(2, "C", opLock, "", ok).token(7), unlockB), forced, false},
		{"a reader beside a writer after a removal by force", join(readA.token(5), writeB.token(6), both(2, "C", opLock, "", ok).token(6).shared(), unlockB), forced, false},
		{"a reader joins readers whose lock was removed by force", join(readA.token(5).of("o"), writeB.token(6), both(2, "C", opLock, "", ok).token(5).of("o").shared(), unlockB), forced, true},
		{"a reader joins readers beside a writer", join(readA.token(5).of("o"), writeB.token(6), both(2, "C", opLock, "", ok).token(5).of("o").shared(), unlockB), nil, false},
		{"a writer whose lock was removed by force still writes, and no other does", join(writeA.token(5), touch("r", opRead, "A", ok, 0), touch("w", opWrite, "A", ok, 1), unlockA), forced, true},
		{"a writer whose lock was removed by force writes past the next one", join(writeA.token(5), touch("r", opRead, "A", ok, 0), writeB.token(6), touch("q", opRead, "B", ok, 0), touch("w", opWrite, "A", ok, 1)), forced, false},
	} {
		t.Run(test.name, func(t *testing.T) { judge(t, readWrite, test.events, test.gone, test.ok) })
	}
}

// A writer that waited for long may have asked more than once, and what it asked may
// be granted, for nobody, after it has left.
func TestCheckerOfLateWriters(t *testing.T) {
	writeA, unlockA := both(0, "A", opLock, "", ok).token(5), both(0, "a", opUnlock, "A", ok).seen()
	readB, leaveB := both(1, "B", opLock, "", ok).shared().token(6), both(1, "b", opUnlock, "B", ok).seen().shared()
	judge(t, readWrite, join(writeA, unlockA, readB, leaveB), nil, false)
	slow := join(writeA, unlockA, readB, leaveB)
	later(shortest, slow[1:])
	judge(t, readWrite, slow, nil, true)
}

// queued says that the call was refused at first.
func queued(client int, id string) script {
	return script{{Client: client, ID: id, Kind: opQueued}}
}

// later makes events happen so much later.
func later(d time.Duration, events []event) []event {
	for i := range events {
		events[i].At += int64(d)
		if events[i].Seen > 0 {
			events[i].Seen += int64(d)
		}
	}
	return events
}

// Two who ask a quorum of servers at the same time may both be refused.
func TestCheckerOfSplitVotes(t *testing.T) {
	one, two := both(0, "T", opTry, "", denied), both(1, "U", opTry, "", denied)
	judge(t, quorum, join(one[:1], two[:1], one[1:], two[1:]), nil, true)
	judge(t, quorum, join(one, two), nil, false)
	judge(t, plain, join(one[:1], two[:1], one[1:], two[1:]), nil, false)
}

// overtaking is a call that is served before another that was in the queue.
func overtaking(pause time.Duration) []event {
	first, second := both(1, "B", opLock, "", ok), both(2, "C", opLock, "", ok)
	all := join(both(0, "A", opLock, "", ok), first[:1], queued(1, "B"), second[:1], both(0, "a", opUnlock, "A", ok).seen(),
		second[1:], both(2, "c", opUnlock, "C", ok).seen(), first[1:], both(1, "b", opUnlock, "B", ok).seen())
	later(pause, all[7:]) // the second one gets it
	return all
}

// The checker sees who overtakes in a queue, and that it was allowed if it was.
func TestCheckerOfQueues(t *testing.T) {
	hold := both(0, "A", opLock, "", ok)
	free := both(0, "a", opUnlock, "A", ok).seen()
	first, second := both(1, "B", opLock, "", ok), both(2, "C", opLock, "", ok)
	leaveFirst, leaveSecond := both(1, "b", opUnlock, "B", ok).seen(), both(2, "c", opUnlock, "C", ok).seen()
	inQueue := queued(1, "B")
	flushed := []oblivion{{span{int64(45 * ms), int64(46 * ms)}, ""}}
	for _, test := range []struct {
		name   string
		events []event
		gone   []oblivion
		ok     bool
	}{
		{"served in order", join(hold, first[:1], inQueue, second[:1], free, first[1:], leaveFirst, second[1:], leaveSecond), nil, true},
		{"overtaken", overtaking(0), nil, false},
		{"overtaken by a call that does not wait", join(hold, first[:1], inQueue, free, both(2, "C", opTry, "", ok), leaveSecond, first[1:], leaveFirst), nil, false},
		{"overtaken by a call that came before it was known to queue", join(hold, first[:1], second[:1], inQueue, free, second[1:], leaveSecond, first[1:], leaveFirst), nil, true},
		{"overtaken after a claim", overtaking(1900 * time.Millisecond), nil, true},
		{"overtaken after less than a claim", overtaking(1500 * time.Millisecond), nil, false},
		{"overtaken when the server forgot the queue", overtaking(0), flushed, true},
		{"refused while others wait", join(first[:1], both(2, "T", opTry, "", denied), first[1:], leaveFirst), nil, true},
		{"refused while nobody waits", join(first, leaveFirst, both(2, "T", opTry, "", denied)), nil, false},
	} {
		t.Run(test.name, func(t *testing.T) { judge(t, fair, test.events, test.gone, test.ok) })
	}
}

// A waiter whose subscription is cut may lose its place then, and at no other time.
func TestCheckerOfOrderAndCuts(t *testing.T) {
	for _, test := range []struct {
		name string
		cut  span
		ok   bool
	}{
		{"while it waits", span{int64(55 * ms), int64(56 * ms)}, true},
		{"before it waits", span{0, int64(5 * ms)}, false},
		{"after both were served", span{int64(time.Hour), open}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := assemble(overtaking(0), nil, 10*ms, rules{variety: fair})[0]
			h.inOrder(2*time.Second, []span{test.cut})
			if right := len(h.check(noPicture)) == 0; right != test.ok {
				t.Errorf("found right: %v", right)
			}
		})
	}
}

// Of a call for several locks, each has a history of its own.
func TestCheckerOfMembers(t *testing.T) {
	names := []string{"a", "b"}
	of := func(s script, locks ...string) (events script) {
		for _, e := range s {
			for _, lock := range locks {
				if e.Lock = lock; len(locks) > 1 {
					e.All = locks
				}
				events = append(events, e)
			}
		}
		return events
	}
	stamp := func(parts ...script) (events []event) {
		for n, part := range parts {
			for _, e := range part {
				e.At = int64(n+1) * int64(10*ms)
				events = append(events, e)
			}
		}
		return events
	}
	lockA, lockB := both(0, "A", opLock, "", ok), both(1, "B", opLock, "", ok)
	unlockA, unlockB := both(0, "a", opUnlock, "A", ok), both(1, "b", opUnlock, "B", ok)
	tryB := both(1, "B", opTry, "", denied)
	for _, test := range []struct {
		name   string
		events []event
		ok     bool
	}{
		{"both, then one", stamp(of(lockA[:1], names...), of(lockA[1:], names...), of(unlockA[:1], names...), of(unlockA[1:], names...),
			of(lockB[:1], "b"), of(lockB[1:], "b"), of(unlockB, "b")), true},
		{"one while somebody has both", stamp(of(lockA[:1], names...), of(lockA[1:], names...), of(lockB[:1], "b"), of(lockB[1:], "b"),
			of(script{{Client: 0, ID: "w", Kind: opNest, Grant: "A", Seen: int64(50 * ms)}}, names...)), false},
		{"both refused because of one", stamp(of(lockA[:1], "a"), of(lockA[1:], "a"), of(tryB[:1], names...), of(tryB[1:], names...)), true},
		{"one refused that is free", stamp(of(lockA[:1], "a"), of(lockA[1:], "a"), of(tryB[:1], "b"), of(tryB[1:], "b")), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			right := true
			for _, h := range assemble(test.events, nil, 10*ms, rules{variety: multi}) {
				right = right && len(h.check(noPicture)) == 0
			}
			if right != test.ok {
				t.Errorf("found right: %v", right)
			}
		})
	}
}

// Thousands who wait at the same time are checked as well, and as strictly.
func TestCheckerOfCrowds(t *testing.T) {
	const callers = 2000
	crowd := func(change func(n int, s script)) []event {
		var calls, turns []script
		for n := range callers {
			id := fmt.Sprint(n)
			waits, leaves := both(n, id, opLock, "", ok).token(int64(n+1)), both(n, "u"+id, opUnlock, id, ok).seen()
			change(n, waits)
			calls = append(calls, waits[:1])
			turns = append(turns, waits[1:], leaves)
		}
		return join(append(calls, turns...)...)
	}
	check := func(events []event) []string {
		return assemble(events, nil, 10*ms, rules{crowd: true})[0].check(noPicture)
	}
	require.Empty(t, check(crowd(func(int, script) {})))
	require.NotEmpty(t, check(crowd(func(n int, s script) {
		if n == callers/2 {
			s.token(1)
		}
	})), "a token goes back")
	both := crowd(func(int, script) {})
	at := callers + 3*callers/2
	require.Equal(t, opUnlock, both[at+1].Kind)
	both[at+1].At, both[at+1].Seen = both[at+3].At+1, both[at+3].At+1
	both[at+2].At = both[at+1].At + 1
	require.NotEmpty(t, check(both), "two holders at once")
}

// What counts is who has the lock, not whether its key is there.
func TestIdle(t *testing.T) {
	second := int64(time.Second)
	of := func(lock string, turns ...span) *history {
		h := &history{lock: lock}
		for _, s := range turns {
			h.turns = append(h.turns, turn{span: span{s.call - second, s.call}, left: s.ret})
		}
		return h
	}
	all := []*history{of("row/0/3/a", span{10 * second, 12 * second}, span{2 * second, 4 * second}), of("row/0/3/b", span{6 * second, 7 * second})}
	from := func(call, ret int64) wait {
		return wait{span: span{call * second, ret * second}, locks: []string{"row/0/3/a"}}
	}
	for _, test := range []struct {
		what   string
		w      wait
		v      variety
		struck span
		stalls []span
		want   time.Duration
	}{
		{"between two grants", from(3, 11), plain, span{}, nil, 6 * time.Second},
		{"before its own", from(5, 10), plain, span{}, nil, 5 * time.Second},
		{"after the last, and in vain", from(11, 20), plain, span{}, nil, 8 * time.Second},
		{"before any", from(0, 2), plain, span{}, nil, 2 * time.Second},
		{"while somebody has it", from(3, 4), plain, span{}, nil, 0},
		{"from the end of the fault", from(3, 11), plain, span{3 * second, 7 * second}, nil, 3 * time.Second},
		{"less the time in which processes stand still", from(3, 11), plain, span{}, []span{{second, 5 * second}, {6 * second, 8 * second}, {7 * second, 9 * second}}, 2 * time.Second},
		{"with another member of a multi lock", from(3, 11), multi, span{}, nil, 3 * time.Second},
	} {
		require.Equal(t, test.want, coursesOf(all, test.v).idle(test.w, test.v, test.struck, test.stalls), test.what)
	}
}

// Each row of aloneFaults may cost a waiter less than the leases that would end its sleep.
func TestLimitsAreShorterThanLeases(t *testing.T) {
	for _, f := range aloneFaults {
		require.NotEmpty(t, f.cost().why)
		for _, lease := range f.leases {
			d, err := time.ParseDuration(lease)
			require.NoError(t, err)
			require.Less(t, f.patience(), d*2/3, f.name) // a lease is renewed when a third of it is over
			require.Less(t, f.patience(), served, f.name)
		}
	}
}

// The checker refuses what must not be, and only that.
func TestCheckerOfResults(t *testing.T) {
	everything, lock := oblivion{span{15, 16}, ""}, oblivion{span{15, 16}, "x"}
	one := given{span{1, 10}, 5}
	for name, tc := range map[string]struct {
		h     resultHistory
		gone  []oblivion
		wrong int
	}{
		"one result":                                 {resultHistory{given: []given{one, {span{20, 30}, 5}}, runs: []resultRun{{span{2, 5}, 2}}}, nil, 0},
		"two results":                                {resultHistory{given: []given{one, {span{20, 30}, 25}}}, nil, 1},
		"two results, all forgotten":                 {resultHistory{given: []given{one, {span{20, 30}, 25}}}, []oblivion{everything}, 0},
		"two results, the lock was deleted":          {resultHistory{given: []given{one, {span{20, 30}, 25}}}, []oblivion{lock}, 1},
		"a run after the result":                     {resultHistory{given: []given{one}, runs: []resultRun{{span{20, 25}, 20}}}, nil, 1},
		"a run before the result":                    {resultHistory{given: []given{one}, runs: []resultRun{{span{2, 3}, 2}, {span{3, 5}, 3}}}, nil, 0},
		"two runs at a time":                         {resultHistory{runs: []resultRun{{span{2, 30}, 2}, {span{20, 40}, 20}}}, nil, 1},
		"two runs, the lock was deleted before both": {resultHistory{runs: []resultRun{{span{17, 30}, 1}, {span{18, 40}, 16}}}, []oblivion{lock}, 0},
		"two runs, the lock was deleted":             {resultHistory{runs: []resultRun{{span{2, 30}, 2}, {span{20, 40}, 20}}}, []oblivion{lock}, 0},
	} {
		require.Len(t, tc.h.check("x", tc.gone), tc.wrong, name)
	}
}

// What is printed of a history that is not right, without the events of other locks.
func TestListing(t *testing.T) {
	events := join(
		both(0, "A", opLock, "", ok).of("x:1").token(7),
		both(0, "r", opRead, "A", ok).value(3),
		both(0, "u", opUnlock, "A", lost),
	)
	events[1].Shared = true
	events = append(events, event{Lock: "b", ID: "B"}, event{Lock: "a", Kind: opQueued}, event{Lock: "a", Kind: opStall})
	require.Equal(t, `    0.000 client 0 A lock called
   10.000 client 0 A lock ok, as a reader, owner x:1, token 7
   20.000 client 0 r read called, under A
   30.000 client 0 r read ok, under A, value 3
   40.000 client 0 u unlock called, under A
   50.000 client 0 u unlock lost, under A
`, listing(events, "a"))
}

// Every kind of lock can be watched. Those who wait for a plain lock queue by a script of
// its own; a fair lock has but one.
func TestLearn(t *testing.T) {
	redistest.Long(t, "a lesson for each kind of lock")
	for _, v := range varieties {
		if v == quorum {
			continue
		}
		t.Run(v.String(), func(t *testing.T) {
			hashes := lesson(t, v)
			for _, what := range []string{"acquire", "count", "release", "renew"} {
				require.NotEmpty(t, hashes[what], what)
			}
			require.Equal(t, v != polling && v != fair && v != readWrite, len(hashes["queue"]) > 0)
		})
	}
}
