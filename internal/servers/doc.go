// Package servers has the tests of other servers than the one that all tests run on:
// which ones, where their binaries come from, and which tests each of them has to
// pass. `make servers` runs them all.
package servers

// Tested are the series of each server that the suite passes on. The key is the name
// by which the server calls itself in INFO, in small letters; "" is Redis.
var Tested = map[string][]string{
	"":       {"6.2", "7.0", "7.2", "7.4", "8.0", "8.2", "8.10"},
	"valkey": {"7.2", "8.0", "8.1", "9.0", "9.1"},
	"redict": {"7.3"},
}
