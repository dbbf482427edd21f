package mutation

// ofWaiting are mistakes in the queue in memory, and in what is left behind.
var ofWaiting = []mutation{
	// The queue in memory.
	{
		"the ticket is lost on inheritance", "rlock/waiter.go",
		"w.attempt != nil || !from.place.held ||", "true ||",
		"rlock", "TestPlaceIsInherited", quick,
	},
	{
		"the place of one without renewal is taken over", "rlock/waiter.go",
		" && !l.fixed", "",
		"rlock", "TestFakeTimeTermsOfWhoInherits", quick,
	},
	{
		"a leaver does not withdraw", "rlock/waiter.go",
		"left.abandon(false)", "_ = left",
		"rlock", "TestPlaceIsInherited", quick,
	},
	{
		"a wake-up is ignored", "rlock/hear.go",
		"case w != nil:\n\t\tw.by.Message++\n\t\tw.mustAsk()", "case w != nil:",
		"rlock", "TestHeard", quick,
	},
	{
		"a message for nobody is ignored", "rlock/hear.go",
		"case m.Granted && !slices", "case false && !slices",
		"rlock", "TestHeard", quick,
	},
	{
		"the loss of all places is ignored", "rlock/hear.go",
		"case m.Owner == lua.Everybody:", "case false:",
		"rlock", "TestHeard", quick,
	},
	{
		"nobody asks when messages may have been missed", "rlock/hear.go",
		"if w.state == waitQueued || w.state == waitBlocked && w.place.held {", "if false {",
		"rlock", "TestFakeTimeQueueIsLost", quick,
	},
	{
		"who waits for its own client forgets that messages may have been missed", "rlock/hear.go",
		" || w.state == waitBlocked && w.place.held", "",
		"rlock", "TestFakeTimeResubscribedWhileReleasing", quick,
	},
	{
		"an answer from before a loss of messages is trusted", "rlock/hear.go",
		"w.again = w.again || w.state == waitAsking", "w.again = w.again || false",
		"rlock", "TestFakeTimeResubscribedWhileAsking", quick,
	},
	{
		"an answer from before a foreign release is trusted", "rlock/hear.go",
		"case w.place.First, w.state == waitAsking:", "case w.place.First:",
		"rlock", "TestFakeTimeForeignReleaseWhileAsking", quick,
	},
	{
		"who waits for a fair lock leaves a foreign release to the first, who has left", "rlock/hear.go",
		"first != nil && q.askAt.After(later)", "false && first != nil",
		"rlock", "TestFakeTimeForeignReleaseAfterTheFirstHasLeft", quick,
	},
	{
		"a waiter that polls relies on what its client hears", "rlock/polling.go",
		"func (polled) hears(*waiter) bool { return false }", "func (p polled) hears(w *waiter) bool { return p.announced.hears(w) }",
		"rlock", "TestFakeTimePollingBesideListeners", quick,
	},
	{
		"a waiter says for hours nothing", "rlock/ticket.go",
		"keepAlive    = 5 * time.Second", "keepAlive    = 5 * time.Hour",
		"rlock", "TestFakeTimeFairKeepAlive", quick,
	},
	{
		"a waiter says for hours nothing, as histories see it", "rlock/ticket.go",
		"keepAlive    = 5 * time.Second", "keepAlive    = 5 * time.Hour",
		"internal/verify", "TestVerifyInShort/rows/DEL of queues, nothing is cut", long,
	},
	{
		"no connection counts as deaf or silent, as histories see it", "pubsub/watch.go",
		"err := v.verdict(s); err != nil && !late", "err := v.verdict(s); false && err != nil",
		"internal/verify", "TestVerifyInShort/rows/subscriptions deaf, nothing is cut", long,
	},
	{
		"a deaf connection is left to the silence of the server", "pubsub/watch.go",
		"return errDeaf", "return nil",
		"internal/verify", "TestVerifyInShort/rows/subscriptions deaf, nothing is cut", long,
	},
	{
		"a waiter without a ticket sleeps as if it had one", "rlock/ticket.go",
		"return min(d, deafPause)", "return d",
		"rlock", "TestWaiterWithoutATicket", quick,
	},
	{
		"the window of a grant by message begins too late", "rlock/ticket.go",
		"max(passed-passed/100-2*time.Millisecond, 0)", "passed",
		"rlock", "TestGrantByMessage", quick,
	},
	{
		"a grant by message is taken however old", "rlock/ticket.go",
		"now.Sub(sent) > m.Claim/2,", "",
		"rlock", "TestGrantByMessage", quick,
	},
	{
		"a grant from before the ticket is taken", "rlock/ticket.go",
		"m.Time < g.place.there,", "",
		"rlock", "TestGrantByMessage", quick,
	},
	{
		"a clock is reckoned with for ever", "rlock/ticket.go",
		"passed > longestReckoning", "false",
		"rlock", "TestGrantByMessage", quick,
	},
	{
		"a foreign owner's release is taken for ours", "internal/kind/plain.go",
		"if payload != \"-0\" {", "if payload == \"-0\" {",
		"rlock", "TestForeignRelease", quick,
	},
	{
		"those behind the first do not hear a foreign owner's release", "rlock/hear.go",
		"case w.askAt.After(later):", "case false:",
		"rlock", "TestUnlockedByAForeignOwner", quick,
	},

	// Hand-off.
	{
		"a fair lock is passed on beyond another client's turn", "lua/queue.lua",
		"if string.sub(next, 1, #prefix) ~= prefix then", "if false then",
		"lua", "TestCourses", quick,
	},
	{
		"successors keep their place in the queue", "rlock/release.go",
		"e := lua.Ending{Tickets: g.run.passed, Used", "e := lua.Ending{Used",
		"rlock", "TestFairRun", quick,
	},
	{
		"those who queue do not hear of Close", "rlock/queue.go",
		", s.shards[i].wakeAll()...", "",
		"rlock", "TestFakeTimeCloseEndsTheNextInLine", quick,
	},
	{
		"a grant is passed on whose window is nearly over", "watchdog/entry.go",
		"remaining(now, e.window.Load().until) < left", "false",
		"watchdog", "TestPassIsRefused", quick,
	},
	{
		"a leaver keeps the grant it was given", "rlock/waiter.go",
		"given.pass()", "_ = given",
		"rlock", "TestHandoffToALeaver", quick,
	},
	{
		"a grant is passed on while a count is under way", "rlock/handoff.go",
		"return g.correcting || len(g.turn) > 0", "return false",
		"rlock", "TestFakeTimeNoHandoffWhileCounting", quick,
	},

	{
		"a grant is passed on while an attempt of its owner is under way", "rlock/handoff.go",
		"g.attemptOpen || ", "",
		"rlock", "TestFakeTimeAnswerAfterAHandOff", quick,
	},

	// What is left behind.
	{
		"a lease is renewed after the unlock", "watchdog/entry.go",
		"return e.end(nil)", "return !e.ended.Load()",
		"watchdog", "TestStopIsFinal", quick,
	},
	{
		"what a caller left behind is not released", "rlock/release.go",
		"some: remains.some || acquired || g.acquireUnknown || g.leftState,", "some: acquired,",
		"rlock", "TestFakeTimeCloseSendsCleanUpsAtOnce", quick,
	},
	{
		"a late answer is not followed up", "rlock/late.go",
		"if g.keep(maybe) {", "if g.keep(maybe) || true {",
		"rlock", "TestFakeTimeAbandonedAcquireIsReleasedTwice", quick,
	},
	{
		"a late attempt is not released once more", "rlock/release.go",
		"if remains.maybe {", "if false {",
		"rlock", "TestFakeTimeAbandonedAcquireIsReleasedTwice", quick,
	},
	{
		"a late answer releases what Unlock is about to release", "rlock/late.go",
		"return !g.left.over && g.state != lost", "return g.state != released && g.state != lost",
		"rlock", "TestFakeTimeLateAnswerDuringUnlock", quick,
	},
	{
		"a ticket is given up with the lease", "rlock/late.go",
		"g.leftState && until.Before(claimed)", "false",
		"rlock", "TestFakeTimeTicketOutlivesTheLease", quick,
	},
	{
		"a follower whose time is over returns what it has", "rlock/share.go",
		"			return ctx, nil, l.givenUp(wait, nil)\n		case !call.left", "			return held, hold, err\n		case !call.left",
		"rlock", "TestFakeTimeFollowerWhoseTimeIsOver", quick,
	},
	{
		"the successor of a lost grant keeps an owner that is released", "rlock/waiter.go",
		" || slices.Contains(g.run.passed, w.attempt.owner))", ")",
		"rlock", "TestFakeTimeFairHeirOfALostGrant", quick,
	},
	{
		"a fair waiter without a place does not ask", "rlock/fair.go",
		"case w.place.silent > 0, !w.place.held:", "case w.place.silent > 0:",
		"rlock", "TestFairWaiterWithoutAPlaceAsks", quick,
	},
	{
		"a message from the future is trusted", "rlock/ticket.go",
		" sent.After(now),", "",
		"rlock", "TestGrantByMessage", quick,
	},
	{
		"a proxy gets the keys of several locks that poll", "internal/kind/plain.go",
		"return p.Gathers() && !p.fair", "return !p.fair",
		"rlock", "TestMultiOfPollingLocks", quick,
	},
	{
		"a multi lock takes fair locks out of turn", "internal/kind/plain.go",
		"return p.Gathers() && !p.fair", "return p.Gathers()",
		"rlock", "TestMultiLockOfFairLocksWaitsItsTurn", long,
	},
	{
		"nothing is released when the lease should be over", "internal/janitor/janitor.go",
		"&& (one.tried || p.trouble > 0)", "",
		"internal/janitor", "TestFakeTimeTooLate", quick,
	},
	{
		"nobody is held back from a cluster", "internal/request/masters.go",
		"if g := m.group(key); g != nil {\n\t\treturn g", "if g := m.group(key); false {\n\t\treturn g",
		"internal/request", "TestFakeTimeHoldOfOneMaster", quick,
	},
	{
		"a server that has become near keeps its many senders", "internal/request/group.go",
		"len(g.open) >= g.pace.senders {\n\t\treturn false", "false {\n\t\treturn false",
		"internal/request", "TestFakeTimeNearAgain", quick,
	},
	{
		"a request that was in the queue for long begins its time anew", "internal/request/group.go",
		"!end.IsZero() && end.Before(c.deadline)", "false && end.Before(c.deadline)",
		"rlock", "TestFakeTimeUnlockIsBoundedInACrowd", quick,
	},
	{
		"a short lease waits for an answer as long as the lease before it", "rlock/news.go",
		"		if other.unanswered() {", "		if false {",
		"rlock", "TestFakeTimeSilenceIsAsLongAsTheOwnLease", quick,
	},
	{
		"a crowd of clients probes as often as one", "rlock/ticket.go",
		"max(time.Duration(w.place.Queue)*time.Second/probesPerSecond, minSilence)", "minSilence",
		"rlock", "TestFakeTimeProbesByTheLengthOfTheQueue", quick,
	},
	{
		"the silence that a channel allows is not looked at", "pubsub/watch.go",
		"(s.now-s.stirred)/calm, s.silence)", "(s.now-s.stirred)/calm, v.interval)",
		"pubsub", "TestSilenceOfSeveralChannels", quick,
	},
	{
		"methods of an error run under the mutex of the queues", "rlock/contend.go",
		"return step{err: w.queue.trouble}", "return step{err: w.lock.failed(w.queue.trouble)}",
		"rlock", "TestFakeTimeErrorsAreReadWithoutTheMutex", quick,
	},
	{
		"a hand-off has no budget after a multi lock", "rlock/multi_together.go",
		"		note(g, a)\n", "		g.sent, g.initialLease, g.acquireUnknown = a.Sent, run[i].lease, a.Doubt\n",
		"rlock", "TestFakeTimeHandoffBudget", quick,
	},
	{
		"the ticket of a request that nobody waited for stays", "rlock/release.go",
		"(g.leftState || g.attemptOpen)", "g.leftState",
		"rlock", "TestFakeTimeTicketOfACallThatHasLeft", quick,
	},
	{
		"an old failure counts as silence", "rlock/news.go",
		" && time.Since(q.failed) < longestFailure", "",
		"rlock", "TestFakeTimeAnOldFailureIsNoSilence", quick,
	},
	{
		"each of many channels has its connection looked at", "pubsub/watch.go",
		"d < c.silence-c.silence/4", "d < time.Hour",
		"pubsub", "TestSilenceOfACrowdAsksNobody", quick,
	},
	{
		"a caller sends a request itself although it leaves soon", "internal/request/group.go",
		"g.obeys && !c.leaves(now.Add(loneBound))", "g.obeys",
		"internal/request", "TestFakeTimeAloneUntilSoon", quick,
	},
	{
		"a logger that panics lifts the bound of the queue of reports", "internal/report/queue.go",
		"n := len(q.calls) - 2*limit; n > 0", "n := 0; n > 0",
		"internal/report", "TestPanicsDoNotLengthenTheQueue", quick,
	},
	{
		"an overloaded server is sent as much as before", "internal/request/batch.go",
		"p.limit = max(min(p.limit, len(b.calls)/4), minBatch)", "",
		"internal/request", "TestFakeTimeOverload", quick,
	},
	{
		"an answer that is too late for its calls is one in time", "internal/request/batch.go",
		"b.late > len(b.calls)/2 &&", "false &&",
		"internal/request", "TestFakeTimeOverload", quick,
	},
	{
		"a call gives up although others are answered", "internal/request/repeat.go",
		"newest.After(p.Since)", "false",
		"internal/request", "TestFakeTimeTotalCountsFromTheNewestAnswer", quick,
	},
	{
		"what found no connection in time ends the call", "internal/request/detached.go",
		"if d.err == ErrNotSent {", "if false {",
		"internal/request", "TestFakeTimeNotSentIsNotLeft", quick,
	},
	{
		"releases share a script with acquires", "lua/joint.go",
		"if j.script == cmd.script && len", "if len",
		"lua", "TestWhoJoins", quick,
	},
	{
		"{a} and a have one queue", "lua/names.go",
		"strings.LastIndexByte(key, '{') == 0 &&", "false &&",
		"rlock", "TestNamesInBraces", quick,
	},
	{
		"Redisson's waiters for {a} are not told", "lua/queue.lua",
		"'^(:{[^{]*}:*):$', '%1'", "'^()$', '%1'",
		"lua", "TestCourses", quick,
	},
	{
		"the client that keeps {a} is not recalled", "lua/recall.lua",
		"name = key .. ':'", "name = key",
		"lua", "TestRetained", quick,
	},
	{
		"a lease with the terms of a nested hold is passed on", "watchdog/entry.go",
		" || e.asks() != renew", "",
		"rlock", "TestFakeTimeTermsEndWithTheGrant", quick,
	},
	{
		"a fixed lease is renewed as the readers who have left wanted it", "rlock/share.go",
		"other.first() != first && other.renewsFor(h)", "other.first() != first",
		"rlock", "TestFakeTimeTermsOfReaders", quick,
	},
	{
		"renewals take all connections", "internal/kind/places.go",
		"placesOfNode = 4", "placesOfNode = 100",
		"rlock", "TestFakeTimeRenewalsThatCrowd", quick,
	},
	{
		"renewals that hang keep those away that come later", "internal/kind/places.go",
		"ended := context.AfterFunc(ctx, give)", "ended := func() bool { return true }",
		"rlock", "TestFakeTimeRenewalsBesideACrowd", quick,
	},
	{
		"a slow server of a quorum is not sent all renewals", "internal/kind/renew.go",
		"if p.quorum {", "if false {",
		"rlock", "TestFakeTimeRenewalsOfAQuorumThatCrowd", quick,
	},
	{
		"a writer is not renewed while a slot moves", "lua/renew.go",
		"due[n].keys = nil", "_ = n",
		"lua", "TestReadWriteWhileTheSlotMoves", quick,
	},
	{
		"a renewal makes a read hold that is on another node", "lua/rw.lua",
		"if ttl == -2 and n <= had then", "if false then",
		"lua", "TestReadWriteWhileTheSlotMoves", quick,
	},
	{
		"a reader whose hold is on another node is taken out", "lua/rw.lua",
		"ttl == -2 and elsewhere(", "false and elsewhere(",
		"lua", "TestReadWriteWhileTheSlotMoves", quick,
	},
	{
		"a lock that is named like an intent is deleted", "lua/rw.lua",
		"return intention(key) and redis.call('del', key) == 1", "return redis.call('del', key) == 1",
		"lua", "TestReadWriteIntentConflicts", quick,
	},
	{
		"a writer takes a lock for an intent", "lua/rwwrite.lua",
		"if not held then\n    awaited", "if false then\n    awaited",
		"lua", "TestReadWriteIntentConflicts", quick,
	},
	{
		"the share of an owner is released in place of all", "rlock/late.go",
		"Key: g.lock.key, ", "",
		"rlock", "TestFakeTimeQuorumReleasesAllAndAShare", quick,
	},
	{
		"a lock without fencing has the token of the one before", "rlock/ticket.go",
		"if g.lock.fenced {", "if true {",
		"rlock", "TestGrantByMessage", quick,
	},
	{
		"a replica says that the lock is held", "lua/queue.lua",
		"string.find(added.err, 'OOM ', 1, true) and 0 or added", "0",
		"lua", "TestAskWhereNothingIsWritten", quick,
	},
	{
		"a read/write lock is not released while its slot moves", "lua/rw.go",
		"keys[:1], args", "keys, args",
		"lua", "TestReadWriteWhileTheSlotMoves", quick,
	},
	{
		"what was not executed has left a ticket", "rlock/grant.go",
		"a.Doubt && o.Ticket.Claim > 0", "o.Ticket.Claim > 0",
		"rlock", "TestFakeTimeNothingIsLeftByWhatWasNotExecuted", quick,
	},
}
