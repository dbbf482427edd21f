package mutation

// ofElections are mistakes in who leads, and in what others learn of that.
var ofElections = []mutation{
	{
		"a former leader changes its value", "election", "proclaim.lua",
		"if not held(ARGV[1]) then", "if false then",
		"election", "TestTakeoverDelay", quick,
	},
	{
		"a new leader does not wait for one that has not resigned", "election", "proclaim.lua",
		"if ARGV[5] == '1' and not former[4] then", "if false then",
		"election", "TestTakeoverDelay", quick,
	},
	{
		"a lost reply ends the wait for the former leader", "election", "proclaim.lua",
		"return tonumber(former[3])", "return 0",
		"election", "TestTakeoverDelay", quick,
	},
	{
		"a candidate that leaves during its wait counts as a leader that has resigned", "election", "resign.lua",
		"if redis.call('hget', KEYS[1], 'wait') == '0' then", "if true then",
		"election", "TestTakeoverDelay", quick,
	},
	{
		"a resignation leaves no note", "election", "resign.lua",
		"redis.call('hset', KEYS[1], 'resigned', 1)", "",
		"election", "TestTakeoverDelay", quick,
	},
	{
		"a late resignation ends a newer term", "election", "resign.lua",
		"if redis.call('hget', KEYS[1], 'owner') == ARGV[1] then", "if true then",
		"election", "TestLateRequests", quick,
	},
	{
		"a leader that has died is shown", "election", "leader.lua",
		"held(leader[1] or '-') and leader[3]", "leader[3]",
		"election", "TestObserveDeath", quick,
	},
	{
		"an observer shows an earlier term", "election", "Election.Observe",
		"l.Term != 0 && l.Term < newest", "false",
		"election", "TestObserve", quick,
	},
	{
		"a process whose leadership was lost says that it leads", "election", "Election.IsLeader",
		"t != nil && t.held.Err() == nil", "t != nil",
		"election", "TestRun", quick,
	},
	{
		"a loss ends Run", "election", "Term.lead",
		"again, err = true, nil", "",
		"election", "TestRun", quick,
	},
}

// ofResults are mistakes in results that are computed once.
var ofResults = []mutation{
	{
		"a run whose lock was lost stores its result", "once", "finish.lua",
		"if not held(owner) then", "if false then",
		"once", "TestLockDeletedDuringARun", quick,
	},
	{
		"a run begins although a result came before the lock", "once", "begin.lua",
		"if s[3] then", "if false then",
		"once", "TestResultBeforeTheLock", quick,
	},
	{
		"a run begins although one with an unknown outcome came before the lock", "once", "begin.lua",
		"strict == '1'", "false",
		"once", "TestUnknownBeforeTheLock", quick,
	},
	{
		"a run that has lost its lock begins", "once", "begin.lua",
		"if not held(owner) then", "if false then",
		"once", "TestLockDeletedBeforeTheRun", quick,
	},
	{
		"a former run removes the trace of another", "once", "fail.lua",
		"s[1] ~= owner or s[2]", "s[2]",
		"once", "TestRetractBesideAnotherRun", quick,
	},
	{
		"a run that has lost its lock permits another with Strict", "once", "fail.lua",
		"begun == '1' and not held(owner)", "false",
		"once", "TestFailAfterALoss", quick,
	},
	{
		"a run without a confirmation leaves its trace", "once", "record.begin",
		"if err != nil {\n\t\tgo run.retract()", "if err != nil {\n\t\tgo func() { _ = run.Abandon(held) }()",
		"once", "TestBeginWithoutAnswer", quick,
	},
	{
		"a stored result wakes nobody", "once", "finish.lua",
		"announce(publish, channel, 'done')", "",
		"once", "TestCrowd", quick,
	},
	{
		"callers of one client each have a run", "once", "Group.Do",
		"if f == nil {", "if true {",
		"once", "TestCrowd", quick,
	},
}
