package mutation

// ofLeaving are mistakes about releases, and about what is left behind.
var ofLeaving = []mutation{
	{
		"a lease is renewed after the unlock", "watchdog", "Entry.Stop",
		"return e.end(nil)", "return !e.ended.Load()",
		"watchdog", "TestStopIsFinal", quick,
	},
	{
		"what a caller left behind is not released", "rlock", "grant.abandon",
		"acquired || g.left(someTicket|inDoubt)", "acquired",
		"rlock", "TestFakeTimeCloseSendsCleanUpsAtOnce", quick,
	},
	{
		"a late answer is not followed up", "rlock", "grant.late",
		"if g.keep(doubt) {", "if g.keep(doubt) || true {",
		"rlock", "TestFakeTimeAbandonedAcquireIsReleasedTwice", quick,
	},
	{
		"a late attempt is not released once more", "rlock", "orphan.clear",
		"if later {", "if false {",
		"rlock", "TestFakeTimeAbandonedAcquireIsReleasedTwice", quick,
	},
	{
		"a late answer releases what Unlock is about to release", "rlock", "grant.keep",
		"g.left(sealed) ||", "g.state == released ||",
		"rlock", "TestFakeTimeLateAnswerDuringUnlock", quick,
	},
	{
		"a ticket is given up with the lease", "rlock", "orphan.sweep",
		"r.ticket && until.Before(least)", "false",
		"rlock", "TestFakeTimeTicketOutlivesTheLease", quick,
	},
	{
		"nothing is released when the lease should be over", "internal/janitor", "Janitor.workOn",
		"&& (one.tried || p.trouble > 0)", "",
		"internal/janitor", "TestFakeTimeTooLate", quick,
	},
	{
		"the ticket of a request that nobody waited for stays", "rlock", "grant.alsoEnds",
		"g.left(someTicket|underWay)", "g.left(someTicket)",
		"rlock", "TestFakeTimeTicketOfACallThatHasLeft", quick,
	},
	{
		"what was not executed has left a ticket", "rlock", "grant.acquire",
		"a.Doubt && o.Ticket.Claim > 0", "o.Ticket.Claim > 0",
		"rlock", "TestFakeTimeNothingIsLeftByWhatWasNotExecuted", quick,
	},
	{
		"Close waits for a fixed lease that was left", "rlock", "Hold.Leave",
		"g.entry.Stop(); g.finish()", "g.entry.Stop()",
		"rlock", "TestFakeTimeLeave", quick,
	},
}
