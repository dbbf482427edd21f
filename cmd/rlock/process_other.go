//go:build unix && !linux

package main

import "syscall"

// newProcAttr: without a parent-death signal, a command outlives the SIGKILL of
// this process.
func newProcAttr() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }

// adopt: orphans go to process 1, which reaps them.
func adopt() bool { return false }

// descendants: nothing is known of what has left the command's group.
func descendants(map[process]int) map[process]int { return nil }

func (process) signal(syscall.Signal) {}
