package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// newProcAttr makes Linux kill the command if this process is killed.
func newProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// adopt makes this process the parent of those that lose theirs below it, so that it can reap
// them: a dead process that nobody reaps is still one of its group, and process 1 of a container
// may be a program that reaps nobody.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
