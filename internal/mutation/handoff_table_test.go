package mutation

// ofHandOffs are mistakes about grants that are passed on in memory.
var ofHandOffs = []mutation{
	{
		"a fair lock is passed on beyond another client's turn", "lua", "pass.lua",
		"if string.sub(next, 1, #prefix) ~= prefix then", "if false then",
		"lua", "TestCourses", quick,
	},
	{
		"successors keep their place in the queue", "rlock", "grant.alsoEnds",
		"e := lua.Ending{Tickets: g.run.passed, Used", "e := lua.Ending{Used",
		"rlock", "TestFairRun", quick,
	},
	{
		"a grant is passed on whose window is nearly over", "watchdog", "Entry.Pass",
		"remaining(now, e.window.Load().until) < left", "false",
		"watchdog", "TestPassIsRefused", quick,
	},
	{
		"a grant is passed on while a count is under way", "rlock", "grant.unsettled",
		"return g.told != nil", "return false",
		"rlock", "TestFakeTimeNoHandoffWhileCounting", quick,
	},
	{
		"a grant is passed on while an attempt of its owner is under way", "rlock", "grant.unsettled",
		"g.from.doubt || g.left(countUnderWay", "g.left(countUnderWay",
		"rlock", "TestFakeTimeAnswerAfterAHandOff", quick,
	},
	{
		"the places of a run that is lost stay", "rlock", "grant.lose",
		"g.sweepPassed()", "",
		"rlock", "TestFakeTimeFairHeirOfALostGrant", quick,
	},
	{
		"a hand-off has no budget after a multi lock", "rlock", "Lock.enlist",
		"run{began: sent, spare: spare}", "run{spare: spare}",
		"rlock", "TestFakeTimeHandoffBudget", quick,
	},
	{
		"a lease with the terms of a nested hold is passed on", "watchdog", "Entry.Pass",
		"|| e.asks() != renew", "",
		"rlock", "TestFakeTimeTermsEndWithTheGrant", quick,
	},
}
