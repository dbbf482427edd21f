package mutation

// ofWaiting are mistakes about the queue in memory, its waiters, and the messages and subscriptions
// that wake them.
var ofWaiting = []mutation{
	{
		"a waiter relies on messages that the server refuses to send", "rlock", "asker.refused",
		"q.signal.Live() && q.news.tells()", "q.signal.Live()",
		"rlock", "TestWaitersWhomNobodyMayTell", 2 * quick,
	},
	{
		"the ticket is lost on inheritance", "rlock", "asker.serves",
		"w.lock.terms == a.lock.terms", "false",
		"rlock", "TestPlaceIsInherited", quick,
	},
	{
		"a leaver does not withdraw", "rlock", "asker.end",
		"a.withdraw()", "",
		"rlock", "TestPlaceIsInherited", quick,
	},
	{
		"a line that leaves as a whole is asked for", "rlock", "asker.askForLine",
		"a.lock.client.sleep(ctx, minPause)", "",
		"rlock", "TestFakeTimeQueueLeavesAtOnce", quick,
	},
	{
		"a wake-up is ignored", "rlock", "queue.heard",
		"a.told(m)", "",
		"rlock", "TestHeard", quick,
	},
	{
		"a message for nobody is ignored", "rlock", "queue.heard",
		"case m.Granted && !slices", "case false && !slices",
		"rlock", "TestHeard", quick,
	},
	{
		"the loss of all places is ignored", "rlock", "queue.heard",
		"case m.Owner == lua.Everybody:", "case false:",
		"rlock", "TestHeard", quick,
	},
	{
		"nobody asks when messages may have been missed", "rlock", "queue.askAll",
		"if !a.asking && a.owner != nil {", "if false {",
		"rlock", "TestFakeTimeQueueIsLost", quick,
	},
	{
		"who waits for its own client forgets that messages may have been missed", "rlock", "queue.askAll",
		"&& a.owner != nil", "&& a.owner != nil && q.holder() == nil",
		"rlock", "TestFakeTimeResubscribedWhileReleasing", quick,
	},
	{
		"an answer from before a loss of messages is trusted", "rlock", "queue.changed",
		"a.mustAsk()", "_ = a",
		"rlock", "TestFakeTimeResubscribedWhileAsking", quick,
	},
	{
		"an answer from before a foreign release is trusted", "rlock", "queue.unlocked",
		"case a.place.First, a.asking:", "case a.place.First:",
		"rlock", "TestFakeTimeForeignReleaseWhileAsking", quick,
	},
	{
		"who waits for a fair lock leaves a foreign release to the first, who has left", "rlock", "queue.unlocked",
		"a.leads()", "a.private && a.place.First",
		"rlock", "TestFakeTimeForeignReleaseAfterTheFirstHasLeft", quick,
	},
	{
		"a waiter that polls relies on what its client hears", "rlock", "asker.refused",
		"case l.terms.polls:", "case l.terms.polls && q.signal == nil:",
		"rlock", "TestFakeTimePollingBesideListeners", quick,
	},
	{
		"a waiter says for hours nothing", "rlock", "keepAlive",
		"keepAlive     = 5 * time.Second", "keepAlive     = 5 * time.Hour",
		"rlock", "TestFakeTimeFairKeepAlive", quick,
	},
	{
		"a waiter says nothing for as long as it can, as histories see it", "rlock", "minKeepAlive",
		"minKeepAlive  = 900 * time.Millisecond", "minKeepAlive  = time.Hour",
		"internal/verify", "TestVerifyInShort/rows/DEL of queues, nothing is cut", long,
	},
	{
		"a crowd asks as often as a few", "rlock", "asker.unprompted",
		"time.Duration(a.place.Queue)*time.Second/asksPerSecond,", "",
		"rlock", "TestFakeTimeManyAskRarely", quick,
	},
	{
		"no connection counts as deaf or silent", "pubsub", "vigil.step",
		"err := v.verdict(s); err != nil && !late", "err := v.verdict(s); false && err != nil",
		"pubsub", "TestDeafConnectionIsReplaced", quick,
	},
	{
		"a deaf connection is left to the silence of the server", "pubsub", "vigil.verdict",
		"return errDeaf", "return nil",
		"pubsub", "TestDeafConnectionIsReplaced", quick,
	},
	{
		"a waiter without a ticket sleeps as if it had one", "rlock", "asker.unprompted",
		"return min(expiry, deafPause)", "return expiry",
		"rlock", "TestWaiterWithoutATicket", quick,
	},
	{
		"the window of a grant by message begins too late", "rlock", "moment.before",
		"max(passed-passed/100-2*time.Millisecond, 0)", "passed",
		"rlock", "TestGrantByMessage", quick,
	},
	{
		"a grant by message is taken however old", "rlock", "asker.trusts",
		"now.Sub(sent) > m.Claim/2,", "",
		"rlock", "TestGrantByMessage", quick,
	},
	{
		"a grant from before the ticket is taken", "rlock", "asker.trusts",
		"m.Time < a.taken.there,", "",
		"rlock", "TestGrantByMessage", quick,
	},
	{
		"a clock is reckoned with for ever", "rlock", "moment.before",
		"passed > longestReckoning", "false",
		"rlock", "TestGrantByMessage", quick,
	},
	{
		"those behind the first do not hear a foreign owner's release", "rlock", "queue.unlocked",
		"case a.leads() && a.askAt.After(later):", "case false:",
		"rlock", "TestUnlockedByAForeignOwner", quick,
	},
	{
		"those who queue do not hear of Close", "rlock", "queues.close",
		"a.first.serve(nil, a.first.lock.isClosed())", "break",
		"rlock", "TestFakeTimeCloseEndsTheNextInLine", quick,
	},
	{
		"a leaver keeps the grant it was given", "rlock", "waiter.leave",
		"g.forgo()", "_ = g",
		"rlock", "TestHandoffToALeaver", quick,
	},
	{
		"the last reader of a lost grant leaves it to its lease", "rlock", "grant.forgo",
		"case last && before == lost && used:", "case false && used:",
		"rlock", "TestFakeTimeReadersOfALostGrant", quick,
	},
	{
		"a reader that gives up leaves the grant that it was given to nobody", "rlock", "grant.forgo",
		"g.followers--", "",
		"rlock", "TestFakeTimeGivenReaderLeaves", quick,
	},
	{
		"nobody asks after a lost answer to a release", "rlock", "grant.release",
		"if a.Doubt {", "if false {",
		"rlock", "TestFakeTimeReaderWhoseGrantWasInALostAnswer", quick,
	},
	{
		"a reader waits for its own client's writer without a place", "rlock", "asker.turn",
		"!a.lock.ownPlace", "!a.lock.terms.fair",
		"rlock", "TestFakeTimeReaderBehindItsOwnClientsWriter", quick,
	},
	{
		"readers share a grant in doubt", "rlock", "asker.share",
		"if g.from.doubt {", "if false {",
		"rlock", "TestFakeTimeReadersShareNoDoubt", quick,
	},
	{
		"a reader joins a grant although another waits", "rlock", "queue.shareable",
		"q.waiting > 0", "false",
		"rlock", "TestFakeTimeNobodyJoinsPastAWaitingWriter", quick,
	},
	{
		"a fair waiter without a place does not ask", "rlock", "asker.unprompted",
		"case !a.place.Held():", "case !a.place.Held() && !a.lock.terms.fair:",
		"rlock", "TestFairWaiterWithoutAPlaceAsks", quick,
	},
	{
		"a message from the future is trusted", "rlock", "asker.trusts",
		"sent.After(now),", "",
		"rlock", "TestGrantByMessage", quick,
	},
	{
		"a short lease waits for an answer as long as the lease before it", "rlock", "asker.giveUp",
		">= w.lock.policy.Total", ">= a.lock.policy.Total",
		"rlock", "TestFakeTimeSilenceIsAsLongAsTheOwnLease", quick,
	},
	{
		"a crowd of clients probes as often as one", "rlock", "asker.stand",
		"max(time.Duration(a.place.Queue)*time.Second/probesPerSecond, minSilence)", "minSilence",
		"rlock", "TestFakeTimeProbesByTheLengthOfTheQueue", quick,
	},
	{
		"a client far back probes as often as the first", "rlock", "asker.stand",
		"a.place.Before >= near", "a.place.Before >= near<<20",
		"rlock", "TestFakeTimeProbesByTheLengthOfTheQueue", quick,
	},
	{
		"no silence is longer than 2 s", "pubsub", "vigil.slowest",
		"max(s.silence, reprobe*v.interval)", "reprobe*v.interval",
		"rlock", "TestFakeTimeProbesByTheLengthOfTheQueue", quick,
	},
	{
		"a second of waiting counts in each snapshot", "rlock", "hot.show",
		"h.taken = v.now", "",
		"rlock", "TestFakeTimeHotNameOfALongWait", quick,
	},
	{
		"a name that is waited for once displaces a hot one", "rlock", "hot.row",
		"inherited: r.spans[i].rank()", "",
		"rlock", "TestFakeTimeHotNameAmongManyNames", quick,
	},
	{
		"a short wait is no reason for a record", "rlock", "hot.waited",
		"row.isHot()", "false",
		"rlock", "TestFakeTimeTenHotNames", quick,
	},
	{
		"a hundred thousand clients write a record each 10 s", "internal/record", "Writer.every",
		"time.Duration(w.listed)*time.Second/perSecond", "0",
		"internal/record", "TestManyClientsWriteLessOften", quick,
	},
	{
		"a record of 30 s ends the list of longer ones", "lua", "enlist.lua",
		"redis.call('pttl', KEYS[1]) < lasts", "true",
		"lua", "TestEnlistTellsTheSizeOfTheList", quick,
	},
	{
		"the silence that a channel allows is not looked at", "pubsub", "vigil.pace",
		"(s.now-s.stirred)/calm, s.silence)", "(s.now-s.stirred)/calm, v.interval)",
		"pubsub", "TestSilenceOfSeveralChannels", quick,
	},
	{
		"methods of an error run under the mutex of the queues", "rlock", "asker.giveUp",
		"unanswered{error: n.trouble}", "w.lock.failed(n.trouble)",
		"rlock", "TestFakeTimeErrorsAreReadWithoutTheMutex", quick,
	},
	{
		"an old failure counts as silence", "rlock", "news.silent",
		"&& now.Sub(n.failed) < longestFailure", "",
		"rlock", "TestFakeTimeAnOldFailureIsNoSilence", quick,
	},
	{
		"each of many channels has its connection looked at", "pubsub", "conn.allow",
		"d < c.silence-c.silence/4", "d < time.Hour",
		"pubsub", "TestSilenceOfACrowdAsksNobody", quick,
	},
	{
		"a fixed lease is renewed as the readers who have left wanted it", "rlock", "Hold.covered",
		"other.first() != first && other.renewsFor(h.lock)", "other.first() != first",
		"rlock", "TestFakeTimeTermsOfReaders", quick,
	},
	{
		"a lock without fencing has the token of the one before", "rlock", "asker.accept",
		"if !a.lock.terms.fenced {", "if false {",
		"rlock", "TestGrantByMessage", quick,
	},
	{
		"each new call for a fair lock puts off when its client asks", "rlock", "asker.refused",
		"if a.private && q.leader() == a {", "if a.private {",
		"rlock", "TestFakeTimeFairNextAsksForAll", quick,
	},
	{
		"who is first in the end does not ask for the others of its client", "rlock", "queue.follow",
		"next.askAt = q.news.askAt", "_ = next.askAt",
		"rlock", "TestFakeTimeFairNextAsksForAll", quick,
	},
	{
		"each waiter of a forgotten queue has all others ask again", "rlock", "asker.stand",
		"!taken.Before(q.news.forgotten)", "taken != q.news.forgotten.Add(1)",
		"rlock", "TestFakeTimeFairQueueIsLostByMany", quick,
	},
	{
		"a replica that refuses a probe is no news", "pubsub", "isReplica",
		"return redis.IsReadOnlyError(err) || redis.IsMasterDownError(err)", "return redis.IsClusterDownError(err)",
		"pubsub", "TestRedisFormerMasterLivesOnAsReplica", quick,
	},
	{
		"a refused probe that nobody receives is no news", "pubsub", "redisSource.Probe",
		"(refused || a.receivers == 0", "(refused && false || a.receivers == 0",
		"pubsub", "TestRedisFormerMasterLivesOnAsReplica", quick,
	},
	{
		"a user without the channel of probes counts nothing", "pubsub", "redisSource.askByScript",
		"channel, publish = *sample, 0", "return audience{receivers: -1}, nil",
		"pubsub", "TestRedisCountsAChannelWithoutProbes", quick,
	},
	{
		"each client that waits has a connection for probes alone", "pubsub", "redisSource.evalOnce",
		"s.rdb.PoolStats().IdleConns > 0", "s.rdb.PoolStats().IdleConns > 1000",
		"pubsub", "TestRedisProbeUsesAnIdleConnection", quick,
	},
	{
		"a server before Redis 7 is not probed", "pubsub", "isUnable",
		`(strings.HasPrefix(reply.Error(), "ERR ") ||`, `(redis.HasErrorPrefix(reply, "ERR ") ||`,
		"pubsub", "TestRedisProbeWithoutScript", quick,
	},
	{
		"a waiter ignores that its client listens elsewhere", "rlock", "asker.stand",
		"if a.place.Absent {", "if false {",
		"rlock", "TestFormerMasterLivesOn", quick,
	},
	{
		"a young connection is given up for an old answer", "pubsub", "Hub.Absent",
		"if c := ch.node.conn; c.began.Before(sent) {", "if c := ch.node.conn; c != nil {",
		"pubsub", "TestAbsent", quick,
	},
	{
		"a message is awaited with a deadline", "pubsub", "redisSource.receive",
		"s.ps.ReceiveTimeout(s.ended, -1)", "s.ps.ReceiveTimeout(s.ended, 0)",
		"pubsub", "TestRedisConnectionWithoutDeadlines", quick,
	},
	{
		"servers that are no cluster share one subscription", "internal/kind", "Channels.ordinary",
		"case c.cluster.Options().ClusterSlots != nil:", "case false:",
		"rlock", "TestSlotsOfPlainServers", quick,
	},
	{
		"a waiter is impatient with a refusal to serve it", "rlock", "asker.asks",
		"p.Patient = a.patient", "_ = a.patient",
		"rlock", "TestFakeTimeShortRefusals", quick,
	},
	{
		"a first call is patient with a refusal to serve it", "rlock", "asker.askByCall",
		"if w.answered {", "if a.queue.news.served {",
		"rlock", "TestFakeTimeFirstGivesUpInTrouble", quick,
	},
	{
		"a refusal to serve waiters is repeated for ever", "rlock", "asker.patient",
		"a.queue.news.deniedFor() < patience", "true",
		"rlock", "TestFakeTimeFirstGivesUpInTrouble", quick,
	},
	{
		"an ordinary client follows redirections in vain", "internal/kind", "Server.Classify",
		`request.HasCode(reply, "MOVED", "ASK")`, "request.HasCode(reply)",
		"internal/kind", "TestClassifyRedirections", quick,
	},
	{
		"a deadlock is reported after one look", "rlock", "search.conclude",
		"s.cycles = append(s.cycles, f)\n		case", "f.told = true\n			s.cycles = append(s.cycles, f)\n			s.tell(w, f.err())\n		case",
		"rlock", "TestFakeTimeNoDeadlock", quick,
	},
	{
		"a deadlock is believed by records that are not written anew", "rlock", "search.conclude",
		"before[i].told || !f.renewed(before[i])", "before[i].told",
		"rlock", "TestFakeTimeNoDeadlock", quick,
	},
	{
		"a deadlock has other waits at each look", "rlock", "cycle.same",
		"&& a.began.Equal(b.began)", "",
		"rlock", "TestFakeTimeNoDeadlock", quick,
	},
	{
		"a context owns a lock that it has unlocked", "rlock", "waiter.owners",
		"&& h.owns()", "",
		"rlock", "TestFakeTimeNoDeadlock", quick,
	},
	{
		"each client ends a call of a deadlock", "rlock", "search.conclude",
		"f.chosen() != owner || !w.waits()", "!w.waits()",
		"rlock", "TestFakeTimeDeadlockError", quick,
	},
	{
		"a call is searched for before it has waited for a lease", "rlock", "waiter.suspectAt",
		"max(w.lock.terms.lease, longWait)", "longWait",
		"rlock", "TestFakeTimeDeadlockSearchIsCheap", quick,
	},
}
