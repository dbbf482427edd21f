//go:build unix

package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// ending are the signals that end a wait, and that a running command gets;
// jobControl those that it gets as well.
var (
	ending     = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2}
	jobControl = []os.Signal{syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH}
)

const (
	restPoll = 10 * time.Millisecond // how often to look whether the rest of a group is gone
	restWait = time.Second           // how long to look after KILL: what is left can only be dead
	maxNap   = time.Second           // between looks at the clock: timers stand still while the machine is suspended
)

// command is a running child process, the leader of a process group of its own.
// One goroutine waits for it and signals it, so that no signal can go to a
// process id that was reaped and given to another process.
type command struct {
	leash  leash
	lost   error // why the command was told to end
	pid    int   // of the process and of its group
	tty    *terminal
	killAt time.Time // set once the group was told to end
	killed bool
	ended  bool // the process was reaped; the rest of its group may still run
	status syscall.WaitStatus
	said   <-chan struct{} // closed when our message is written; nil if there was none
}

// start runs a command. Linux kills it if the thread that started it ends, so
// the caller's goroutine stays on its thread until supervise has returned.
func start(path string, argv []string, l leash) (*command, error) {
	adopt()
	runtime.LockOSThread()
	tty := openTerminal()
	process, err := os.StartProcess(path, argv, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   tty.attributes(),
	})
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	// Taking the terminal back may not end the supervision. Not earlier: the command would
	// inherit it.
	signal.Ignore(syscall.SIGTTOU)
	c := &command{leash: l, pid: process.Pid, tty: tty}
	_ = process.Release() // supervise waits by process id; there is nothing to fail
	return c, nil
}

// supervise passes signals on to the group, stops it when the lock is lost, and
// returns when all of it has ended.
func (c *command) supervise(signals <-chan os.Signal) syscall.WaitStatus {
	defer runtime.UnlockOSThread()
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	lost := c.leash.held.Done()
	var sig os.Signal
	for {
		c.enforce() // before anything wakes a group that was stopped for longer than the lease
		if sig != nil {
			c.forward(sig.(syscall.Signal))
			sig = nil
		}
		c.reap()
		if c.ended && c.gone() {
			if c.said != nil {
				writtenWithin(c.said, patientWrite)
			}
			return c.status
		}
		timer := time.NewTimer(c.next())
		select {
		case sig = <-signals:
		case <-children:
		case <-lost:
			lost = nil
		case <-timer.C:
		}
		timer.Stop()
	}
}

// next is when to look at the clock again.
func (c *command) next() time.Duration {
	switch {
	case c.ended:
		return restPoll
	case c.killed:
		return time.Hour // SIGCHLD comes
	case !c.killAt.IsZero():
		return min(left(c.killAt), maxNap)
	}
	return min(c.leash.next(), maxNap)
}

// enforce tells the group to end when the lock is lost, and when its leader has
// ended: TERM, then KILL. What outlives its leader works under the lock as well.
func (c *command) enforce() {
	if c.lost == nil {
		if c.lost = c.leash.lost(); c.lost != nil {
			c.say("rlock: stopping the command: " + trimmed(c.lost))
		}
	}
	if c.killAt.IsZero() && (c.lost != nil || c.ended) {
		c.killAt = c.leash.killAt()
		if left(c.killAt) > 0 {
			c.signal(syscall.SIGTERM)
			c.signal(syscall.SIGCONT) // a stopped process would not see it
		}
	}
	if !c.killAt.IsZero() && !c.killed && left(c.killAt) <= 0 {
		c.signal(syscall.SIGKILL)
		c.killed = true
	}
}

// say writes a line while nobody waits for it: the reader of our messages may stand still,
// and must not keep KILL back.
func (c *command) say(line string) {
	said := make(chan struct{})
	c.said = said
	go func() {
		defer close(said)
		fmt.Fprintln(os.Stderr, line)
	}()
}

// forward gives a signal of this process to the group.
func (c *command) forward(sig syscall.Signal) {
	if sig == syscall.SIGCONT { // fg
		c.tty.give(c.pid)
	}
	c.signal(sig)
	switch sig {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM: // a stopped process would not see it
		c.signal(syscall.SIGCONT)
	}
}

// signal is for the whole group: a shell dies of TERM and leaves what it runs
// behind. The error is that there is nobody left.
func (c *command) signal(sig syscall.Signal) { _ = syscall.Kill(-c.pid, sig) }

// reap looks what became of the process, and of those that lost their parent: on Linux we
// inherit them, whatever group they are in, and elsewhere as process 1.
func (c *command) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case pid <= 0:
			return
		case pid != c.pid || c.ended: // an orphan
		case status.Stopped():
			c.suspend()
		default:
			c.ended, c.status = true, status
			c.tty.takeFrom(c.pid)
		}
	}
}

// suspend stops our own group after the terminal has stopped the command's, so
// that the shell notices; SIGCONT ends it. Nobody renews meanwhile: if that is
// longer than the lease, the command is killed without having run outside it.
func (c *command) suspend() {
	switch {
	case c.tty == nil:
	case c.tty.managed():
		c.tty.takeFrom(c.pid)
		c.signal(syscall.SIGSTOP) // some of the group may not have heeded the terminal
		_ = syscall.Kill(0, syscall.SIGSTOP)
	default: // as if the kernel had not stopped it
		c.forward(syscall.SIGCONT)
	}
}

// gone reports whether the group has no process any more. Its number is free then;
// while there is one, it is given to nobody else.
func (c *command) gone() bool {
	return syscall.Kill(-c.pid, 0) == syscall.ESRCH ||
		c.killed && left(c.killAt) < -restWait // zombies that nobody reaps
}
