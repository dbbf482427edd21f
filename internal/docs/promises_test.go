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
// fault costs), A (an assumption: what happens where it does not hold) or L (a limit).
//
//	TestX       a test. After a slash: one of its cases, named in the same file
//	row: X      a row of the tables of internal/verify (make verify) whose name begins with X
//	make X      a target of the Makefile
//	trial: X    no test. It was tried by hand. Only a limit may have no more than that
var promises = map[string][]string{
	"P1": {"TestMutualExclusion", "TestClientsExcludeEachOther", "TestVerify"},
	"P2": {
		"TestFakeTimeWindowCountsFromTheAnsweredAttempt", "TestFakeTimeHeldContextEndsAtTheExactInstant",
		"TestFakeTimeLateAnswerIsNoGrant",
	},
	"P3": {"TestLossWhileUnreachable", "TestLossComesBeforeTheNextGrant"},
	"P4": {"TestLossOfAStoppedProcess", "TestCheckSeesASuspensionAtOnce", "TestRemainingAsksBothClocks"},
	"P5": {"TestNestedModel", "TestAnyOrderOfDeliveries", "TestLostReplies", "TestLateRequests"},
	"P6": {"TestLossByRemoval", "TestUnlockOwner", "TestLateDeliveriesLeaveTheGrant"},
	"P7": {"TestQueueInAnyOrder", "TestJoinedIsOneAfterTheOther"},
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
	"P12": {"TestScript", "TestScriptRunsOnce", "TestLateScript", "TestScriptPinsTheGrant", "TestScriptAtAReplica"},
	"P13": {"TestBusyIsNotUnavailable", "TestFakeTimeUnavailable", "TestSilentServer", "TestOutOfMemory", "TestAskWhereNothingIsWritten"},
	"P14": {"TestFakeTimeCallsLeaveASilentServer", "TestSilentServerAndAThousandWaiters", "TestFakeTimeQueueLeavesAtOnce"},
	"P15": {
		"TestStoppedWhileAcquiring", "TestFakeTimeAbandonedAcquireIsReleasedTwice", "TestFakeTimeArrivalAfterAnyLease",
		"TestFakeTimeCallsLeaveASilentServer", "TestSilentServerAndAThousandWaiters", "TestFakeTimeQueueLeavesAtOnce",
	},
	"P16": {"TestFakeTimeContextEndsWhileARequestIsUnderWay"},
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
	"P24": {"TestFakeTimeNobodyIsAsleep", "make courses"},
	"P25": {"TestWaitersAreSilent", "TestWaitingSendsNothing", "TestFakeTimeWaitingSendsLittle", "TestFakeTimeProbesByTheLengthOfTheQueue"},
	"P26": {
		"TestFakeTimeRecordsAreCheap", "TestNoRecord", "TestRecord", "TestRecordOfAKilledProcess", "TestRecordIsRefused",
		"TestFakeTimeRecordsOnABadServer",
	},
	"P27": {"TestHandoffLetsOthersIn", "TestVerify"},
	"P28": {"TestWaiterIsServedWhenTheHolderIsKilled", "TestStoppedWhileAcquiring", "TestFakeTimeAbandonedAcquireIsReleasedTwice", "TestFakeTimeArrivalAfterAnyLease"},
	"P29": {
		"TestFakeTimeSilentServerIsAskedLess", "TestManyLocksAndWaiters", "TestSilentServerAndAThousandWaiters",
		"TestGoroutinesOfHastyCallers",
	},
	"P30": {
		"TestClusterFailover", "TestSentinelFailover", "TestSlotMoves", "TestSlotMovesUnderAReadWriteLock", "TestIdleWaiters",
		"TestSeries", "make topology",
	},
	"P31": {"TestFairOrderOverClients", "TestFairRun", "TestFairRunPastALeaver", "TestQueueInAnyOrder", "TestVerify"},
	"P32": {
		"TestFakeTimeBatchOfReaders", "TestFakeTimeWritersTakeTurns", "TestFakeTimeWaitingReadersShareAGrant", "TestReadWriteInAnyOrder",
		"TestVerify",
	},
	"P33": {"TestReadWriteReleaseBesideReadersOfMixedLeases", "TestReadWriteCrowd", "TestNestedReaderOfManyWhoShare"},
	"P34": {"TestReadWriteWhereMessagesAreRefused", "TestManyWritersWhomNobodyMayTell"},
	"P35": {"TestReadWriteTokensByTheQueue", "TestReadWriteTokenAfterAReleaseWithoutCounter", "TestReadWriteFencing", "row: force-unlock"},
	"P36": {
		"TestQuorumHoldOutlivesRollingRestarts", "TestQuorumHoldOutlivesServersThatStandStill", "TestQuorumHoldLeavesTheSharesOfOthers",
		"TestFakeTimeMissingShareIsTakenAgain", "TestFakeTimeShareTakenTooLate", "TestFakeTimeQuorumRenewalBehindTheRelease",
		"TestFakeTimeShareGrantedTooLate", "TestFakeTimeQuorumHistories", "row: all killed, restarted empty, one after the other",
	},
	"P37": {"TestFakeTimeQuorumTurns", "TestFakeTimeTurnOfAMajority", "TestShareGoesToWhoHasTheTurn", "TestFakeTimeTicketsHaveOneNumber"},
	"P38": {
		"TestFakeTimeJoinedEndsBeforeTheLeaseOfADeadHolder", "TestJoinedEndsBeforeTheNextHolder", "TestFakeTimeJoinedWhileRedisIsSilent",
		"TestJoin",
	},
	"P39": {"TestJoinChecksTheServer", "TestFakeTimeProofIsNotPassedOn", "TestReplicaConfirmsNothing"},
	"P40": {
		"TestFakeTimeAnHourOfDo", "TestFakeTimeAnHourOfRun", "TestHostsThatKillThemselves", "TestRequestsTwiceLostAndLate",
		"TestFakeTimeLateClaim", "TestFailoversWithReplicas", "TestClusterAndSlotMove", "TestVerifyFires",
	},
	"P41": {"TestFakeTimeAnHourOfDo", "TestFakeTimeEarly", "TestFakeTimeRunAfterAnOutage", "TestFakeTimeMissed", "TestOverlap", "TestFailoversWithReplicas"},
	"P42": {"TestFakeTimeAtLeastOnce", "TestHostsThatKillThemselves", "TestVerifyFires"},
	"P43": {"row: election", "TestLateRequests", "TestNoZombies"},
	"P44": {"TestNeverTwoLeaders", "TestTakeoverDelay"},
	"P45": {"TestRun", "TestRunEnds"},
	"P46": {"TestObserve", "TestObserveDeath", "row: election"},
	"P47": {"TestLeadEndsAllOfTheCommand", "TestLeadAgainAfterALoss", "TestLeadWithoutRedis"},
	"P48": {"TestLockDeletedDuringARun", "TestLateRequests", "TestEveryRequestTwice", "TestResultBeforeTheLock", "TestVerifyResults"},
	"P49": {"TestKilledHost", "TestCrowd", "TestFunctionFails", "TestVerifyResults"},
	"P50": {"TestCrowd", "TestRoundTrips"},
	"P51": {"TestFiber", "TestManyRequests", "TestHostIsKilled", "TestRedisIsAway"},
	"P52": {"TestHoldOfAKilledParent", "TestHoldTellsTheLossInTime", "TestHoldIsLost", "TestPrograms"},
	"P53": {"TestFakeTimeRoundTrips", "TestChangeOfLeader", "TestKilledLeader", "TestManyCandidates"},
	"P54": {"TestVectors", "TestVectorsInPython"},
	"F1": {
		"TestCoursesByShardedChannels", "TestDeadNextInLine", "TestCourses/nobody hears", "TestCourses/all are dead",
		"TestCourses/uncounted is believed", "TestWhoListensToAReplicaIsToldNothing",
	},
	"F2": {
		"TestReadWriteLapses", "TestReadWriteReleaseIsNoLapse", "TestFrozenClientsInFront", "TestDeadBeforeItHears",
		"row: process stopped for a moment", "row: process stopped for longer than its lease", "TestCourses/a grant lapses",
		"TestCourses/one grant lapses after the other",
	},
	"F3": {"TestFakeTimeQuorumTurnOfAStoppedClient", "TestShareOfWhoDoesNotCome"},
	"F4": {"TestDeafConnectionIsReplaced", "TestFairLostMessage", "TestHalfOpenPubSubConnection", "row: subscriptions deaf"},
	"F5": {
		"TestFormerMasterLivesOn", "TestRedisFormerMasterLivesOnAsReplica", "TestAskOfAReplicaIsRefused",
		"row: a former master lives on as a replica",
	},
	"F6": {"TestWaitersWhomNobodyMayTell"},
	"F7": {
		"TestStaleConnectionsAreNoNewsOfTheServer", "TestStaleConnectionsDelayNoCall", "TestStaleConnectionsOfAQuorum",
		"TestStaleConnectionsOfACluster", "TestFakeTimeServerThatEndsEachConnection", "row: connections cut, unseen by the clients",
	},
	"F8": {
		"TestDeadConnectionsCostNoHold", "TestDeadConnectionsDelayNoCallForLong", "TestFakeTimeCopiesHaveABudget", "TestFakeTimeBrownoutGetsFewCopies",
		"TestErrorsOfStaleConnections", "row: connections forgotten",
	},
	"F9":  {"TestFakeTimeAsksOfItsOwnAccord", "row: ACL without PUBLISH"},
	"F10": {"row: subscriptions mute"},
	"F11": {"row: connections cut", "row: any reply lost", "row: server killed, restarted empty"},
	"F12": {"row: subscriptions deaf, FLUSHALL", "row: subscriptions deaf, replies lost"},
	"F13": {"TestUnlockWhileThePubSubConnectionIsGone", "TestFakeTimeResubscribedWhileAsking", "row: CLIENT KILL, subscriptions"},
	"F14": {
		"TestWaiterIsServedWhenTheHolderIsKilled", "TestFakeTimeFairDeadHolder", "row: process killed while it holds",
		"row: process killed while it keeps a lock",
	},
	"F15": {"TestLeaverPassesTheWakeUpOn", "TestFairLeavingCrossesTheGrant"},
	"F16": {"TestFakeTimeFairKeepAlive", "row: FLUSHALL", "row: DEL of queues"},
	"F17": {"TestFakeTimeAsksOfItsOwnAccord", "TestFakeTimeRemovedBehindOwnHolder", "row: DEL"},
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
	"F25": {"TestSlotMoves", "TestUnlockWhileASlotMoves", "TestSlotMovesUnderAReadWriteLock", "TestReadWriteWhileTheSlotMoves"},
	"F26": {"TestAskOutOfMemory", "row: OOM: maxmemory"},
	"F27": {"TestCourses", "make interop"},
	"F28": {
		"TestFakeTimeForeignRelease", "TestFakeTimeForeignReleaseWhileAsking", "TestFakeTimeForeignReleaseAfterTheFirstHasLeft",
		"make interop",
	},
	"F29": {"TestReadWriteMessagesOfAWriter", "make interop"},
	"A1":  {"TestWindow", "TestWallClockSetBackAndForward"},
	"A2":  {"row: server clock ahead", "row: server clock back"},
	"A3":  {"row: server killed, restarted empty", "row: server killed, restarted with its data", "TestQuorumDelayedRestart"},
	"A4":  {"TestOutOfMemory", "row: OOM: maxmemory"},
	"A5":  {"TestLossByRemoval", "TestRenewalRestoresTTL"},
	"A6":  {"TestHookThatSendsTwice", "row: a hook that sends everything twice"},
	"L1": {
		"TestLossByRemoval", "TestFakeTimeFixedLeaseIsRemoved", "TestFakeTimeHandoffOfALostGrant", "row: FLUSHALL", "row: DEL",
		"row: force-unlock",
	},
	"L2":  {"TestFakeTimeJoinedEndsWithTheHold", "TestJoinedAcrossProcesses"},
	"L3":  {"TestLossyFailover", "TestReplicatedFailover", "TestReplicas", "TestQuorumForgetfulServers", "TestSeries"},
	"L4":  {"trial: a trial of 12 manual failovers, 12 times"},
	"L5":  {"TestFakeTimeAnswersAfterTheBound"},
	"L6":  {"trial: a trial by hand"},
	"L7":  {"row: process stopped for longer than its lease"},
	"L8":  {"TestTokensGrowOverALostCounter", "TestFakeTimeTokensOfALateTicket"},
	"L9":  {"TestFakeTimeRecallIsLost", "TestFakeTimeRecallMayBeMissed", "TestFakeTimeRetainedLockIsLost", "row: retained"},
	"L10": {"row: FLUSHALL", "row: server killed, restarted empty", "TestVerifyFires"},
	"L11": {"TestFairOrderOverClients", "TestFairTryLockDoesNotOvertake"},
	"L12": {"row: crowd of 2,000, server slow"},
	"L13": {"TestMergedHolders"},
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
