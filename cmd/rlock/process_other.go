//go:build unix && !linux

package main

import "syscall"

// newProcAttr: without a parent-death signal, a command outlives the SIGKILL of
// this process.
func newProcAttr() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }

// adopt: orphans go to process 1, which reaps them.
func adopt() {}
