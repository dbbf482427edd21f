package verify

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
