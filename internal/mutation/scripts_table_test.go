package mutation

// ofScripts are mistakes in scripts, and about the keys that they get.
var ofScripts = []mutation{
	{
		"two holders side by side both renew", "lua", "renew.lua",
		" or redis.call('hlen', KEYS[1]) ~= 1 then", " then",
		"rlock", "TestMergedHolders", quick,
	},
	{
		"a reader takes the mark of a waiting writer for a lease", "lua", "rwread.lua",
		"return {0, intent, '', 1}", "return {0, intent, ''}",
		"rlock", "TestBusyBecauseAWriterWaits", quick,
	},
	{
		"clients on one machine have ids alike", "rlock", "newID",
		"_, _ = rand.Read(id[time:])", "_, _ = rand.Read, time",
		"rlock", "TestClientIDsAreRandom", quick,
	},
	{
		"scripts cannot be named under FIPS 140", "lua", "newScript",
		"fips140.WithoutEnforcement(func() { sum = sha1.Sum([]byte(source)) })", "_, sum = fips140.Enabled(), sha1.Sum([]byte(source))",
		"rlock", "TestFIPS", quick,
	},
	{
		"what arrives late is looked for once", "internal/janitor", "Janitor.released",
		"case one.late == 0 || j.hasty:", "case true:",
		"internal/janitor", "TestFakeTimeArrivalAfterAnyLease", quick,
	},
	{
		"that a server looks at slots is not learned", "rlock", "sameSlot",
		"return single && !c.slotted.Load() ||", "return single ||",
		"rlock", "TestMultiLockWhereSlotsAreLookedAt", quick,
	},
	{
		"two connections to one server are two servers", "rlock", "Lock.sameServers",
		"|| known && slices.Equal", "|| !known && slices.Equal",
		"rlock", "TestMultiLockOfTwoConnectionsToOneServer", quick,
	},
	{
		"a long wait is told at each look", "rlock", "waiter.warn",
		"waited >= 2*w.queue.news.warned", "waited >= w.queue.news.warned",
		"rlock", "TestFakeTimeLongWaitIsLogged", quick,
	},
	{
		"a foreign owner's release is taken for ours", "internal/kind", "Server.SubscribeToUnlocks",
		"if payload != \"-0\" {", "if payload == \"-0\" {",
		"rlock", "TestForeignRelease", quick,
	},
	{
		"a proxy gets the keys of several locks that poll", "internal/kind", "Plain.Joint",
		"return p.Gathers(true) && !p.fair", "return !p.fair",
		"rlock", "TestMultiOfPollingLocks", quick,
	},
	{
		"a multi lock takes fair locks out of turn", "internal/kind", "Plain.Joint",
		"return p.Gathers(true) && !p.fair", "return p.Gathers(true)",
		"rlock", "TestMultiLockOfFairLocksWaitsItsTurn", long,
	},
	{
		"releases share a script with acquires", "lua", "join",
		"if j.script == cmd.script && len", "if len",
		"lua", "TestWhoJoins", quick,
	},
	{
		"{a} and a have one queue", "lua", "Own",
		"strings.LastIndexByte(key, '{') == 0 &&", "false &&",
		"rlock", "TestNamesInBraces", quick,
	},
	{
		"Redisson's waiters for {a} are not told", "lua", "pass.lua",
		"'^(:{[^{]*}:*):$', '%1'", "'^()$', '%1'",
		"lua", "TestCourses", quick,
	},
	{
		"a grant is taken back that a replica has told of", "lua", "queue.lua",
		"    elseif absent(ours, how) then\n        return false\n    end\n" +
			"    local heard = redis.pcall(how == 3 and 'spublish' or 'publish', ours, message)\n    return type(heard) ~= 'table' or heard\n",
		"    end\n    local heard = redis.pcall(how == 3 and 'spublish' or 'publish', ours, message)\n" +
			"    return type(heard) == 'table' and heard or heard > 0\n",
		"lua", "TestWhoListensToAReplicaIsToldNothing", quick,
	},
	{
		"who may not be asked for is taken for absent", "lua", "queue.lua",
		"return found and found[2] == 0", "return found and (found.err or found[2] == 0)",
		"lua", "TestWhoListensToAReplicaIsToldNothing", quick,
	},
	{
		"the client that keeps {a} is not recalled", "lua", "recall.lua",
		"name = key .. ':'", "name = key",
		"lua", "TestRetained", quick,
	},
	{
		"a writer is not renewed while a slot moves", "lua", "Renew",
		"due[n].keys = nil", "_ = n",
		"lua", "TestReadWriteWhileTheSlotMoves", quick,
	},
	{
		"a renewal makes a read hold that is on another node", "lua", "rw.lua",
		"if ttl == -2 and n <= had then", "if false then",
		"lua", "TestReadWriteWhileTheSlotMoves", quick,
	},
	{
		"a reader whose hold is on another node is taken out", "lua", "rw.lua",
		"ttl == -2 and elsewhere(", "false and elsewhere(",
		"lua", "TestReadWriteWhileTheSlotMoves", quick,
	},
	{
		"a lock that is named like an intent is deleted", "lua", "rw.lua",
		"return intention(key) and redis.call('del', key) == 1", "return redis.call('del', key) == 1",
		"lua", "TestReadWriteIntentConflicts", quick,
	},
	{
		"a writer takes a lock for an intent", "lua", "rwwrite.lua",
		"if not held then\n    awaited", "if false then\n    awaited",
		"lua", "TestReadWriteIntentConflicts", quick,
	},
	{
		"a replica says that the lock is held", "lua", "queue.lua",
		"string.find(added.err, 'OOM ', 1, true) and 0 or added", "0",
		"lua", "TestAskWhereNothingIsWritten", quick,
	},
	{
		"a read/write lock is not released while its slot moves", "lua", "script.runApart",
		"keys[:1], args", "keys, args",
		"lua", "TestReadWriteWhileTheSlotMoves", quick,
	},
	{
		"a replica answers who keeps its ticket", "lua", "queue.lua",
		"local kept = redis.pcall('zrem', queue, '')", "local kept = 0",
		"lua", "TestAskOfAReplicaIsRefused", quick,
	},
	{
		"who asks is not told that its client listens elsewhere", "lua", "ask.lua",
		"local deaf = how == '1' and", "local deaf = false and",
		"lua", "TestAskTellsWhoIsAbsent", quick,
	},
	{
		"the own ticket outlives a release", "lua", "release.lua",
		"    redis.pcall('zrem', queue, owner)\n    end\n    local held", "    end\n    local held",
		"lua", "TestQueueInAnyOrder", quick,
	},
}
