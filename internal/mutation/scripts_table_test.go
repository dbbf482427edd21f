package mutation

// ofScripts are mistakes in scripts, and about the keys that they get.
var ofScripts = []mutation{
	{
		"two holders side by side both renew", "lua", "renew.lua",
		"elseif redis.call('hlen', KEYS[1]) ~= 1 then", "elseif false then",
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
		"what arrives late is looked for once", "internal/janitor", "Janitor.tried",
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
		"waited >= 2*n.warned", "waited >= n.warned",
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
		"who asks is not told that its client listens elsewhere", "lua", "queue.lua",
		"local deaf = how == '1' and", "local deaf = false and",
		"lua", "TestAskTellsWhoIsAbsent", quick,
	},
	{
		"the own ticket outlives a release", "lua", "release.lua",
		"    redis.pcall('zrem', queue, owner)\n    end\n    local held", "    end\n    local held",
		"lua", "TestQueueInAnyOrder", quick,
	},
	// The short paths of a hand-off.
	{
		"the short path of a release misses a lapse", "lua", "release_fast.lua",
		"head[1] == '!' .. owner and 3", "string.find(head[1] or '', '^!') and 3",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release leaves tickets that it was given", "lua", "release_fast.lua",
		"ARGV[3 * i] == '' and command", "command",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release sends a message to the own client", "lua", "release_fast.lua",
		"prefix ~= string.sub(owner, 1, #prefix)", "true",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release names no followers", "lua", "release_fast.lua",
		"prefix ~= string.sub(behind or '', 1, #prefix)", "true",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release takes the own ticket for another", "lua", "release_fast.lua",
		"behind ~= owner then", "true then",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release leaves the own ticket", "lua", "release_fast.lua",
		"type(call('zrem', queue, owner)) == 'number' and call", "call",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release grants beside Redisson", "lua", "release_fast.lua",
		"heard[2] == 0 and (heard", "(heard",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release grants to the dead", "lua", "release_fast.lua",
		"heard[4] > 0 or how == 2", "true",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release lets anybody release", "lua", "release_fast.lua",
		"== 'number' and call('hdel', key, owner) == 1", "== 'number' and call('hdel', key, owner)",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release keeps a queue of nobody", "lua", "release_fast.lua",
		"behind and 60000 or claim", "60000",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release lets the queue expire", "lua", "release_fast.lua",
		"behind and 60000 or claim", "claim",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release grants without a lease", "lua", "release_fast.lua",
		"and call('pexpire', key, claim) == 1", "",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release leaves the record of a grant", "lua", "release_fast.lua",
		"call('zrem', queue, next, '!' .. owner)", "call('zrem', queue, next)",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a release has no time", "lua", "release_fast.lua",
		"and time[1]\n", "\n",
		"lua", "TestShortPathsRefused", 3 * quick,
	},
	{
		"the short path of a release does not see that it may remove nothing", "lua", "release_fast.lua",
		"type(call('zrem', queue, owner)) == 'number'", "call('zrem', queue, owner)",
		"lua", "TestShortPathsRefused", 3 * quick,
	},
	{
		"the short path of a release does not see that it may make no record", "lua", "release_fast.lua",
		"call('zadd', queue, 0, '!' .. next) == 1", "call('zadd', queue, 0, '!' .. next)",
		"lua", "TestShortPathsRefused", 3 * quick,
	},
	{
		"the short path of a release loses a message", "lua", "release_fast.lua",
		"type(call(command, ours, text)) == 'number'", "call(command, ours, text)",
		"lua", "TestShortPathsRefused", 3 * quick,
	},
	{
		"the short path of a release loses a place", "lua", "release_fast.lua",
		"                call('zadd', queue, head[at + 1], next)\n", "",
		"lua", "TestShortPathsRefused", 3 * quick,
	},
	{
		"the short path of a release leaves a record of no grant", "lua", "release_fast.lua",
		"                call('zrem', queue, '!' .. next)\n", "",
		"lua", "TestShortPathsRefused", 3 * quick,
	},
	{
		"the short path of a release says that nobody held the lock", "lua", "release_fast.lua",
		"                freed = true\n", "",
		"lua", "TestShortPathsWhileTheSlotMoves", 3 * quick,
	},
	{
		"the short path of a release does not see that it may grant nothing", "lua", "release_fast.lua",
		"call('hset', key, next, '1') == 1", "call('hset', key, next, '1')",
		"lua", "TestShortPathsRefused", 3 * quick,
	},
	{
		"the short path of a request leaves a ticket nobody wants", "lua", "ask_fast.lua",
		"ARGV[4] ~= '0' and call", "call",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a request waits for an application's key", "lua", "ask_fast.lua",
		" and call('hlen', KEYS[1]) == 1", "",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a request refuses the holder", "lua", "ask_fast.lua",
		"if holder ~= owner and string", "if string",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a request waits for an application's field", "lua", "ask_fast.lua",
		"string.find(holder, ':', 1, true)", "true",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a request does not ask for a kept lock", "lua", "ask_fast.lua",
		"'^[1-9]%d*$'", "'^%d+$'",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a request gives a new place to who has one", "lua", "ask_fast.lua",
		"'nx', ", "",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a request lets the queue expire", "lua", "ask_fast.lua",
		"kept >= 30000 or", "true or",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a request counts the record of a grant", "lua", "ask_fast.lua",
		"call('zcount', queue, 1, '+inf')", "call('zcount', queue, 0, '+inf')",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a request does not tell who is absent", "lua", "ask_fast.lua",
		"heard[2] == 0 and 1 or 0", "0",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a request counts who cannot be counted", "lua", "ask_fast.lua",
		"how == '1' and", "",
		"lua", "TestShortPaths", quick,
	},
	{
		"the short path of a request has no time", "lua", "ask_fast.lua",
		"if time[1] and tonumber", "if tonumber",
		"lua", "TestShortPathsRefused", 3 * quick,
	},
	{
		"the short path of a request does not know how long the queue lasts", "lua", "ask_fast.lua",
		"tonumber(kept) and", "",
		"lua", "TestShortPathsRefused", 3 * quick,
	},
	{
		"the short path of a request has no length", "lua", "ask_fast.lua",
		"tonumber(length) and", "",
		"lua", "TestShortPathsRefused", 3 * quick,
	},
	{
		"the short path of a request does not know who is before", "lua", "ask_fast.lua",
		"tonumber(before) and", "",
		"lua", "TestShortPathsRefused", 3 * quick,
	},
	{
		"the short path of a request gives the first place", "lua", "ask_fast.lua",
		"and not last.err\n", "\n",
		"lua", "TestShortPathsRefused", 3 * quick,
	},
	{
		"the short path of a release overtakes others of its script", "lua", "release_fast.lua",
		"elseif queued == 1 and #KEYS == 2 then", "elseif queued == 1 then",
		"lua", "TestJoinedIsOneAfterTheOther", quick,
	},
	{
		"the short path of a request answers one of several", "lua", "ask_fast.lua",
		"#KEYS == 2 and ", "",
		"lua", "TestJoinedIsOneAfterTheOther", quick,
	},
	// The queue of read/write locks.
	{
		"a reader is not told that a writer waits", "lua", "rwask.lua",
		"answer[9] = shared == 1 and l.mode == 'read' and 1 or 0", "answer[9] = 0",
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
		"    redis.pcall('zrem', l.queue, owner, '!' .. owner .. ':')", "    redis.pcall('zrem', l.queue, '!' .. owner .. ':')",
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
		"            take(l, g[1], g[4])\n", "",
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
		"a writer whom a release without counter has granted the lock has the token of the one before", "lua", "batch.lua",
		"counter and 5 or bare", "5",
		"lua", "TestReadWriteTokenAfterAReleaseWithoutCounter", quick,
	},
	{
		"a writer that repeats its request has another token each time", "lua", "rwask.lua",
		"            redis.call('zadd', l.queue, 5, record)\n", "",
		"lua", "TestReadWriteTokenAfterAReleaseWithoutCounter", quick,
	},
	{
		"a thread in Java that does not wait yet misses a writer's release", "lua", "announce.lua",
		"if message == '+1' then", "if false then",
		"lua", "TestReadWriteMessagesOfAWriter", quick,
	},
	{
		"a thread in Java that does not wait yet misses a writer's release, with an empty queue", "lua", "rwrelease_fast.lua",
		"if not reads then", "if false then",
		"lua", "TestReadWriteMessagesOfAWriter", quick,
	},
	{
		"a replica says that an owner holds nothing", "lua", "nothing.lua",
		"if type(removed) == 'table' and not", "if false and not",
		"lua", "TestOnlyAMasterSaysNotTheOwner", quick,
	},
	{
		"a replica ends a hold of a read/write lock", "lua", "rwrelease.lua",
		"local answer = nothing(l.key, owner .. ':write')", "local answer = 0",
		"lua", "TestOnlyAMasterSaysNotTheOwner", quick,
	},
	{
		"frozen writers cost a claim each", "lua", "rwask.lua",
		"    settle(l.queue, l.commands, owner)\n", "",
		"lua", "TestReadWriteLapses", quick,
	},
	{
		"a released grant of a read/write lock counts as lapsed", "lua", "rwrelease.lua",
		"redis.pcall('zrem', l.queue, owner, '!' .. owner .. ':')", "redis.pcall('zrem', l.queue, owner)",
		"lua", "TestReadWriteReleaseIsNoLapse", quick,
	},
	{
		"a reader that leaves looks at all others", "lua", "rwrelease_fast.lua",
		"(size > 18 or ttl >=", "(ttl >=",
		"lua", "TestReadWriteReleaseBesideReadersOfMixedLeases", quick,
	},
	{
		"a lock whose next owner cannot be told is nobody's", "lua", "rwask.lua",
		"waits and new == 0 and failure and failure.err", "false",
		"lua", "TestReadWriteWhereMessagesAreRefused", quick,
	},
	{
		"the server counts all readers who share a grant", "rlock", "grant.readers",
		"			together = 1\n", "			n++\n",
		"rlock", "TestNestedReaderOfManyWhoShare", quick,
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
