package mutation

// ofJoining are mistakes about holds that another process has joined.
var ofJoining = []mutation{
	{
		"each look at a lease makes it a new one", "watchdog/entry.go",
		"extend(sent.Add(left-d), d)", "extend(sent, d)",
		"rlock", "TestFakeTimeJoinedEndsBeforeTheLeaseOfADeadHolder", quick,
	},
	{
		"the time to stop in shrinks with what is left", "watchdog/entry.go",
		"e.duration = max(e.duration, left)", "e.duration = left",
		"watchdog", "TestLookedAtLeaseEndsBeforeTheLeaseDoes", quick,
	},
	{
		"what was joined is trusted for a lease of the joiner's", "rlock/join.go",
		"l.joinedLock(wire.Joined(), a.value)", "l.joinedLock(wire.Joined(), l.lease)",
		"rlock", "TestFakeTimeJoinedWhileRedisIsSilent", quick,
	},
	{
		"the window of a join is counted from the answer", "rlock/join.go",
		"newJoined(ctx, p, a.sent)", "newJoined(ctx, p, time.Now())",
		"rlock", "TestFakeTimeLateAnswerToAJoin", quick,
	},
	{
		"who has joined renews", "internal/kind/joined.go",
		"lua.Confirmation(j.Of(owner))", "lua.Renewal{Grant: j.Of(owner), Lease: time.Minute}",
		"rlock", "TestFakeTimeJoinedEndsBeforeTheLeaseOfADeadHolder", quick,
	},
	{
		"who has joined releases", "internal/kind/joined.go",
		"func (joined) Release(", "func (joined) releaseNothing(",
		"rlock", "TestJoin", quick,
	},
	{
		"who has joined sets the hold count", "rlock/nest.go",
		"|| g.lock.joined {", "{",
		"rlock", "TestJoin", quick,
	},
	{
		"a proof is good for the next holder in memory", "rlock/handoff.go",
		" || g.proven.Load()", "",
		"rlock", "TestFakeTimeProofIsNotPassedOn", quick,
	},
	{
		"the server is not asked for the owner of a proof", "lua/confirm.lua",
		"or redis.call('hexists', KEYS[1], ARGV[2]) == 0", "",
		"rlock", "TestJoinChecksTheServer", quick,
	},
	{
		"a replica says who holds a lock", "lua/confirm.lua",
		"redis.call('hdel', KEYS[1], '')", "",
		"lua", "TestReplicaConfirmsNothing", quick,
	},
	{
		"a proof is good for any lock", "rlock/proof.go",
		"case p.text(key) == word:", "case true:",
		"rlock", "TestJoinRefuses", quick,
	},
	{
		"Close does not tell who has joined", "rlock/client.go",
		"held = append(held, c.joins.all()...)", "",
		"rlock", "TestCloseOfAClientThatHasJoined", quick,
	},
}
