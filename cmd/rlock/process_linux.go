package main

import "syscall"

// newProcAttr makes Linux kill the command if this process is killed.
func newProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
