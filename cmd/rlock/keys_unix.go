//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// rawKeys has a terminal give each key at once, and not show it. What is no terminal is
// left alone. undo makes it as it was.
func rawKeys(in *os.File) (undo func()) {
	fd := int(in.Fd())
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return func() {}
	}
	raw := *before
	raw.Lflag &^= unix.ICANON | unix.ECHO // Ctrl-C is still a signal
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 0, 1
	_ = unix.IoctlSetTermios(fd, setTermios, &raw)
	return func() { _ = unix.IoctlSetTermios(fd, setTermios, before) }
}

// resizes tells when the terminal has another size.
func resizes() (resized <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	return c, func() { signal.Stop(c) }
}

// suspensions tells of Ctrl-Z.
func suspensions() (suspended <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	notify(c, syscall.SIGTSTP)
	return c, func() { signal.Stop(c) }
}

// suspend stops this process until its shell resumes it, if there is one that could.
func suspend() {
	if !new(terminal).managed() {
		return
	}
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-resumed
}

// size returns the columns and rows of a terminal, those of the smallest usual one if it
// does not tell.
func size(f *os.File) (columns, rows int) {
	s, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || s.Col == 0 || s.Row == 0 {
		return 80, 24
	}
	return int(s.Col), int(s.Row)
}
