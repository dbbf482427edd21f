package mutation

// ofJobs are mistakes in claiming and running fires.
var ofJobs = []mutation{
	{
		"a fire is claimed again", "jobs", "claim.lua",
		"or fire == tonumber(ARGV[1]) and old[3] ~= ARGV[2] then", "then",
		"jobs", "TestNamesWithBraces", quick,
	},
	{
		"a fire before the newest one is claimed", "jobs", "claim.lua",
		"if fire > tonumber(ARGV[1]) or fire == tonumber(ARGV[1]) and", "if fire == tonumber(ARGV[1]) and",
		"jobs", "TestLateHost", quick,
	},
	{
		"a repeated claim does not know itself", "jobs", "claim.lua",
		"and old[3] ~= ARGV[2] then", "then",
		"jobs", "TestRepeatedClaim", quick,
	},
	{
		"a late claim has an effect", "jobs", "claim.lua",
		"time > tonumber(ARGV[3])", "false",
		"jobs", "TestFakeTimeLateClaim", quick,
	},
	{
		"a call before the fire means the fire before", "jobs", "Job.meant",
		"next.Sub(now) <= early", "false",
		"jobs", "TestFakeTimeAnHourOfDo", quick,
	},
	{
		"a call means the next fire, however far that is", "jobs", "Job.meant",
		"early = min(early, next.Sub(newest)/2)", "early = next.Sub(newest)",
		"jobs", "TestFakeTimeEarly", quick,
	},
	{
		"a schedule that counts from the call is taken", "jobs", "check",
		"!s.Next(fire.Add(-time.Millisecond)).Equal(fire)", "false",
		"jobs", "TestInvalid", quick,
	},
	{
		"a slow answer sets the clock", "jobs", "clock.set",
		"took > 50*time.Millisecond &&", "false &&",
		"jobs", "TestFakeTimeSlowAnswer", quick,
	},
	{
		"the hosts that wait give up before the next fire", "jobs", "Job.begin",
		"max(next.Sub(now), 0)", "max(next.Sub(now)/100, 0)",
		"jobs", "TestFakeTimeAtLeastOnce", quick,
	},
	{
		"a run whose lock was lost finishes its fire", "jobs", "finish.lua",
		"if held(ARGV[2]) then", "if true then",
		"jobs", "TestFinishedByTheHolderOnly", quick,
	},
}
