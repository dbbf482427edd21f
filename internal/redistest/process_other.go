//go:build !linux

package redistest

import "syscall"

// Without a parent-death signal a killed test binary leaves its children behind.
func dieWithParent() *syscall.SysProcAttr { return nil }

func awaitStopped(int) error { return nil }
