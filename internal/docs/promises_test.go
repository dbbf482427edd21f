package docs

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// promises names what shows each numbered line of docs/guarantees.md. The numbers begin with P (a promise), F (what a
// fault costs), A (an assumption: what happens where it does not hold) or L (a limit). A comment has the details that are
// too small for the page.
//
//	TestX       a test. After a slash: one of its cases, named in the same file
//	row: X      a row of the tables of internal/verify (make verify) whose name begins with X
//	make X      a target of the Makefile
//	trial: X    no test. It was tried by hand. Only a limit may have no more than that
var promises = map[string][]string{
	"P1": {"TestMutualExclusion", "TestClientsExcludeEachOther", "TestReadWriteReleaseKeepsTheTTLBesideTheDead", "TestVerify"},
	"P2": {
		"TestFakeTimeWindowCountsFromTheAnsweredAttempt", "TestFakeTimeHeldContextEndsAtTheExactInstant",
		"TestFakeTimeLateAnswerIsNoGrant",
	},
	"P3": {"TestLossWhileUnreachable", "TestLossComesBeforeTheNextGrant"},
	"P4": {"TestLossOfAStoppedProcess", "TestCheckSeesASuspensionAtOnce", "TestRemainingAsksBothClocks"},
	"P5": {"TestNestedModel", "TestAnyOrderOfDeliveries", "TestLostReplies", "TestLateRequests"},
	"P6": {"TestLossByRemoval", "TestUnlockOwner", "TestLateDeliveriesLeaveTheGrant"},
	"P7": {"TestQueueInAnyOrder", "TestJoinedIsOneAfterTheOther"},
	// It holds for renewal, nested call, Join, confirmation and Unlock of each kind. A master with too few replicas counts
	// as a replica.
	"P8": {
		"TestOnlyAMasterSaysNotTheOwner", "TestMasterSaysNotTheOwner", "TestReplicaWithoutTheDataCostsNoHold",
		"TestReplicaWithoutTheDataEndsNoJoinedHold",
	},
	"P9": {
		"TestJoined", "TestJoinedIsOneAfterTheOther", "TestAnswers", "TestJoinedWithoutTheRight", "TestJoinedOutOfMemory",
		"TestRefusedCompany",
	},
	"P10": {"TestClientIDsAreRandom"},
	"P11": {"TestTokensGrow", "TestTokensGrowOverALostCounter", "TestTokensGrowOverALossyFailover", "TestHandoffTakesTheNextToken", "TestVerify"},
	"P12": {
		"TestScript", "TestScriptRunsOnce", "TestLateScript", "TestScriptOvertakenByUnlock", "TestScriptDuringClose", "TestScriptPinsTheGrant",
		"TestScriptAtAReplica",
	},
	"P13": {"TestBusyIsNotUnavailable", "TestFakeTimeUnavailable", "TestSilentServer", "TestOutOfMemory", "TestAskWhereNothingIsWritten"},
	"P14": {"TestFakeTimeCallsLeaveASilentServer", "TestSilentServerAndAThousandWaiters", "TestFakeTimeQueueLeavesAtOnce"},
	"P15": {
		"TestStoppedWhileAcquiring", "TestFakeTimeAbandonedAcquireIsReleasedTwice", "TestFakeTimeArrivalAfterAnyLease",
		"TestFakeTimeCallsLeaveASilentServer", "TestSilentServerAndAThousandWaiters", "TestFakeTimeQueueLeavesAtOnce",
	},
	"P16": {"TestFakeTimeContextEndsWhileARequestIsUnderWay"},
	// The log reports a server once when it has not answered for 1 s, once when it answers again, and for how long one that
	// has just started is not counted.
	"P17": {"TestFakeTimeQuorumErrorCountsServers", "TestFakeTimeQuorumTellsOfAServerInTrouble", "TestFakeTimeQuorumTellsOfAYoungServer"},
	"P18": {"TestFakeTimeLeave"},
	"P19": {"TestCloseLeavesNothing", "TestVerify"},
	"P20": {"TestNilHold"},
	"P21": {
		"TestWaiterIsWokenByTheMessage", "TestReleaseBeforeTheSubscription", "TestLeaverPassesTheWakeUpOn",
		"TestFairLeavingCrossesTheGrant", "TestCourses",
	},
	"P22": {"TestWhoListensToAReplicaIsToldNothing", "TestSeries", "make topology"},
	"P23": {
		"TestFakeTimeWaiterSleepsUntilTheTTLEnds", "TestFakeTimeAsksOfItsOwnAccord", "TestFakeTimeManyAskRarely",
		"TestWaiterIsServedWhenTheHolderIsKilled", "TestFakeTimeFairKeepAlive",
	},
	// Random courses of 20 s with clients, kinds and options of all sorts, an owner in Java, late answers and broken
	// connections. It is 3 s if connections deliver nothing any more, or if a client polls.
	"P24": {"TestFakeTimeNobodyIsAsleep", "make courses"},
	"P25": {"TestWaitersAreSilent", "TestWaitingSendsNothing", "TestFakeTimeWaitingSendsLittle", "TestFakeTimeProbesByTheLengthOfTheQueue"},
	// At most two requests in 10 s, and none while holds are short and calls wait for less than 1 % of the time. A record
	// is gone 30 s after a kill, or if Redis did not answer Close. It names a lock that 60 goroutines hold for 5 ms each
	// within 10 s, also if 10,000 other names are waited for.
	"P26": {
		"TestFakeTimeRecordsAreCheap", "TestNoRecord", "TestRecord", "TestRecordOfAKilledProcess", "TestRecordIsRefused",
		"TestFakeTimeRecordsOnABadServer", "TestFakeTimeHotNames", "TestFakeTimeNoHotNames", "TestTopFindsTheHotLock",
	},
	"P27": {"TestHandoffLetsOthersIn", "TestVerify"},
	"P28": {"TestWaiterIsServedWhenTheHolderIsKilled", "TestStoppedWhileAcquiring", "TestFakeTimeAbandonedAcquireIsReleasedTwice", "TestFakeTimeArrivalAfterAnyLease"},
	// A kept lock has a goroutine during its release, so there are many if the client closes or loses its connection for
	// messages. A quorum server that does not respond has up to 1,024 requests at first, and 64 after the time of a poll,
	// with two goroutines each.
	"P29": {
		"TestFakeTimeSilentServerIsAskedLess", "TestManyLocksAndWaiters", "TestSilentServerAndAThousandWaiters",
		"TestGoroutinesOfHastyCallers",
	},
	// While a slot moves, it holds for plain locks without fencing.
	"P30": {
		"TestClusterFailover", "TestSentinelFailover", "TestSlotMoves", "TestSlotMovesUnderAReadWriteLock", "TestIdleWaiters",
		"TestSeries", "make topology",
	},
	"P31": {"TestFairOrderOverClients", "TestFairRun", "TestFairRunPastALeaver", "TestQueueInAnyOrder", "TestVerify"},
	"P32": {
		"TestFakeTimeBatchOfReaders", "TestFakeTimeWritersTakeTurns", "TestFakeTimeWaitingReadersShareAGrant", "TestReadWriteInAnyOrder",
		"TestVerify",
	},
	// Nor on their leases. The same for nested calls and renewals of a shared grant. With more than 16 readers a release
	// keeps the TTL, so a writer in Java waits longer if all readers that are left die.
	"P33": {"TestReadWriteReleaseBesideReadersOfMixedLeases", "TestReadWriteCrowd", "TestNestedReaderOfManyWhoShare"},
	// Each waiter sends requests by its place, at least every 5 s, about 50 per second together. The first that does gets
	// the lock. New calls do not pass them.
	"P34": {"TestReadWriteWhereMessagesAreRefused", "TestManyWritersWhomNobodyMayTell"},
	"P35": {"TestReadWriteTokensByTheQueue", "TestReadWriteTokenAfterAReleaseWithoutCounter", "TestReadWriteFencing", "row: force-unlock"},
	// While a majority renews, a missing share is taken again where it is free. One renewal, a third of the lease, must lie
	// between two such faults.
	"P36": {
		"TestQuorumHoldOutlivesRollingRestarts", "TestQuorumHoldOutlivesServersThatStandStill", "TestQuorumHoldLeavesTheSharesOfOthers",
		"TestFakeTimeMissingShareIsTakenAgain", "TestFakeTimeShareTakenTooLate", "TestFakeTimeQuorumRenewalBehindTheRelease",
		"TestFakeTimeShareGrantedTooLate", "TestFakeTimeQuorumRenewsAllShares", "TestFakeTimeQuorumHistories", "row: all killed, restarted empty, one after the other",
	},
	// 2 round trips in the median, 20 ms at most. 0.3 s at worst while each client that has the turn comes for it, or
	// leaves.
	"P37": {"TestFakeTimeQuorumTurns", "TestFakeTimeTurnOfAMajority", "TestShareGoesToWhoHasTheTurn", "TestFakeTimeTicketsHaveOneNumber"},
	// A joined process never renews or releases the lock, nor changes the hold count. The window of its context is sent
	// plus the rest of the lease, minus the same drift and tenth.
	"P38": {
		"TestFakeTimeJoinedEndsBeforeTheLeaseOfADeadHolder", "TestJoinedEndsBeforeTheNextHolder", "TestFakeTimeJoinedWhileRedisIsSilent",
		"TestJoin",
	},
	"P39": {"TestJoinChecksTheServer", "TestFakeTimeProofIsNotPassedOn", "TestReplicaConfirmsNothing"},
	// A claim has no effect 5 s after its caller has given up. Over a failover this needs jobs.WithReplicas for all
	// replicas.
	"P40": {
		"TestFakeTimeAnHourOfDo", "TestFakeTimeAnHourOfRun", "TestHostsThatKillThemselves", "TestRequestsTwiceLostAndLate",
		"TestFakeTimeLateClaim", "TestFailoversWithReplicas", "TestClusterAndSlotMove", "TestVerifyFires",
	},
	// With timers up to 10 s early, or half a period. After an outage the newest missed fire runs.
	"P41": {"TestFakeTimeAnHourOfDo", "TestFakeTimeEarly", "TestFakeTimeRunAfterAnOutage", "TestFakeTimeMissed", "TestFakeTimeMissedForDays", "TestFakeTimeNewestNotAnswered", "TestNoteStays", "TestOverlap", "TestFailoversWithReplicas"},
	"P42": {"TestFakeTimeAtLeastOnce", "TestFakeTimeShutdown", "TestHostsThatKillThemselves", "TestVerifyFires"},
	// A candidate that has given up never leads.
	"P43": {"row: election", "TestLateRequests", "TestNoZombies"},
	// After a shutdown, a deletion of the lock, loss of all data, a partition, and while Redis does not respond. A lost
	// reply, or a candidate that leaves during its wait, does not shorten the wait.
	"P44": {"TestNeverTwoLeaders", "TestTakeoverDelay"},
	"P45": {"TestRun", "TestRunEnds"},
	"P46": {"TestObserve", "TestObserveDeath", "row: election"},
	"P47": {"TestLeadEndsAllOfTheCommand", "TestLeadAgainAfterALoss", "TestLeadWithoutRedis"},
	"P48": {"TestLockDeletedDuringARun", "TestLateRequests", "TestEveryRequestTwice", "TestResultBeforeTheLock", "TestVerifyResults"},
	"P49": {"TestKilledHost", "TestCrowd", "TestFunctionFails", "TestVerifyResults"},
	// The end of a run costs one message, and one read for each waiting client.
	"P50": {"TestCrowd", "TestRoundTrips"},
	"P51": {"TestFiber", "TestManyRequests", "TestHostIsKilled", "TestRedisIsAway"},
	"P52": {"TestHoldOfAKilledParent", "TestHoldTellsTheLossInTime", "TestHoldIsLost", "TestPrograms"},
	// Four if the next leader has just sent a request for the lock. A change takes four requests at most, however many
	// candidates wait.
	"P53": {"TestFakeTimeRoundTrips", "TestChangeOfLeader", "TestKilledLeader", "TestManyCandidates"},
	"P54": {"TestVectors", "TestVectorsInPython"},
	"P55": {
		"TestLimit", "TestSuspensionBeyondALimit", "TestFakeTimeMaxHold", "TestFakeTimeMaxHoldOfAHolderThatHangs", "TestFakeTimeProgress",
		"TestFakeTimeProgressTooLate", "TestFakeTimeBothLimits", "TestFakeTimeLimitsOfReaders", "TestHolderThatHangs",
	},
	"P56": {"TestFakeTimeMaxHold", "TestFakeTimeLimitOfAQuorum", "TestFakeTimeLimitOfAJoinedHold", "TestHolderThatHangs"},
	// Within a lease and 12 s for leases of 0.5 s to 5 min, plain, fair, read/write and polling locks. A call that began
	// earlier, and has WithDeadlockError as the only one, ends up to 32 s after a lease.
	"P57": {
		"TestFakeTimeDeadlock", "TestFakeTimeDeadlockError", "TestFakeTimeDeadlockOfAMultiLock", "TestFakeTimeDeadlockSearchFails",
		"TestDeadlockOfProcesses", "TestTopShowsDeadlocks",
	},
	// Random courses: locks in a common order, and in any order.
	"P58": {"TestFakeTimeNoDeadlock", "TestFakeTimeCoursesOfDeadlocks"},
	"P59": {"TestFakeTimeDeadlockSearchIsCheap"},
	"F1": {
		"TestCoursesByShardedChannels", "TestDeadNextInLine", "TestCourses/nobody hears", "TestCourses/all are dead",
		"TestCourses/uncounted is believed", "TestWhoListensToAReplicaIsToldNothing",
	},
	// One claim. If the waiter behind has waited for long, and its last request came just before the grant, it sends the next
	// one 5 to 5.5 s after that. Then all tickets of that client are dropped, however many calls wait. All other clients in
	// front are called, 128 tickets at once, with 0.4 s to answer: in a new wait, three suspended clients and twenty cost 3.1
	// to 3.3 s, ten writers or readers and writers in turn 3.1 to 3.4 s. A distant client may lose its place. If no other
	// client waits, the tickets stay until the queue expires. A ticket that came before its subscription counts as one of
	// these.
	"F2": {
		"TestReadWriteLapses", "TestReadWriteReleaseIsNoLapse", "TestFrozenClientsInFront", "TestDeadBeforeItHears",
		"row: process stopped for a moment", "row: process stopped for longer than its lease", "TestCourses/a grant lapses",
		"TestCourses/one grant lapses after the other",
	},
	// The second in the queue sends a request after 0.22 s, and the first client loses its tickets. A client that the
	// server knows to be gone costs nothing.
	"F3": {"TestFakeTimeQuorumTurnOfAStoppedClient", "TestShareOfWhoDoesNotCome"},
	// 0.75 to 1 s if one of the client's goroutines began to wait for a plain or fair lock in the last 0.8 s and at most 80
	// clients do. 1.25 s for other kinds (in the last 2 s). 2.75 s in long waits or with many clients. 10.75 s with 256
	// tickets ahead, but one claim if the turn comes earlier.
	"F4": {
		"TestDeafConnectionIsReplaced", "TestNewChannelIsToldOfADeafConnectionSoon", "TestFairLostMessage",
		"TestHalfOpenPubSubConnection", "row: subscriptions deaf",
	},
	// Until the next probe (0.2 to 0.5 s early in a wait, 2 s at most) or the next request of a waiter for a plain or fair
	// lock. Before Redis 7 only the latter, and for other kinds not before the connection ends. If the former master lives
	// on as a master, clients that stay there hold locks alongside the others until their requests follow the name.
	"F5": {
		"TestFormerMasterLivesOn", "TestRedisFormerMasterLivesOnAsReplica", "TestAskOfAReplicaIsRefused",
		"row: a former master lives on as a replica",
	},
	// A client whose message was rejected uses timers for all its waiters for one minute.
	"F6": {"TestWaitersWhomNobodyMayTell", "TestPauseAfterARefusal/messages are refused"},
	"F7": {
		"TestStaleConnectionsAreNoNewsOfTheServer", "TestStaleConnectionsDelayNoCall", "TestStaleConnectionsOfAQuorum",
		"TestStaleConnectionsOfACluster", "TestFakeTimeServerThatEndsEachConnection", "row: connections cut, unseen by the clients",
	},
	// A lease of 1 s can be lost. If hooks of the application stand in for Redis, a full pool of dead connections is
	// cleared only after their ReadTimeout. If no new connection can be made at all (maxclients, no file descriptors),
	// renewals do not use the other pool of go-redis.
	"F8": {
		"TestDeadConnectionsCostNoHold", "TestDeadConnectionsDelayNoCallForLong", "TestFakeTimeCopiesHaveABudget", "TestFakeTimeBrownoutGetsFewCopies",
		"TestErrorsOfStaleConnections", "row: connections forgotten",
	},
	"F9": {"TestFakeTimeAsksOfItsOwnAccord", "row: ACL without PUBLISH"},
	// A client without a confirmed subscription polls, as without the right to subscribe.
	"F10": {"row: subscriptions mute"},
	// F11 to F16: a row "nothing is cut" of TestVerify strikes early in a wait of a few clients, and fails if no waiter has
	// the lock for more than 1.2 s after one fault, 2.2 s after two.
	"F11": {"row: connections cut", "row: any reply lost", "row: server killed, restarted empty"},
	// The longer of the two times. The sum if the second fault hits the waiter during its recovery from the first.
	"F12": {"row: subscriptions deaf, FLUSHALL", "row: subscriptions deaf, replies lost"},
	"F13": {"TestUnlockWhileThePubSubConnectionIsGone", "TestFakeTimeResubscribedWhileAsking", "row: CLIENT KILL, subscriptions"},
	"F14": {
		"TestWaiterIsServedWhenTheHolderIsKilled", "TestFakeTimeFairDeadHolder", "row: process killed while it holds",
		"row: process killed while it keeps a lock",
	},
	"F15": {"TestLeaverPassesTheWakeUpOn", "TestFairLeavingCrossesTheGrant"},
	// Each client leaves its tickets again with its next request. As soon as one waiter notices, all waiters of its client
	// send requests.
	"F16": {"TestFakeTimeFairKeepAlive", "row: FLUSHALL", "row: DEL of queues"},
	"F17": {"TestFakeTimeAsksOfItsOwnAccord", "TestFakeTimeRemovedBehindOwnHolder", "row: DEL"},
	// Each client repeats its request about twice a second. Calls and tickets keep their places. A call that has not waited
	// yet, TryLock and a nested call fail at once. A multi lock is patient if it has one of its members.
	"F18": {
		"TestWaitingCallsOutliveAShortRefusal", "TestWaitingCallsOutliveAShortRefusalOfAMajority", "TestMultiLockOutlivesAShortRefusal",
		"TestFakeTimeFirstGivesUpInTrouble", "TestFakeTimeShortRefusals",
	},
	"F19": {"TestHopelessServers", "TestHopelessAddresses", "TestClassifyRedirections"},
	"F20": {"TestFakeTimeRefusedReleaseIsRepeated", "row: ACL without the key"},
	"F21": {"TestFakeTimeReleaseGoesOnUntilThereIsAnAnswer", "TestFakeTimeTriesUntilThereIsAnAnswer"},
	"F22": {"row: request held back: acquire", "row: request held back: queue"},
	"F23": {"TestFakeTimeFairServerAway"},
	"F24": {"TestSubscribeRefused", "TestFakeTimeFairDeaf"},
	// Plain locks without order. With sharded channels up to 5.5 s, or until the move ends. Fair, fenced and read/write
	// locks, and multi locks with several members in the slot, cannot be acquired before, because their scripts need keys
	// that do not exist yet. Holders keep their locks and can unlock. A reader can be lost if its keys stay on different
	// nodes for longer than its lease.
	"F25": {"TestSlotMoves", "TestUnlockWhileASlotMoves", "TestSlotMovesUnderAReadWriteLock", "TestReadWriteWhileTheSlotMoves"},
	"F26": {"TestAskOutOfMemory", "row: OOM: maxmemory"},
	"F27": {"TestCourses", "make interop"},
	"F28": {
		"TestFakeTimeForeignRelease", "TestFakeTimeForeignReleaseWhileAsking", "TestFakeTimeForeignReleaseAfterTheFirstHasLeft",
		"make interop",
	},
	// Of the two messages of a writer in Go (+1, -0) Redisson keeps the second for the thread. Redisson loses its own
	// message, also if all clients are in Java: the rest of the TTL is 30 s by default, unless another holder leaves
	// earlier.
	"F29": {"TestReadWriteMessagesOfAWriter", "make interop"},
	// A grant whose message comes after its claim can be taken if such clocks differ, but only with a claim of less than
	// about 3 s.
	"A1": {"TestWindow", "TestWallClockSetBackAndForward"},
	"A2": {"row: server clock ahead", "row: server clock back"},
	"A3": {"row: server killed, restarted empty", "row: server killed, restarted with its data", "TestQuorumDelayedRestart"},
	"A4": {"TestOutOfMemory", "row: OOM: maxmemory"},
	"A5": {"TestLossByRemoval", "TestRenewalRestoresTTL"},
	"A6": {"TestHookThatSendsTwice", "row: a hook that sends everything twice"},
	// The bound holds for all hand-offs in memory together. A holder of the client that calls ForceUnlock learns of it at
	// once.
	"L1": {
		"TestLossByRemoval", "TestFakeTimeFixedLeaseIsRemoved", "TestFakeTimeHandoffOfALostGrant", "row: FLUSHALL", "row: DEL",
		"row: force-unlock",
	},
	"L2": {"TestFakeTimeJoinedEndsWithTheHold", "TestJoinedAcrossProcesses"},
	// The promoted replica without the grant does not vote for the holder of a quorum lock any more, and no client notices.
	// So masters of a quorum lock must not have replicas.
	"L3": {"TestLossyFailover", "TestReplicatedFailover", "TestReplicas", "TestQuorumForgetfulServers", "TestSeries"},
	"L4": {"trial: a trial of 12 manual failovers, 12 times"},
	"L5": {"TestFakeTimeAnswersAfterTheBound"},
	"L6": {"trial: a trial by hand"},
	"L7": {"row: process stopped for longer than its lease"},
	// The request got no answer, or its caller left. With the default of WithHandoff a request reserves 1,024 tokens, which
	// is a millisecond.
	"L8": {"TestTokensGrowOverALostCounter", "TestFakeTimeTokensOfALateTicket"},
	// If a hold ends before the next renewal, only the log, Stats.Losses and Trace.Lost report the loss. A lost recall
	// delays the waiter by up to the time of WithRetention, and so is each wait in Java.
	"L9": {"TestFakeTimeRecallIsLost", "TestFakeTimeRecallMayBeMissed", "TestFakeTimeRetainedLockIsLost", "row: retained"},
	// A fire that was claimed by a host that then dies, or whose lock is held by the run of another fire, does not run,
	// unless the job is AtLeastOnce.
	"L10": {"row: FLUSHALL", "row: server killed, restarted empty", "TestVerifyFires"},
	"L11": {"TestFairOrderOverClients", "TestFairTryLockDoesNotOvertake"},
	// 2,000 callers for fair locks on two cores with eight busy loops. 1.2 requests with a lease of 30 s.
	"L12": {"row: crowd of 2,000, server slow"},
	// A plain lock with two owners in a merged hash is lost for both at their next renewals. Another kind may not be.
	"L13": {"TestMergedHolders"},
	"L14": {"trial: 12,000 names, connections cut, alone and with the process stopped for 80 of 100 ms"},
}

// numbered finds the number at the beginning of a line of the page: of a list, with or without a title, or of a table.
var numbered = regexp.MustCompile(`(?m)^(?:\* |\| )\*\*([PFAL]\d+)(?:\.|\*\*)`)

// Each promise, fault, assumption and limit has a test, and the test exists.
func TestPromises(t *testing.T) {
	root := os.DirFS("../..")
	require.Greater(t, len(promises), 90)
	require.Empty(t, unproven(t, root, promises))
}

// What is wrong with the table is found, and nothing else.
func TestUnproven(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	root := fstest.MapFS{
		"docs/guarantees.md":        file("* **P1.** One.\n* **P2.** Two, as P1.\n| **F1** | three | none |\n* **L1. Four.** A limit.\n* **L2.** Five.\n* **L2.** Six.\n"),
		"a/x_test.go":               file("func TestThere(t *testing.T) {\n\tt.Run(\"a case\", nil)\n}\n"),
		"internal/verify/faults.go": file("name: \"server killed, restarted empty\"\n"),
		"Makefile":                  file(".PHONY: topology verify\n"),
	}
	require.Empty(t, unproven(t, fstest.MapFS{
		"docs/guarantees.md": file("* **P1.** One.\n* **L1. Two.** A limit.\n"), "a/x_test.go": root["a/x_test.go"], "Makefile": root["Makefile"],
		"internal/verify/faults.go": root["internal/verify/faults.go"],
	}, map[string][]string{"P1": {"TestThere", "TestThere/a case", "row: server killed", "make topology"}, "L1": {"trial: once"}}))
	require.Equal(t, []string{
		"F1 has no test",
		"L2 has no test",
		"L2 is there twice",
		"P1: no test TestGone",
		"P1: no test TestThere/another case",
		"P2 has no test",
		"P3 is not on the page",
		"P3: no row another fault",
		"P3: no target soak",
	}, unproven(t, root, map[string][]string{
		"P1": {"TestGone", "TestThere/another case"}, "P2": {"trial: by hand"}, "P3": {"row: another fault", "make soak"}, "L1": {"TestThere"},
	}))
}

// unproven returns, in order, which numbers of the page have no test in the table, and what the table names in vain.
func unproven(t *testing.T, root fs.FS, table map[string][]string) (found []string) {
	t.Helper()
	tests := make(map[string]string) // the file of each
	for _, name := range files(t, root, "_test.go") {
		text := read(t, root, name)
		for _, match := range testFunc.FindAllStringSubmatch(text, -1) {
			tests[match[1]] += text
		}
	}
	rows := ""
	for _, name := range files(t, root, ".go") {
		if path.Dir(name) == "internal/verify" && !strings.HasSuffix(name, "_test.go") {
			rows += read(t, root, name)
		}
	}
	_, targets, _ := strings.Cut(read(t, root, "Makefile"), ".PHONY: ")
	targets, _, _ = strings.Cut(targets, "\n")

	on := make(map[string]int)
	for _, match := range numbered.FindAllStringSubmatch(read(t, root, "docs/guarantees.md"), -1) {
		on[match[1]]++
	}
	for number, n := range on {
		shown := slices.ContainsFunc(table[number], func(by string) bool {
			return !strings.HasPrefix(by, "trial: ") || strings.HasPrefix(number, "L")
		})
		if !shown {
			found = append(found, number+" has no test")
		}
		if n > 1 {
			found = append(found, number+" is there twice")
		}
	}
	for _, number := range slices.Sorted(maps.Keys(table)) {
		if on[number] == 0 {
			found = append(found, number+" is not on the page")
		}
		for _, by := range table[number] {
			kind, name, ok := strings.Cut(by, ": ")
			if target, isTarget := strings.CutPrefix(by, "make "); isTarget {
				kind, name, ok = "target", target, slices.Contains(strings.Fields(targets), target)
			} else if ok {
				ok = kind == "trial" || kind == "row" && strings.Contains(rows, `"`+name)
			} else {
				test, part, _ := strings.Cut(by, "/")
				kind, name, ok = "test", by, tests[test] != "" && strings.Contains(tests[test], part)
			}
			if !ok {
				found = append(found, fmt.Sprintf("%s: no %s %s", number, kind, name))
			}
		}
	}
	slices.Sort(found)
	return found
}
