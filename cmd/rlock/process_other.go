//go:build unix && !linux

package main

import "syscall"

// newProcAttr: without a parent-death signal, a command outlives the SIGKILL of
// this process.
func newProcAttr() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }
