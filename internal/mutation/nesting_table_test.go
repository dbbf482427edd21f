package mutation

// ofNesting are mistakes about nested holds and the hold count on the server.
var ofNesting = []mutation{
	{
		"a failed nested hold leaves a lost grant to its lease", "rlock", "grant.retract",
		"errors.Is(err, ErrLeaseLost) && left == 0:", "false:",
		"rlock", "TestFakeTimeLastHoldOfALostGrantFails", quick,
	},
	{
		"a nested call relies on a request that was made before it", "rlock", "grant.tell",
		"g.told.next = t", "t = g.told",
		"rlock", "TestFakeTimeNestedCallWhileCounting", quick,
	},
	{
		"nested calls ask one after the other", "rlock", "grant.tell",
		"t = g.told.next", "last := g.told.next; for last.next != nil { last = last.next }; last.next = t",
		"rlock", "TestFakeTimeNestedCallsShareARequest", quick,
	},
	{
		"a stale hold count that arrives late stays", "rlock", "grant.tellTotal",
		"		g.tell(context.Background(), false)\n		g.tellLater()\n", "",
		"rlock", "TestFakeTimeLateCountIsCorrected", quick,
	},
	{
		"a late copy of a hold count stays", "rlock", "grant.tellLater",
		"g.tell(context.Background(), true)", "",
		"rlock", "TestFakeTimeCancelledNestedLockIsCorrected", quick,
	},
	{
		"a nested TryLock waits for others without a bound", "rlock", "grant.recount",
		"if p.Once {", "if false {",
		"rlock", "TestFakeTimeNestedTryLockIsBounded", quick,
	},
	{
		"a reader joins a lease that nobody renews", "rlock", "grant.expects",
		"|| !renewed", "|| false && !renewed",
		"rlock", "TestFakeTimeTermsOfReaders", quick,
	},
	{
		"a lease becomes shorter than its proof states", "rlock", "grant.total",
		"if g.left(proofGiven) {", "if false {",
		"rlock", "TestFakeTimeJoinedUnderAShorterHold", quick,
	},
	{
		"a nested hold outlives the panic of a hook", "rlock", "waiter.nest",
		"if !answered {", "if !answered && false {",
		"rlock", "TestHookThatEndsItsCaller/panic_false_plain_nested_Lock", quick,
	},
}
