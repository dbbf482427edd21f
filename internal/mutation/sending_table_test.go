package mutation

// ofSending are mistakes about how requests, renewals and reports are sent.
var ofSending = []mutation{
	{
		"what has left the group of a job is not told", "cmd/rlock", "command.signal",
		"if c.ended || group != c.pid {", "if c.ended && group != c.pid {",
		"cmd/rlock", "TestWhatHasLeftTheGroupIsTold", quick,
	},
	{
		"a hold does not take a share again", "internal/kind", "Renewer.shares",
		"<-decided; renewed[p.of[n]]", "<-decided; false",
		"internal/kind", "TestFakeTimeMissingShareIsTakenAgain", quick,
	},
	{
		"a share is taken again for a hold that a majority does not renew", "internal/kind", "Renewer.shares",
		"<-decided; renewed[p.of[n]]", "<-decided; true",
		"internal/kind", "TestFakeTimeMissingShareIsTakenAgain", quick,
	},
	{
		"a share is taken again for a hold that has ended", "internal/kind", "Quorum.retake",
		"if !held() {", "if false {",
		"rlock", "TestFakeTimeQuorumRenewalBehindTheRelease", quick,
	},
	{
		"a share counts however late it was granted", "internal/kind", "Plain.share",
		"now.Round(0).Sub(sent.Round(0))) > bound {", "now.Round(0).Sub(sent.Round(0))) > lease {",
		"internal/kind", "TestFakeTimeShareGrantedTooLate", quick,
	},
	{
		"the log tells of each request to a server in trouble", "internal/kind", "Quorum.heard",
		"|| s.down.Swap(true) {", "|| s.down.Swap(true) && false {",
		"rlock", "TestFakeTimeQuorumTellsOfAServerInTrouble", quick,
	},
	{
		"renewals do not tell of a server in trouble", "internal/kind", "Renewer.shares",
		"if share.Heard(err, took); err", "if err",
		"rlock", "TestFakeTimeQuorumTellsOfAServerInTrouble", quick,
	},
	{
		"a server is counted as soon as it has started", "internal/kind", "Plain.share",
		"s.quarantine = max(lease+time.Second-time.Duration(age)*time.Second, 0)", "s.quarantine = max(-time.Duration(age), 0)",
		"rlock", "TestFakeTimeQuorumHistories", long,
	},
	{
		"a share that was taken too late stays", "internal/kind", "Quorum.retake",
		"defer func() { q.late(r, n, v) }()", "_ = v",
		"internal/kind", "TestFakeTimeShareTakenTooLate", quick,
	},
	{
		"a stale connection is a server in trouble", "internal/request", "Stale.Again",
		"return s.left >= 0", "return false",
		"rlock", "TestStaleConnectionsDelayNoCall", quick,
	},
	{
		"copies are sent without end", "internal/request", "Copies.take",
		"n = min(n, mostAhead-k.spent)", "",
		"internal/request", "TestFakeTimeCopiesHaveABudget", quick,
	},
	{
		"copies that were some use count", "internal/request", "race.run",
		"r.giveBack(sent)", "",
		"internal/request", "TestFakeTimeCopiesHaveABudget", quick,
	},
	{
		"a request without an answer gets no copy", "internal/request", "race.run",
		"for range r.take(round) {", "for range 0 {",
		"internal/request", "TestFakeTimeCopyGetsTheAnswer", quick,
	},
	{
		"renewals pause after a stale connection", "internal/kind", "Renewer.send",
		"if !again || ctx.Err() != nil {", "if true || again {",
		"rlock", "TestStaleConnectionsAreNoNewsOfTheServer", quick,
	},
	{
		"a server that ends each connection is asked without a pause", "internal/request", "Stale.Again",
		"s.left--", "",
		"internal/request", "TestFakeTimeServerThatEndsEachConnection", quick,
	},
	{
		"a quorum lock takes a share on a stale connection for refused", "internal/kind", "cast",
		"!stale.Again(p.server.RDB, v.err)", "stale == stale",
		"internal/kind", "TestFakeTimeStaleConnectionOfAShare", quick,
	},
	{
		"nobody is held back from a cluster", "internal/request", "Masters.Server",
		"if g := m.group(key); g != nil { return g", "if g := m.group(key); false { return g",
		"internal/request", "TestFakeTimeHoldOfOneMaster", quick,
	},
	{
		"a server that has become near keeps its many senders", "internal/request", "Group.more",
		"len(g.open)-min(g.hung, g.Senders) >= g.pace.senders { return false", "len(g.open) >= g.Senders { return false",
		"internal/request", "TestFakeTimeNearAgain", quick,
	},
	{
		"a request that was in the queue for long begins its time anew", "internal/request", "Group.take",
		"!end.IsZero() && end.Before(c.deadline)", "false && end.Before(c.deadline)",
		"rlock", "TestFakeTimeUnlockIsBoundedInACrowd", quick,
	},
	{
		"a caller sends a request itself although it leaves soon", "internal/request", "Group.process",
		"g.obeys && !c.leaves(now.Add(loneBound))", "g.obeys",
		"internal/request", "TestFakeTimeAloneUntilSoon", quick,
	},
	{
		"a logger that panics lifts the bound of the queue of reports", "internal/report", "Queue.putBack",
		"n := len(q.calls) - 2*limit; n > 0", "n := 0; n > 0",
		"internal/report", "TestPanicsDoNotLengthenTheQueue", quick,
	},
	{
		"an overloaded server is sent as much as before", "internal/request", "pace.shrink",
		"p.limit = max(min(p.limit, len(b.calls)/4), minBatch)", "",
		"internal/request", "TestFakeTimeOverload", quick,
	},
	{
		"an answer that is too late for its calls is one in time", "internal/request", "pace.answered",
		"b.late > len(b.calls)/2 &&", "false &&",
		"internal/request", "TestFakeTimeOverload", quick,
	},
	{
		"a call gives up although others are answered", "internal/request", "Policy.report",
		"newest.After(p.Since)", "false",
		"internal/request", "TestFakeTimeTotalCountsFromTheNewestAnswer", quick,
	},
	{
		"what found no connection in time ends the call", "internal/request", "detached.result",
		"if d.err == ErrNotSent {", "if false {",
		"internal/request", "TestFakeTimeNotSentIsNotLeft", quick,
	},
	{
		"renewals take all connections", "internal/kind", "placesOfNode",
		"placesOfNode = 4", "placesOfNode = 100",
		"rlock", "TestFakeTimeRenewalsThatCrowd", quick,
	},
	{
		"renewals that hang keep those away that come later", "internal/kind", "Places.take",
		"ended := context.AfterFunc(ctx, give)", "ended := func() bool { return true }",
		"rlock", "TestFakeTimeRenewalsBesideACrowd", quick,
	},
	{
		"a slow server of a quorum is not sent all renewals", "internal/kind", "Renewer.send",
		"if !p.quorum {", "if true {",
		"rlock", "TestFakeTimeRenewalsOfAQuorumThatCrowd", quick,
	},
	{
		"a silent server of a quorum is asked as often as a slow one", "internal/kind", "Server.admit",
		"return n <= maxSilent", "return n <= maxAsked",
		"internal/kind", "TestFakeTimeSilentServerIsAskedLess", quick,
	},
	{
		"a slow server of a quorum is asked as seldom as a silent one", "internal/kind", "Quorum.heard",
		"s.answered.Store(now); s.failing", "s.failing",
		"internal/kind", "TestFakeTimeSilentServerIsAskedLess", quick,
	},
	{
		"each poll waits again for a server that was silent before", "internal/kind", "cast",
		"p.server.silent.Store(true)", "",
		"internal/kind", "TestFakeTimePollKnowsWhoIsSilent", quick,
	},
	{
		"a split round pauses by how long it waited for a silent server", "internal/kind", "Quorum.count",
		"took = max(took, v.took)", "took = q.bound()",
		"internal/kind", "TestFakeTimeSplitRoundsBesideASilentServer", quick,
	},
	{
		"who was not asked for a share may have one", "internal/kind", "cast",
		"err: errCrowded, outcome: request.NotExecuted", "err: errCrowded, outcome: request.Unknown",
		"internal/kind", "TestFakeTimePollOfASilentServerIsBounded", quick,
	},
	{
		"a share that was never asked for is released", "internal/kind", "Quorum.Release",
		"!v.final && v.err != errNoShare", "!v.final",
		"internal/kind", "TestFakeTimeQuorumReleaseLeavesOutWhoWasNotAsked", quick,
	},
	{
		"what no connection could be made for may have been executed", "internal/request", "note.errorOf",
		"if err != nil && !n.sent() {", "if false {",
		"rlock", "TestConnectionThatIsNotSetUp", quick,
	},
	{
		"shares are given back one by one", "internal/kind", "givenBack.Gathers",
		"func (givenBack) Gathers(bool) bool { return true }", "func (givenBack) Gathers(bool) bool { return false }",
		"internal/kind", "TestFakeTimeManySharesAtOnce", quick,
	},
	{
		"each request for a share has a connection", "internal/request", "Group.more",
		"g.starting > 0 || len(g.open)-min(g.hung, g.Senders) >= g.pace.senders", "g.starting > 0",
		"internal/kind", "TestFakeTimeManySharesAtOnce", quick,
	},
	{
		"each caller that waits for replicas has a connection", "internal/request", "Group.more",
		"g.starting > 0 || len(g.open)-min(g.hung, g.Senders) >= g.pace.senders", "g.starting > 0",
		"internal/kind", "TestFakeTimeManyWaitForReplicas", quick,
	},
	{
		"what has a command behind it follows nobody", "internal/kind", "withTrailer.Process",
		"if !ok || !moved && !asked {", "if ok || !moved {",
		"internal/kind", "TestFakeTimeTrailerFollowsItsScript", quick,
	},
	{
		"the client of a node that was followed to stays open", "internal/kind", "redirects.open",
		"unused := to.users == 0", "unused := false",
		"internal/kind", "TestFakeTimeTrailerFollowsItsScript", quick,
	},
	{
		"a former master executes what has a command behind it", "internal/kind", "withTrailer.Process",
		"if cluster.Options().ReadOnly {", "if false {",
		"internal/kind", "TestFakeTimeTrailerFollowsItsScript", quick,
	},
	{
		"the first request of a cluster has all commands asked for", "internal/request", "Masters.process",
		"if g = m.group(c.opts.Key); g == nil {", "if true {",
		"internal/request", "TestFakeTimeTheFirstLoadsTheMap", quick,
	},
	{
		"who leaves before replicas are asked is asked for all the same", "internal/request", "Group.leave",
		"case c.state == queued:", "case c.state == queued && c.opts.Trailer == (Trailer{}):",
		"internal/kind", "TestFakeTimeLeavingBeforeReplicasAreAsked", quick,
	},
	{
		"who gives up is not told that replicas are away", "rlock", "Lock.why",
		"case short != nil:", "case false:",
		"rlock", "TestFakeTimeWaitersWithoutReplicas", quick,
	},
	{
		"a goroutine that a hook has ended counts as one that sends", "internal/request", "Group.carry",
		"if more = g.pass(b); more && !answered {", "if !answered { return }; if more = g.pass(b); more && !answered {",
		"internal/kind", "TestFakeTimeHookEndsThePipelineOfReplicas", quick,
	},
	{
		"what was left is given up with its lease", "internal/janitor", "Janitor.work",
		"(one.refused > 0 || j.hasty && (one.tried || p.trouble > 0))", "(one.tried || p.trouble > 0)",
		"internal/janitor", "TestFakeTimeTriesUntilThereIsAnAnswer", quick,
	},
	{
		"a client of a quorum lock closes under the request of another", "rlock", "attempt",
		"Background: l.background, Bound", "Background: c.background, Bound",
		"rlock", "TestQuorumCloseReleasesWhatCallersLeft", long,
	},
	{
		"a quorum lock is held if one server says so", "internal/kind", "Quorum.Force",
		"return held >= q.majority(), nil", "return held > 0, nil",
		"rlock", "TestQuorumForceUnlockOfAShare", long,
	},
}
