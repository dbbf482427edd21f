//go:build race

package redistest

// RaceEnabled tells that the race detector is on, which slows everything in Go down.
const RaceEnabled = true
