//go:build unix

package verify

import "golang.org/x/sys/unix"

// now is the time since boot in nanoseconds: the same clock in every process.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}
