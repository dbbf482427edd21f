//go:build !race

package interop

// raced tells that the race detector slows everything in Go down.
const raced = false
