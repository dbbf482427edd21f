package redistest

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Bubble is synctest.Test for a test that is not parallel, and makes sure of that. What
// happens in fake time waits for nothing but the processor, of which it would leave too
// little to tests in real time beside it: those are parallel, as they mostly wait.
//
// It also keeps a defect of the race detector away: that of Go 1.26 crashes if two threads
// run timers of one bubble at once, which share a context of the detector there
// (golang.org/issue/78156). So while there is a bubble, a test binary with the detector
// runs on one processor. It finds the same races, as it looks at what orders two accesses,
// and not at whether they happen at once.
func Bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	t.Setenv("RLOCK_BUBBLE", "1") // panics if the test is parallel
	if RaceEnabled {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, f)
}
