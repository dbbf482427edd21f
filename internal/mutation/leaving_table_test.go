package mutation

// ofLeaving are mistakes about releases, and about what is left behind.
var ofLeaving = []mutation{
	{
		"a lease is renewed after the unlock", "watchdog", "Entry.Stop",
		"return e.end(nil)", "return !e.ended.Load()",
		"watchdog", "TestStopIsFinal", quick,
	},
	{
		"what a caller left behind is not released", "rlock", "candidate.withdraw",
		"if o.acquired || o.ticket || o.doubt {", "if o.acquired {",
		"rlock", "TestFakeTimeCloseSendsCleanUpsAtOnce", quick,
	},
	{
		"an answer between the leaving and the withdrawal is lost", "rlock", "candidate.withdraw",
		"came&ownerLate != 0", "false",
		"rlock", "TestWithdraw", quick,
	},
	{
		"a late answer is not followed up", "rlock", "candidate.late",
		"if o.fate.Or(came)&ownerOver == 0 {", "if o.fate.Or(came)&ownerOver == 0 || true {",
		"rlock", "TestFakeTimeAbandonedAcquireIsReleasedTwice", quick,
	},
	{
		"a late attempt is not released once more", "rlock", "orphan.sweepLater",
		"r.lock.client.janitor.SweepAgain(r.job())", "",
		"rlock", "TestFakeTimeAbandonedAcquireIsReleasedTwice", quick,
	},
	{
		"a late answer releases what Unlock is about to release", "rlock", "candidate.late",
		"if o.fate.Or(came)&ownerOver == 0 {", "if o.fate.Or(came)&ownerOver == 0 && false {",
		"rlock", "TestFakeTimeLateAnswerOfALiveOwner", quick,
	},
	{
		"a ticket is given up with the lease", "rlock", "orphan.sweep",
		"r.ticket && until.Before(least)", "false",
		"rlock", "TestFakeTimeTicketOutlivesTheLease", quick,
	},
	{
		"nothing is released when the lease should be over", "internal/janitor", "Janitor.work",
		"&& (one.tried || p.trouble > 0)", "",
		"internal/janitor", "TestFakeTimeTooLate", quick,
	},
	{
		"the ticket of a request that nobody waited for stays", "rlock", "candidate.ask",
		"o.doubt && opts.Ticket.Claim > 0", "a.Doubt && opts.Ticket.Claim > 0",
		"rlock", "TestFakeTimeTicketOfACallThatHasLeft", quick,
	},
	{
		"what was not executed has left a ticket", "rlock", "candidate.ask",
		"o.doubt && opts.Ticket.Claim > 0", "opts.Ticket.Claim > 0",
		"rlock", "TestFakeTimeNothingIsLeftByWhatWasNotExecuted", quick,
	},
	{
		"Close waits for a fixed lease that was left", "rlock", "Hold.Leave",
		"g.entry.Stop(); g.finish()", "g.entry.Stop()",
		"rlock", "TestFakeTimeLeave", quick,
	},
}
