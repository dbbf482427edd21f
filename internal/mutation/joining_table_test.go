package mutation

// ofJoining are mistakes about holds that another process has joined.
var ofJoining = []mutation{
	{
		"each look at a lease makes it a new one", "watchdog", "windowOf",
		"sent.Add(left - drift)", "sent.Add(max(d, left) - drift)",
		"rlock", "TestFakeTimeJoinedEndsBeforeTheLeaseOfADeadHolder", quick,
	},
	{
		"the time to stop in shrinks with what is left", "watchdog", "Entry.found",
		"e.duration = min(max(e.duration, left), e.renew)", "e.duration = left",
		"watchdog", "TestLookedAtLeaseEndsBeforeTheLeaseDoes", quick,
	},
	{
		"a lease that runs down is looked at when it is as good as over", "watchdog", "Entry.found",
		"min(e.pause(a), max(trusted/2, e.duration/20))", "max(e.pause(a), trusted/2)",
		"rlock", "TestFakeTimeJoinedWhileRenewalsHang", quick,
	},
	{
		"a joined lease is as long as the longest that the server had", "rlock", "Lock.askToJoin",
		"terms{lease: p.lease}", "terms{lease: max(p.lease, a.Value)}",
		"rlock", "TestFakeTimeJoinedUnderALongerNestedLease", quick,
	},
	{
		"a multi lock waits although a later client has closed", "rlock", "MultiLock.whileOpen",
		"cancel(l.isClosed())", "",
		"rlock", "TestMultiWhoseLaterClientCloses", quick,
	},
	{
		"a multi lock tries again what its context has lost", "rlock", "MultiLock.lock",
		"|| m.lostIn(ctx)", "",
		"rlock", "TestMultiUnderALostMember", quick,
	},
	{
		"a multi lock waits while it has members out of order", "rlock", "MultiHold.takeTogether",
		"if err != nil && len(all) > 1 {", "if err != nil && len(all) > 1 && false {",
		"rlock", "TestMultiOverMastersWaitsInOrder", quick,
	},
	{
		"two TryLocks of the same locks refuse each other", "rlock", "MultiLock.take",
		"widest = 1", "widest = maxTogether",
		"rlock", "TestMultiOverMastersOneTryLockWins", quick,
	},
	{
		"a multi lock takes thousands by one script", "rlock", "together",
		"len(pieces[last]) == lua.MaxParts ||", "",
		"rlock", "TestMultiOfManyLocks", quick,
	},
	{
		"a panic in a goroutine of a multi lock is lost", "rlock", "MultiHold.takeTogether",
		"panic(t.panics)", "t.err = errLate",
		"rlock", "TestMultiWhoseHookEnds", quick,
	},
	{
		"processes wait for quorum locks as their hosts are", "rlock", "Lock.addresses",
		"range l.peers {", "range l.peers[:0] {",
		"rlock", "TestMultiOrderOfQuorumLocks", quick,
	},
	{
		"each Unlock of a multi lock unlocks what it can", "rlock", "MultiHold.unlock",
		"if !h.unlocked.CompareAndSwap(false, true) {", "if h.unlocked.Store(true); false {",
		"rlock", "TestMultiUnlockTwiceAtOnce", quick,
	},
	{
		"a hold with a long lease is told when it is renewed", "rlock", "Lock.longUnnoticed",
		"return l.terms.fixed || l.terms.lease/3 > longHold", "return l.terms.fixed",
		"rlock", "TestFakeTimeRecordOfALongLease", quick,
	},
	{
		"what was joined is trusted for a lease of the joiner's", "rlock", "Lock.askToJoin",
		"a.Sent, a.Value, p.token", "a.Sent, l.terms.lease, p.token",
		"rlock", "TestFakeTimeJoinedWhileRedisIsSilent", quick,
	},
	{
		"the window of a join is counted from the answer", "rlock", "Lock.askToJoin",
		"a.Sent, a.Value, p.token", "time.Now(), a.Value, p.token",
		"rlock", "TestFakeTimeLateAnswerToAJoin", quick,
	},
	{
		"who has joined renews", "internal/kind", "joined.Renewals",
		"lua.Confirmation(j.Of(owner))", "lua.Renewal{Grant: j.Of(owner), Lease: time.Minute}",
		"rlock", "TestFakeTimeJoinedEndsBeforeTheLeaseOfADeadHolder", quick,
	},
	{
		"who has joined releases", "internal/kind", "joined.Release",
		"func (joined) Release(", "func (joined) releaseNothing(",
		"rlock", "TestFakeTimeJoinedEndsBeforeTheLeaseOfADeadHolder", quick,
	},
	{
		"who has joined sets the hold count", "rlock", "grant.total",
		"|| g.lock.joined {", "{",
		"rlock", "TestJoin", quick,
	},
	{
		"a proof is good for the next holder in memory", "rlock", "grant.unsettled",
		"| proofGiven", "",
		"rlock", "TestFakeTimeProofIsNotPassedOn", quick,
	},
	{
		"the server is not asked for the owner of a proof", "lua", "confirm.lua",
		"or redis.call('hexists', KEYS[1], ARGV[2]) == 0", "",
		"rlock", "TestJoinChecksTheServer", quick,
	},
	{
		"a replica says who holds a lock", "lua", "confirm.lua",
		"redis.call('hdel', KEYS[1], '')", "",
		"lua", "TestReplicaConfirmsNothing", quick,
	},
	{
		"a proof is good for any lock", "rlock", "readProofs",
		"case p.text(key) != word:", "case false:",
		"rlock", "TestJoinRefuses", quick,
	},
	{
		"Close does not tell who has joined", "rlock", "Client.Close",
		", c.joins.close()...)", "); c.joins.close()",
		"rlock", "TestCloseOfAClientThatHasJoined", quick,
	},
	{
		"who has joined looks after a third of a longer lease", "watchdog", "Scheduler.Add",
		"e.duration = min(e.duration, e.renew)", "",
		"rlock", "TestFakeTimeJoinedAfterALongerNestedLease", quick,
	},
	{
		"who has joined cleans up in place of the holder", "rlock", "orphan.sweep",
		"!r.lock.joined", "true",
		"rlock", "TestFakeTimeJoinedAndCleanedUp", quick,
	},
	{
		"an unlocked joined hold hides the one around it", "rlock", "Hold.of",
		"g.lock.key == l.key && h.count() > 0 {", "g.lock.key == l.key { if h.count() == 0 { return nil }",
		"rlock", "TestFakeTimeJoinedAndUnlockedUnderTheHold", quick,
	},
}
