package mutation

// ofScripts are mistakes in scripts, and about the keys that they get.
var ofScripts = []mutation{
	{
		"two holders side by side both renew", "lua", "renew.lua",
		" or redis.call('hlen', KEYS[1]) ~= 1 then", " then",
		"rlock", "TestMergedHolders", quick,
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
		"if payload != \"-0\" && payload != \"+1\" {", "if payload == \"-0\" {",
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
	// The queue of read/write locks.
	{
		"a reader is not told that a writer waits", "lua", "rwask.lua",
		"local awaited = shared == 1 and l.mode ~= 'write'", "local awaited = false",
		"lua", "TestReadWriteAnswers", quick,
	},
	{
		"readers join those inside, past a waiting writer", "lua", "batch.lua",
		"if count == 0 or not batch or not admits(l, 1) then", "if not admits(l, 1) then",
		"lua", "TestReadWriteInAnyOrder", quick,
	},
	{
		"a batch ends at the first writer", "lua", "batch.lua",
		"if count == 0 or not batch or not admits(l, 1) then", "if true then",
		"lua", "TestReadWriteBatch", quick,
	},
	{
		"a client with one deaf ticket is dead in every way", "lua", "batch.lua",
		"local ear = home .. how", "local ear = home",
		"lua", "TestReadWriteInAnyOrder", quick,
	},
	{
		"a client gets a message for each of its grants", "lua", "batch.lua",
		"                if not lines[home] then\n", "                if true then\n",
		"lua", "TestReadWriteBatch", quick,
	},
	{
		"a dead writer at the head hides the readers behind", "lua", "batch.lua",
		"if owner ~= asker and dead[ear] then", "if owner ~= asker and dead[ear] and admits(l, shared) then",
		"lua", "TestReadWriteInAnyOrder", quick,
	},
	{
		"the own ticket outlives the release of a read/write lock", "lua", "rwrelease.lua",
		"    redis.pcall('zrem', l.queue, owner)", "    ",
		"lua", "TestReadWriteInAnyOrder", quick,
	},
	{
		"a repeated release of a read/write lock tells its own client by the answer", "lua", "rwrelease.lua",
		"local own, failure, lines, count = held and ARGV[6] ~= '1' and client(owner) or nil,", "local own, failure, lines, count = client(owner),",
		"lua", "TestReadWriteInAnyOrder", quick,
	},
	{
		"nobody watches Redisson's readers who are left", "lua", "rwrelease.lua",
		"if queued and count == 0 and mode ~= 'none' and", "if false and",
		"lua", "TestReadWriteInAnyOrder", quick,
	},
	{
		"what a refused message grants is not taken back", "lua", "batch.lua",
		"                    take(l, g[1], g[4])\n", "",
		"lua", "TestReadWriteRefusedChannel", quick,
	},
	{
		"a writer looks at all readers", "lua", "rw.lua",
		"if size <= few then", "if true then",
		"lua", "TestReadWriteCrowd", quick,
	},
	{
		"the dead keep a writer out", "lua", "rw.lua",
		"                redis.call('hdel', lock, owner)\n", "                ttl, whose = 1, owner\n",
		"lua", "TestReadWriteAnswers", quick,
	},
	{
		"tokens are reserved for a writer that may become a reader", "lua", "batch.lua",
		"token = following(l.counter, token)", "token = following(l.counter, token, shared == 0 and 1024 or 0)",
		"lua", "TestReadWriteTokensByTheQueue", quick,
	},
	{
		"a portion is all", "lua", "rwrelease.lua",
		"local more = count == portion and 1 or 0", "local more = 0",
		"lua", "TestReadWritePortions", quick,
	},
	{
		"the rest of a long queue is served by the releasing owner", "internal/kind", "ReadWrite.serveMore",
		"rw.of(rw.server.Owner())", "rw.of(\"me:9\")",
		"internal/kind", "TestFakeTimeLongQueueIsServedInPortions", quick,
	},
	{
		"a queue apart from its read/write lock is told nothing", "lua", "script.runApart",
		"case again == nil:", "case false:",
		"lua", "TestReadWriteQueueWhileTheSlotMoves", quick,
	},
}
