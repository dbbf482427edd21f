package mutation

// ofRetention are mistakes in keeping locks that nobody holds.
var ofRetention = []mutation{
	{
		"a lock is kept beside those who wait", "lua/retain.lua",
		"if waits or redis", "if redis",
		"lua", "TestRetained", quick,
	},
	{
		"a lock that is kept is not recalled", "lua/recall.lua",
		"if held ~= '0' then", "if true then",
		"lua", "TestRetained", quick,
	},
	{
		"each holder is asked to give the lock back", "lua/recall.lua",
		"if held ~= '0' then", "if false then",
		"lua", "TestRetained", quick,
	},
	{
		"who wants a kept lock that was just unlocked is not seen", "rlock/retain.go",
		"slices.ContainsFunc(q.Grants, unlike)", "h := q.Holder(); h != nil && slices.ContainsFunc([]*grant{h}, unlike)",
		"rlock", "TestRetainedLockIsNotKeptFromOtherOptions", quick,
	},
	{
		"a recall is ignored", "rlock/retain.go",
		"return k.owner == m.Owner })", "return false })",
		"rlock", "TestRetainedLockIsRecalled", quick,
	},
	{
		"a lock is kept although a recall may have been missed", "rlock/retain.go",
		"return k.state != keptListening })", "return false })",
		"rlock", "TestFakeTimeRecallMayBeMissed", quick,
	},
	{
		"a lock is kept although nothing can be heard", "rlock/retain.go",
		"|| !k.signal.Live() {", "{",
		"rlock", "TestFakeTimeRetainedDeaf", quick,
	},
	{
		"a lock in use is kept when its time is over", "rlock/retain.go",
		"k.parked, k.state = nil, keptOver", "k.parked = nil",
		"rlock", "TestFakeTimeRetentionEndsInUse", quick,
	},
	{
		"a lock stays parked when its time is over", "rlock/retain.go",
		"return other == k })", "return false })",
		"rlock", "TestFakeTimeRetentionEnds", quick,
	},
	{
		"a parked grant outlives the next one", "rlock/grant.go",
		"if parked != nil {", "if parked != nil && false {",
		"rlock", "TestFakeTimeParkedGrantEndsWithTheNext", quick,
	},
	{
		"a parked grant that lapses stays on the server", "rlock/loss.go",
		"case err != ErrClosed:", "case false:",
		"rlock", "TestFakeTimeLostParkedGrantIsReleased", quick,
	},
	{
		"a lock is kept without an answer", "rlock/retain.go",
		"if a.Err != nil || !a.Value || a.Doubt || a.Open {", "if false {",
		"rlock", "TestFakeTimeRetainUnanswered", quick,
	},
	{
		"a hold count hides that the lock is kept", "rlock/nest.go",
		"g.lock.queues.askAnew(g)", "",
		"rlock", "TestRetainedLockNests", quick,
	},
	{
		"Close waits for a lock that nobody holds", "rlock/client.go",
		"for _, g := range parked {", "for _, g := range parked[:0] {",
		"rlock", "TestFakeTimeCloseOfRetained", quick,
	},
	{
		"a lock is parked when Close has looked for those", "rlock/handoff.go",
		"|| l.client.closed.Load() { // nobody", "|| l.client.closed.Load() && q.kept == nil { // nobody",
		"rlock", "TestFakeTimeCloseOfRetained", quick,
	},
	{
		"the loss of a lock that nobody holds is told", "rlock/loss.go",
		"case !idle:", "case !idle || true:",
		"rlock", "TestFakeTimeRetainedLockIsLost", quick,
	},
	{
		"a client that removes a lock goes on to keep it", "rlock/inspect.go",
		"l.removed(before...)", "_ = before",
		"rlock", "TestFakeTimeRemovedByTheOwnClient", quick,
	},
	{
		"the loss of a kept lock is not told although it was used", "rlock/retain.go",
		"if used {", "if used && false {",
		"rlock", "TestFakeTimeRetainedLockIsLost", quick,
	},
}
