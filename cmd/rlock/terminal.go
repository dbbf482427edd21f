//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal; nil if there is none. Of the process
// groups of a session only one, the foreground, may read it and gets its
// signals, so a command in a group of its own must be given that place, and the
// stop of the command (Ctrl-Z) be handed on to the shell.
type terminal struct{ fd int }

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd}
}

// ours reports whether our own group is in the foreground.
func (t *terminal) ours() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// managed reports whether our group is a job of a shell, which resumes it. The
// group of the session's leader is nobody's job.
func (t *terminal) managed() bool {
	session, err := unix.Getsid(0)
	return err == nil && session != unix.Getpgrp()
}

func (t *terminal) set(group int) { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) }

// attributes are those of a new command: in a group of its own, and in the
// foreground if that is our place. Not out of a pipeline: what we share it with,
// such as a pager, needs the terminal as well. See [command.suspend] for one that asks for it.
func (t *terminal) attributes() *syscall.SysProcAttr {
	attr := newProcAttr()
	attr.Setpgid = true
	if t != nil && t.ours() && !piped(os.Stdin) && !piped(os.Stdout) && !piped(os.Stderr) {
		attr.Foreground, attr.Ctty = true, t.fd
	}
	return attr
}

func piped(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// give puts a group into the foreground, if the shell has given us the place.
func (t *terminal) give(group int) {
	if t != nil && t.ours() {
		t.set(group)
	}
}

// takeFrom puts our own group into the foreground again, in the place of a group, or of one
// that has ended: a shell below has given it the place.
func (t *terminal) takeFrom(group int) {
	if t == nil {
		return
	}
	if now, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err == nil && (now == group || syscall.Kill(-now, 0) == syscall.ESRCH) {
		t.set(unix.Getpgrp())
	}
}

// width returns the columns of a terminal, 0 for what is none.
func width(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || os.Getenv("TERM") == "dumb" {
		return 0
	}
	return int(size.Col)
}
