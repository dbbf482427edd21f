package redistest

import "testing"

// Long leaves a test to make test-all, which runs without -short, and says why:
// it takes a time that nothing can shorten, or many servers. What it asserts
// has a quicker test beside it, or is about the time or the many servers.
func Long(tb testing.TB, why string) {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("left to make test-all: %s", why)
	}
}
