//go:build unix

package bench

import (
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// mapShared maps a file into memory that all processes of a run share.
func mapShared(f *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func unmapShared(raw []byte) error { return unix.Munmap(raw) }

// clock is a time that all processes of a machine agree on, in nanoseconds.
func clock() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
	return ts.Nano()
}

// nap sleeps for d, more exactly than [time.Sleep] in an idle program. A signal
// may end it early.
func nap(d time.Duration) {
	tv := unix.NsecToTimeval(int64(d))
	_, _ = unix.Select(0, nil, nil, nil, &tv)
}

func killSelf() { _ = unix.Kill(unix.Getpid(), unix.SIGKILL) }

// cpuTime is the user and system time of this process.
func cpuTime() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // cannot fail
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// openFiles is how many a process may open.
func openFiles() int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt64
	}
	return int64(limit.Cur)
}
