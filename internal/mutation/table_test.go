package mutation

import "time"

const (
	quick = 20 * time.Second
	long  = time.Minute // many take part
)

var mutations = []mutation{
	// Scripts.
	{
		"the lock is granted although it is held", "lua/acquire.lua",
		"if not held then", "if false then",
		"rlock", "TestMutualExclusion", quick,
	},
	{
		"the lock is granted although it is held, as histories see it", "lua/acquire.lua",
		"if not held then", "if false then",
		"internal/verify", "TestVerifyInShort/rows/nothing", long,
	},
	{
		"the hold count is stepped, not set", "lua/count.lua",
		"redis.call('hset', KEYS[1], ARGV[2], ARGV[3])", "redis.call('hincrby', KEYS[1], ARGV[2], ARGV[3])",
		"lua", "TestSentTwice", quick,
	},
	{
		"a count makes a new grant", "lua/count.lua",
		"or redis.call('hexists', KEYS[1], ARGV[2]) == 0", "",
		"lua", "TestLateDeliveriesLeaveTheGrant", quick,
	},
	{
		"a release asks for no owner", "lua/release.lua",
		"redis.pcall('hdel', key, owner)", "redis.pcall('del', key)",
		"lua", "TestLateDeliveriesLeaveTheGrant", quick,
	},
	{
		"a release is not announced", "lua/release.lua",
		"announce(commands, channel, '0')", "0",
		"rlock", "TestWaiterIsWokenByTheMessage", quick,
	},
	{
		"a renewal may shorten the lease", "lua/renew.lua",
		"if redis.call('pttl', KEYS[1]) < tonumber(ARGV[1]) then", "if true then",
		"lua", "TestAnyOrderOfDeliveries", quick,
	},
	{
		"tokens follow the clock alone", "lua/token.lua",
		"math.max(token + 1, now[1] * 1000000 + now[2])", "now[1] * 1000000 + now[2]",
		"lua", "TestTokensGrow", quick,
	},

	// The trusted window.
	{
		"the window is counted from the reply", "rlock/send.go",
		"if o == answered {", "if o == answered {\na.sent = time.Now()",
		"rlock", "TestFakeTimeWindowCountsFromTheAnsweredAttempt", quick,
	},
	{
		"the wall clock is not asked", "watchdog/window.go",
		"return min(t.Sub(now), t.Round(0).Sub(now.Round(0)))", "return t.Sub(now)",
		"watchdog", "TestOpenAsksBothClocks", quick,
	},
	{
		"no time is left to stop in", "watchdog/window.go",
		"until.Add(-Guard(d))", "until",
		"watchdog", "TestLossAtTheExactInstant", quick,
	},
	{
		"a loss is not told while the server is silent", "watchdog/scheduler.go",
		"report(lost)\n\t\ts.dispatch(now, due)", "_ = lost\n\t\ts.dispatch(now, due)",
		"watchdog", "TestLossAtTheExactInstant", quick,
	},
	{
		"a lost lock is unlocked without an error", "rlock/grant.go",
		"case errors.Is(a.err, lua.ErrNotOwner) && !a.doubt:", "case errors.Is(a.err, lua.ErrNotOwner) && false:",
		"rlock", "TestLossJoinsTheErrorOfDo", quick,
	},
	{
		"a release whose reply was lost is a loss", "rlock/grant.go",
		"case errors.Is(a.err, lua.ErrNotOwner) && !a.doubt:", "case errors.Is(a.err, lua.ErrNotOwner):",
		"rlock", "TestLostReply", quick,
	},

	// Who is awake, and who is next.
	{
		"a confirmed subscription wakes nobody", "pubsub/conn.go",
		"ch.live, ch.moves, c.confirmed = true, 0, true\n\t\tch.wakeAll()", "ch.live, ch.moves, c.confirmed = true, 0, true",
		"rlock", "TestReleaseBeforeTheSubscription", quick,
	},
	{
		"a lost subscription wakes nobody", "pubsub/channel.go",
		"ch.wakeAll() // the others rely on nothing", "",
		"pubsub", "TestBrokenConnectionIsReplaced", quick,
	},
	{
		"a head that leaves takes its wake-up along", "rlock/seat.go",
		"place == 0 && (next.ring == nil || g.owing ||", "place == 0 && false && (next.ring == nil || g.owing ||",
		"rlock", "TestLeaverPassesTheWakeUpOn", quick,
	},
	{
		"a turn that nobody takes is waited for", "rlock/turns.go",
		"return t.quiet - now.Sub(t.last)", "return time.Hour",
		"rlock", "TestTurns", quick,
	},
	{
		"others' messages are taken for own ones", "rlock/turns.go",
		"t.echoes -= own", "",
		"rlock", "TestTurns", quick,
	},

	// Kinds of lock, as histories see them.
	{
		"readers do not look for a writer", "lua/rwread.lua",
		"if mode == 'write' or ttl == -1 then", "if ttl == -1 then",
		"internal/verify", "TestVerifyInShort/rows/rw: any reply lost", long,
	},
	{
		"the queue of a fair lock has no order", "lua/fair_acquire.lua",
		"(tonumber(last[2]) or 0) + 1", "0",
		"internal/verify", "TestVerifyInShort/rows/fair: nothing", long,
	},
	{
		"a minority is enough", "rlock/quorum.go",
		"return len(q.nodes)/2 + 1", "return len(q.nodes) / 2",
		"internal/verify", "TestVerifyInShort/rows/quorum: connections cut", long,
	},

	// Scripts for several callers.
	{
		"parts of a script get one answer", "lua/joint.go",
		"part.SetVal(replies[i])", "part.SetVal(replies[0])",
		"lua", "TestJoined", quick,
	},
	{
		"a script without an answer is sent again in parts", "lua/joint.go",
		"if ofCompany(err) {", "if err != nil {",
		"lua", "TestJoinedWithoutAnswer", quick,
	},
	{
		"an error in a part is that of all", "lua/outcome.lua",
		"local ok, reply = pcall(answer, i)", "local ok, reply = true, answer(i)",
		"lua", "TestJoinedOutOfMemory", quick,
	},
	{
		"a queue made anew is kept for ever", "lua/fair_acquire.lua",
		"kept = false -- the queue", "-- the queue",
		"lua", "TestFairJoined", quick,
	},

	// Hand-off.
	{
		"a request rests although the run is over", "rlock/holders.go",
		"gate.wakeUp()", "",
		"rlock", "TestFakeTimeFairRest", quick,
	},
	{
		"a request rests beside a plain lock of the same name", "rlock/rest.go",
		"!newest.lock.apart || ", "",
		"rlock", "TestFakeTimeFairNoRestBesideAPlainLock", quick,
	},
	{
		"who gives up while his request rests is sent all the same", "rlock/commit.go",
		"if r.rests = false; !r.left {", "if r.rests = false; true {",
		"rlock", "TestFakeTimeFairRestIsGivenUp", quick,
	},
	{
		"a fair lock is passed on beyond another client's turn", "lua/fair.lua",
		"if string.sub(owner, 1, #prefix) ~= prefix then", "if false then",
		"rlock", "TestFairRun", quick,
	},
	{
		"heirs keep their place in the queue", "lua/fair_release.lua",
		"if ARGV[7] then", "if false then",
		"rlock", "TestFairRun", quick,
	},
	{
		"those who queue do not hear of Close", "rlock/client.go",
		"c.gates[i].rouse()", "",
		"rlock", "TestFakeTimeCloseEndsTheNextInLine", quick,
	},
	{
		"a grant is passed on whose window is nearly over", "watchdog/entry.go",
		"remaining(now, e.window.Load().until) < left", "false",
		"watchdog", "TestPassIsRefused", quick,
	},
	{
		"a leaver keeps the grant it was given", "rlock/seat.go",
		"given.pass()", "_ = given",
		"rlock", "TestHandoffToALeaver", quick,
	},
	{
		"a grant is passed on while a count is under way", "rlock/handoff.go",
		"return g.correcting || len(g.turn) > 0", "return false",
		"rlock", "TestFakeTimeNoHandoffWhileCounting", quick,
	},
	{
		"own messages are expected of a connection that was in doubt", "rlock/seat.go",
		"t.echoes = 0", "_ = t",
		"rlock", "TestFakeTimeEchoesEndWithADoubt", quick,
	},

	// What is left behind.
	{
		"a lease is renewed after the unlock", "watchdog/entry.go",
		"return e.end(nil)", "return !e.ended.Load()",
		"watchdog", "TestStopIsFinal", quick,
	},
	{
		"what a caller left behind is not released", "rlock/grant.go",
		"if acquired || g.doubted || g.queued {", "if acquired {",
		"rlock", "TestFakeTimeAbandonedAcquireIsReleasedTwice", quick,
	},
	{
		"a late attempt is not released once more", "rlock/grant.go",
		"if g.doubted {\n\t\tg.lock.client.janitor.sweepAgain(g)\n\t}\n}\n\n// release", "}\n\n// release",
		"rlock", "TestFakeTimeAbandonedAcquireIsReleasedTwice", quick,
	},
}
