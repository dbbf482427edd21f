package mutation

// ofRetention are mistakes in keeping locks that nobody holds.
var ofRetention = []mutation{
	{
		"a lock is kept beside those who wait", "lua", "retain.lua",
		"if waits or redis", "if redis",
		"lua", "TestRetained", quick,
	},
	{
		"a lock that is kept is not recalled", "lua", "recall.lua",
		"if held ~= '0' then", "if true then",
		"lua", "TestRetained", quick,
	},
	{
		"each holder is asked to give the lock back", "lua", "recall.lua",
		"if held ~= '0' then", "if false then",
		"lua", "TestRetained", quick,
	},
	{
		"who wants a kept lock that was just unlocked is not seen", "rlock", "queue.takeParked",
		"slices.ContainsFunc(q.grants, unlike)", "h := q.holder(); h != nil && slices.ContainsFunc([]*grant{h}, unlike)",
		"rlock", "TestRetainedLockIsNotKeptFromOtherOptions", quick,
	},
	{
		"a recall is ignored", "rlock", "Lock.hearRecall",
		"return k.owner == m.Owner })", "return false })",
		"rlock", "TestRetainedLockIsRecalled", quick,
	},
	{
		"a lock is kept although a recall may have been missed", "rlock", "Lock.missRecall",
		"return k.state != keptListening })", "return false })",
		"rlock", "TestFakeTimeRecallMayBeMissed", quick,
	},
	{
		"a lock is kept although nothing can be heard", "rlock", "queues.mayKeep",
		"|| !k.signal.Live() {", "{",
		"rlock", "TestFakeTimeRetainedDeaf", quick,
	},
	{
		"a lock in use is kept when its time is over", "rlock", "queue.giveBack",
		"k.parked, k.state = nil, keptOver", "k.parked, k.state = nil, k.state",
		"rlock", "TestFakeTimeRetentionEndsInUse", quick,
	},
	{
		"a lock stays parked when its time is over", "rlock", "Lock.expire",
		"return other == k })", "return false })",
		"rlock", "TestFakeTimeRetentionEnds", quick,
	},
	{
		"a parked grant outlives the next one", "rlock", "queue.keep",
		"case k != nil && k.parked != nil:", "case false:",
		"rlock", "TestFakeTimeParkedGrantEndsWithTheNext", quick,
	},
	{
		"a parked grant that lapses stays on the server", "rlock", "grant.lose",
		"case err != errGone && err != errRemoved && err != ErrClosed:", "case false:",
		"rlock", "TestFakeTimeLostParkedGrantIsReleased", quick,
	},
	{
		"a lock is kept without an answer", "rlock", "grant.keepOnServer",
		"if a.Err != nil || !a.Value || a.Doubt || a.Open {", "if false {",
		"rlock", "TestFakeTimeRetainUnanswered", quick,
	},
	{
		"a hold count hides that the lock is kept", "rlock", "grant.tellTotal",
		"g.askAnew()", "",
		"rlock", "TestRetainedLockNests", quick,
	},
	{
		"Close waits for a lock that nobody holds", "rlock", "queues.close",
		"q.giveBack()", "",
		"rlock", "TestFakeTimeCloseOfRetained", quick,
	},
	{
		"a lock is parked when Close has looked for those", "rlock", "grant.handOff",
		"|| l.client.closed.Load() {", "|| l.client.closed.Load() && q.kept == nil {",
		"rlock", "TestFakeTimeCloseOfRetained", quick,
	},
	{
		"the loss of a lock that nobody holds is told", "rlock", "grant.lose",
		"case !idle:", "case !idle || true:",
		"rlock", "TestFakeTimeRetainedLockIsLost", quick,
	},
	{
		"a client that removes a lock goes on to keep it", "rlock", "Lock.ForceUnlock",
		"l.removed(before...)", "_ = before",
		"rlock", "TestFakeTimeRemovedByTheOwnClient", quick,
	},
	{
		"the loss of a kept lock is not told although it was used", "rlock", "kept.reportUnseen",
		"k.since.After(confirmed) {", "k.since.After(confirmed) && false {",
		"rlock", "TestFakeTimeRetainedLockIsLost", quick,
	},
}
