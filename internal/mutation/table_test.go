package mutation

import (
	"slices"
	"time"
)

const (
	quick = 20 * time.Second
	long  = time.Minute // many take part
)

var mutations = slices.Concat(ofRequests, ofScripts, ofSending, ofWaiting, ofHandOffs, ofLeaving, ofNesting, ofRetention, ofJoining, ofJobs, ofElections, ofResults)

// ofRequests are mistakes in what goes over the wire, and in who may trust it.
var ofRequests = []mutation{
	// Scripts.
	{
		"the lock is granted although it is held", "lua", "try.lua",
		"if ttl == -2 then", "if true then",
		"rlock", "TestMutualExclusion", quick,
	},
	{
		"the lock is granted although it is held, as histories see it", "lua", "try.lua",
		"if ttl == -2 then", "if true then",
		"internal/verify", "TestVerifyInShort/rows/nothing", long,
	},
	{
		"the hold count is stepped, not set", "lua", "count.lua",
		"redis.call('hset', KEYS[1], ARGV[2], ARGV[3])", "redis.call('hincrby', KEYS[1], ARGV[2], ARGV[3])",
		"lua", "TestSentTwice", quick,
	},
	{
		"a count makes a new grant", "lua", "count.lua",
		"or redis.call('hexists', KEYS[1], ARGV[2]) == 0", "",
		"lua", "TestLateDeliveriesLeaveTheGrant", quick,
	},
	{
		"a release asks for no owner", "lua", "release.lua",
		"redis.pcall('hdel', key, owner)", "redis.pcall('del', key)",
		"lua", "TestLateDeliveriesLeaveTheGrant", quick,
	},
	{
		"a release is not announced", "lua", "release_fast.lua",
		"call(command, unlocks, '-0')", "0",
		"lua", "TestCourses", quick,
	},
	{
		"a renewal may shorten the lease", "lua", "renew.lua",
		"math.max(redis.call('pttl', KEYS[1]), tonumber(ARGV[1]))", "ARGV[1]",
		"lua", "TestAnyOrderOfDeliveries", quick,
	},
	{
		"a replica renews a long lease", "lua", "renew.lua",
		"redis.call('pexpire', KEYS[1], math", "local _ = redis.call('pttl', KEYS[1]) < tonumber(ARGV[1]) and redis.call('pexpire', KEYS[1], math",
		"lua", "TestRenewalWhereNothingIsWritten", quick,
	},
	{
		"tokens follow the clock alone", "lua", "token.lua",
		"if less(newest, now) then", "if true then",
		"lua", "TestTokensGrow", quick,
	},

	// The trusted window.
	{
		"the window is counted from the reply", "rlock", "send",
		"returned = true", "returned = true; a.Sent = time.Now()",
		"rlock", "TestFakeTimeWindowCountsFromTheAnsweredAttempt", quick,
	},
	{
		"the wall clock is not asked", "watchdog", "remaining",
		"return min(t.Sub(now), t.Round(0).Sub(now.Round(0)))", "return t.Sub(now)",
		"watchdog", "TestRemainingAsksBothClocks", quick,
	},
	{
		"no time is left to stop in", "watchdog", "windowOf",
		"until.Add(-Guard(d))", "until",
		"watchdog", "TestLossAtTheExactInstant", quick,
	},
	{
		"a loss is not told while the server is silent", "watchdog", "Scheduler.loop",
		"report(lost); s.dispatch(now, due)", "_ = lost; s.dispatch(now, due)",
		"watchdog", "TestLossAtTheExactInstant", quick,
	},
	{
		"a lost lock is unlocked without an error", "rlock", "grant.release",
		"case errors.Is(a.Err, lua.ErrNotOwner) && !a.Doubt:", "case errors.Is(a.Err, lua.ErrNotOwner) && false:",
		"rlock", "TestLossJoinsTheErrorOfDo", quick,
	},
	{
		"a release whose reply was lost is a loss", "rlock", "grant.release",
		"case errors.Is(a.Err, lua.ErrNotOwner) && !a.Doubt:", "case errors.Is(a.Err, lua.ErrNotOwner):",
		"rlock", "TestLostReply", quick,
	},

	// Who is awake, and who is next.
	{
		"a confirmed subscription wakes nobody", "pubsub", "conn.answered",
		"ch.live, ch.moves, c.confirmed = true, 0, true; ch.changed()", "ch.live, ch.moves, c.confirmed = true, 0, true",
		"pubsub", "TestConfirmationIsAWakeUp", quick,
	},
	{
		"a lost subscription wakes nobody", "pubsub", "channel.reset",
		"ch.changed()", "",
		"pubsub", "TestBrokenConnectionIsReplaced", quick,
	},
	{
		"a head that leaves takes its wake-up along", "rlock", "asker.askForLine",
		"a.turn()", "",
		"rlock", "TestFakeTimeFirstLeavesWhileItAsks", quick,
	},
	{
		"a renewal not sent yet ends with the answers of a majority", "internal/kind", "Renewer.atOnce",
		"own, cancel := outlast(ctx)", "own, cancel := context.WithCancel(ctx)",
		"rlock", "TestFakeTimeQuorumRenewsAllShares", quick,
	},
	{
		"who waits behind one in trouble sleeps on", "rlock", "queue.follow",
		"next.again = next.again || again || q.news.trouble != nil", "",
		"rlock", "TestFakeTimeNextAsksInTrouble", quick,
	},
	{
		"a release that was refused is forgotten", "internal/janitor", "Janitor.tried",
		"o != request.Answered && one.Likely", "false",
		"rlock", "TestFakeTimeRefusedReleaseIsRepeated", quick,
	},

	// Kinds of lock, as histories see them.
	{
		"readers do not look for a writer", "lua", "rwask.lua",
		"if mode == 'write' or ttl == -1 then", "if ttl == -1 then",
		"internal/verify", "TestVerifyInShort/rows/rw: any reply lost", long,
	},
	{
		"the queue of a fair lock has no order, as histories see it", "lua", "queue.lua",
		"place, new = math.floor((tonumber(last[2]) or 0) / 32768) + 1, 1", "place, new = 1, 1",
		"internal/verify", "TestVerifyInShort/rows/fair: nothing", long,
	},
	{
		"who waits for young servers wakes all others", "internal/kind", "Quorum.decide",
		"mayBeMine(v) && v.value.quarantine == 0", "mayBeMine(v)",
		"internal/kind", "TestFakeTimeRound", quick,
	},
	{
		"young servers count as a split vote", "internal/kind", "Quorum.count",
		"held > 0 && mine+held >= q.majority()", "held > 0",
		"internal/kind", "TestFakeTimeRound", quick,
	},
	{
		"a share is granted past whoever has the turn", "lua", "share.lua",
		"local other, left = turn(queue, commands, counted, client, owner)", "local other, left = nil, 0",
		"lua", "TestShareGoesToWhoHasTheTurn", quick,
	},
	{
		"who misses a turn keeps the first ticket", "lua", "turn.lua",
		"redis.call('zrem', queue, client)\n    end", "end",
		"lua", "TestShareOfWhoDoesNotCome", quick,
	},
	{
		"the tickets of a quorum lock have other numbers on each server", "internal/kind", "Quorum.Acquire",
		"disagree && !raised", "disagree && raised",
		"internal/kind", "TestFakeTimeTicketsHaveOneNumber", quick,
	},
	{
		"the turn by one server is taken for that by a majority", "internal/kind", "turns.hear",
		"told == t.q.majority()", "told == 1",
		"internal/kind", "TestFakeTimeTurnOfAMajority", quick,
	},
	{
		"who leaves a quorum lock keeps the turn", "internal/kind", "turns.Close",
		"if leaves && number > 0 {", "if leaves && number < 0 {",
		"internal/kind", "TestFakeTimeTicketsHaveOneNumber", quick,
	},
	{
		"nobody asks in place of a stopped client that has the turn", "internal/kind", "turns.hear",
		"t.sleep(turnPause)", "",
		"rlock", "TestFakeTimeQuorumTurnOfAStoppedClient", quick,
	},
	{
		"a minority is enough", "internal/kind", "Quorum.majority",
		"return len(q.nodes)/2 + 1", "return len(q.nodes) / 2",
		"internal/verify", "TestVerifyInShort/rows/quorum: connections cut", long,
	},

	// Scripts for several callers.
	{
		"parts of a script get one answer", "lua", "joint.distribute",
		"part.SetVal(replies[i])", "part.SetVal(replies[0])",
		"lua", "TestJoined", quick,
	},
	{
		"a script without an answer is sent again in parts", "lua", "joint.settle",
		"if ofCompany(err) {", "if err != nil {",
		"lua", "TestJoinedWithoutAnswer", quick,
	},
	{
		"an error in a part is that of all", "lua", "outcome.lua",
		"type(reply) == 'table' and reply.err or not ok and reply", "not ok and reply",
		"lua", "TestJoinedOutOfMemory", quick,
	},

	// The queue on the server.
	{
		"a ticket that nobody hears for is believed", "lua", "queue.lua",
		"elseif absent(ours, how) then", "elseif false then",
		"lua", "TestCourses", quick,
	},
	{
		"listeners who cannot queue are not asked for", "lua", "queue.lua",
		"return count > 0\n", "return false\n",
		"lua", "TestCourses", quick,
	},
	{
		"a ticket is granted twice", "lua", "pass.lua",
		"    redis.call('zrem', queue, owner)\n    local text", "    local text",
		"lua", "TestCourses", quick,
	},
	{
		"the record of a grant is not made", "lua", "pass.lua",
		"    redis.call('zadd', queue, 0, '!' .. owner)\n    redis.call('zrem'", "    redis.call('zrem'",
		"lua", "TestCourses", quick,
	},
	{
		"the record of a grant is not removed", "lua", "queue.lua",
		"    redis.call('zrem', queue, record)\n    local lapsed", "    local lapsed",
		"lua", "TestCourses", quick,
	},
	{
		"whoever let a grant lapse keeps its other places", "lua", "queue.lua",
		"if lapsed == home then", "if true then",
		"lua", "TestCourses", quick,
	},
	{
		"the loss of all places is not told", "lua", "queue.lua",
		"            redis.call('zrem', queue, tickets[i])\n            told[other] = true", "            redis.call('zrem', queue, tickets[i])",
		"lua", "TestCourses", quick,
	},
	{
		"a lapse calls nobody", "lua", "queue.lua",
		"elseif other ~= home and i < 2 * called", "elseif false and i < 2 * called",
		"lua", "TestCourses", quick,
	},
	{
		"who has not answered a call keeps its place", "lua", "queue.lua",
		"if other == lapsed or not lives[other] then", "if other == lapsed then",
		"lua", "TestCourses", quick,
	},
	{
		"who cannot hear a call loses its place", "lua", "queue.lua",
		" and claimOf(i) > patience and tickets[i + 1] % 4 ~= 0 then", " and claimOf(i) > patience then",
		"lua", "TestCourses", quick,
	},
	{
		"a call is taken for a grant", "rlock", "asker.trusts",
		"m.Claim < l.claim,", "",
		"rlock", "TestFakeTimeCallIsAnswered", quick,
	},
	{
		"the queue has no order", "lua", "queue.lua",
		"place, new = math.floor((tonumber(last[2]) or 0) / 32768) + 1, 1", "place, new = 1, 1",
		"lua", "TestScores", quick,
	},
	{
		"the queue has no TTL", "lua", "queue.lua",
		"if redis.call('pttl', queue) < keep / 2 then", "if false then",
		"lua", "TestQueueIsKept", quick,
	},
	{
		"a late request makes one deaf who hears", "lua", "queue.lua",
		"how = how == '0' and old % 4 or how", "how = how",
		"lua", "TestCourses", quick,
	},
	{
		"whoever asks for a free lock overtakes the queue", "lua", "ask.lua",
		"serve(key, queue, counter, commands, false, nil, owner)", "false, nil, owner",
		"lua", "TestCourses", quick,
	},
	{
		"whoever asks beside a foreign owner does not rouse the second", "lua", "queue.lua",
		"if before == 0 and foreign(holder) then", "if false then",
		"lua", "TestCourses", quick,
	},
	{
		"a leaver's ticket stays", "lua", "release.lua",
		"redis.pcall('zrem', queue, ticket)", "",
		"lua", "TestCourses", quick,
	},
	{
		"the first leaves, and nobody watches a foreign owner", "lua", "release.lua",
		"if led and next and foreign(next) then", "if false then",
		"lua", "TestCourses", quick,
	},
	{
		"a repeated release brings a grant into its answer", "lua", "release.lua",
		"held == 1 and client(owner) or nil", "client(owner)",
		"lua", "TestCourses", quick,
	},
	{
		"unused tokens are given back although others were counted", "lua", "token.lua",
		"if redis.pcall('get', counter) == reserved then", "if true then",
		"lua", "TestTokensGivenBack", quick,
	},
	{
		"a queue without its lock is told nothing", "lua", "apart.lua",
		"if ARGV[3] == '1' then", "if false then",
		"lua", "TestServeApart", quick,
	},
}
