package mutation

// ofNesting are mistakes about nested holds and the hold count on the server.
var ofNesting = []mutation{
	{
		"a failed nested hold leaves a lost grant to its lease", "rlock/nest.go",
		"errors.Is(err, ErrLeaseLost) && left == 0:", "false:",
		"rlock", "TestFakeTimeLastHoldOfALostGrantFails", quick,
	},
	{
		"a nested call relies on a request that was made before it", "rlock/nest.go",
		"if g.told >= changes {", "if g.told > 0 {",
		"rlock", "TestNestedDepth", quick,
	},
	{
		"nested calls ask one after the other", "rlock/nest.go",
		"if g.told >= changes {", "if false {",
		"rlock", "TestFakeTimeNestedCallsShareARequest", quick,
	},
	{
		"a stale hold count that arrives late stays", "rlock/nest.go",
		"	g.correcting = true\n	g.changes++\n", "	g.correcting = true\n",
		"rlock", "TestFakeTimeCancelledNestedLockIsCorrected", quick,
	},
	{
		"a nested TryLock waits for others without a bound", "rlock/nest.go",
		"if p.Once {", "if false {",
		"rlock", "TestFakeTimeNestedTryLockIsBounded", quick,
	},
	{
		"a reader joins a lease that nobody renews", "rlock/nest.go",
		"if h.parent == nil && len(g.holds) > 0 &&", "if false &&",
		"rlock", "TestFakeTimeTermsOfReaders", quick,
	},
	{
		"a lease becomes shorter than its proof states", "rlock/nest.go",
		"if g.proven.Load() {", "if false {",
		"rlock", "TestFakeTimeJoinedUnderAShorterHold", quick,
	},
	{
		"a nested hold outlives the panic of a hook", "rlock/nest.go",
		"if !answered { // a panic", "if !answered && false { // a panic",
		"rlock", "TestHookThatEndsItsCaller/panic_false_plain_nested_Lock", quick,
	},
}
