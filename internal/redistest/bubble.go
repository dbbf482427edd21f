package redistest

import "runtime"

// InBubbles readies a package for tests with bubbles (testing/synctest): TestMain calls it.
//
// The race detector of Go 1.26 crashes if two threads run timers of one bubble at once,
// which share a context of the detector there: golang.org/issue/78156. So with it, such
// tests run on one processor. It finds the same races, as it looks at what orders two
// accesses, and not at whether they happen at once.
func InBubbles() {
	if raceEnabled {
		runtime.GOMAXPROCS(1)
	}
}
