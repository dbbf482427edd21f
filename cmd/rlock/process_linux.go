package main

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// newProcAttr makes Linux kill the command if this process is killed.
func newProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// adopt makes this process the parent of those that lose theirs below it, whatever group and
// session they are in. So it has no child exactly when nothing runs below it any more.
func adopt() bool { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil }

// descendants returns the processes below this one, each with its group, but no stranger, nothing
// below a stranger, and none that is dead and not yet reaped. There are none if /proc is not that of this process. A process that
// is forked meanwhile may be missing.
func descendants(strangers map[process]int) map[process]int {
	self := os.Getpid()
	if name, err := os.Readlink("/proc/self"); err != nil || name != strconv.Itoa(self) { // that of another process namespace has other numbers
		return nil
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1) // what was read before an error
	all := make(map[int]status)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all[pid] = look(pid)
		}
	}
	found := make(map[process]int)
	for pid, s := range all {
		at := s.parent
		for steps := 0; at != self && at != 0 && steps < len(all); steps++ { // a number that was reused may have made a circle
			if _, strange := strangers[process{at, all[at].start}]; strange {
				break
			}
			at = all[at].parent
		}
		p := process{pid, s.start}
		if _, strange := strangers[p]; at == self && !strange && !s.dead {
			found[p] = s.group
		}
	}
	return found
}

// status is what /proc says of a process; nothing if it has ended.
type status struct {
	parent, group int
	start         string
	dead          bool // and not yet reaped
}

func look(pid int) status {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat") // it may have ended
	// The name is in parentheses, and may have some of its own.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return status{}
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	group, _ := strconv.Atoi(string(fields[2]))
	return status{parent, group, string(fields[19]), fields[0][0] == 'Z'}
}

// signal is for this process, and none that has got its number: the handle is of whoever had
// the number at first.
func (p process) signal(sig syscall.Signal) {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return
	}
	defer func() { _ = handle.Release() }()
	if look(p.pid).start == p.start {
		_ = handle.Signal(sig) // it may have ended, or be another user's
	}
}
