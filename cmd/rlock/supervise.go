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
	restPoll = 10 * time.Millisecond // how often to look whether the rest of a job is gone
	restWait = time.Second           // how long to look after the newest KILL: what is left can only be dead, or another user's
	justNow  = time.Second           // for so long after a TERM there is no other: many programs give up their cleanup at the second
	maxNap   = time.Second           // between looks at the clock: timers stand still while the machine is suspended
)

// process is one of those that run. Another process may get its number, but has another start.
type process struct {
	pid   int
	start string
}

// command is a running child process, the leader of a process group of its own, with all
// that it has started: its job.
// One goroutine waits for it and signals it, so that no signal can go to a
// process id that was reaped and given to another process.
type command struct {
	leash     leash
	lost      error          // why the command had to end
	told      syscall.Signal // the newest by which this process, and so the command, was told to end; 0 without one
	termed    time.Time      // when the job got TERM because this process did
	pid       int            // of the process and of its group
	tty       *terminal
	adopts    bool             // who loses its parent below this process becomes its child
	strangers map[process]int  // were below this process before: children of the program that became rlock
	killAt    time.Time        // set once the job was told to end; later, when KILL was last sent to somebody new
	killed    map[process]bool // nil before KILL
	ended     bool             // the process was reaped; the rest of its job may still run
	childless bool             // this process has no child
	status    syscall.WaitStatus
	said      <-chan struct{} // closed when our message is written; nil if there was none
}

// start runs a command. Linux kills it if the thread that started it ends, so
// the caller's goroutine stays on its thread until supervise has returned.
func start(path string, argv []string, l leash) (*command, error) {
	c := &command{leash: l, adopts: adopt(), strangers: descendants(nil)}
	runtime.LockOSThread()
	c.tty = openTerminal()
	attr := &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   c.tty.attributes(), // asked once: a command that was not executed has taken the terminal
	}
	var process *os.Process
	err := executed(path, argv, func(path string, argv []string) (err error) {
		process, err = os.StartProcess(path, argv, attr)
		return err
	})
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	// Taking the terminal back may not end the supervision. Not earlier: the command would
	// inherit it.
	signal.Ignore(syscall.SIGTTOU)
	c.pid = process.Pid
	_ = process.Release() // supervise waits by process id; there is nothing to fail
	return c, nil
}

// supervise passes signals on to the job, stops it when the lock is lost, and
// returns when all of it has ended.
func (c *command) supervise(signals <-chan os.Signal) syscall.WaitStatus {
	defer runtime.UnlockOSThread()
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	lost := c.leash.held.Done()
	var sig os.Signal
	for {
		c.enforce() // before anything wakes a job that was stopped for longer than the lease
		if sig != nil {
			c.forward(sig.(syscall.Signal))
			sig = nil
		}
		c.reap()
		if c.ended && c.gone() {
			c.tty.takeFrom(c.pid)
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
	case c.killed != nil && left(c.killAt) < -restWait: // another user's
		return maxNap
	case c.ended, c.killed != nil:
		return restPoll
	case !c.killAt.IsZero():
		return min(left(c.killAt), maxNap)
	}
	return min(c.leash.next(), maxNap)
}

// enforce tells the job to end when the lock is lost, and when its leader has
// ended: TERM, then KILL. What outlives its leader works under the lock as well.
func (c *command) enforce() {
	if c.lost == nil {
		if c.lost = c.leash.lost(); c.lost != nil {
			c.said = say("rlock: stopping the command: " + trimmed(c.lost))
		}
	}
	if c.killAt.IsZero() && (c.lost != nil || c.ended) {
		c.killAt = c.leash.killAt()
		if left(c.killAt) > 0 {
			if time.Since(c.termed) > justNow {
				c.signal(syscall.SIGTERM)
			}
			c.signal(syscall.SIGCONT) // a stopped process would not see it
		}
	}
	if !c.killAt.IsZero() && left(c.killAt) <= 0 {
		c.kill()
	}
}

// kill kills the job, until it finds nobody new: processes may start others meanwhile. The dead are
// reaped between two looks: a job that forks and ends, again and again, would fill the process table,
// and each look would take longer than the one before.
func (c *command) kill() {
	if c.killed == nil {
		c.killed = make(map[process]bool)
	}
	for more := true; more; {
		more = false
		c.reap()
		for p := range c.signal(syscall.SIGKILL) {
			if !c.killed[p] {
				c.killed[p], c.killAt, more = true, time.Now(), true
			}
		}
	}
}

// say writes a line in a goroutine, because the reader of our messages may be suspended, and must not keep back
// what comes next, such as KILL. said is closed when the line is written.
func say(line string) (said chan struct{}) {
	said = make(chan struct{})
	go func() {
		defer close(said)
		fmt.Fprintln(os.Stderr, line)
	}()
	return said
}

// forward gives a signal of this process to the group, and to all of the job what is to end it
// or lets it go on: the leader may wait for a process in another group.
func (c *command) forward(sig syscall.Signal) {
	switch sig {
	case syscall.SIGCONT: // fg
		c.tty.give(c.pid)
		c.signal(sig)
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		if c.told = sig; sig == syscall.SIGTERM {
			c.termed = time.Now()
		}
		c.signal(sig)
		c.signal(syscall.SIGCONT) // a stopped process would not see it
	default:
		c.signalGroup(sig)
	}
}

// signal is for the whole job: a shell dies of TERM and leaves what it runs behind. It returns
// the processes of the job, as far as they are known, and their groups.
func (c *command) signal(sig syscall.Signal) map[process]int {
	if !c.ended {
		c.signalGroup(sig) // at once, and nobody leaves it by a fork meanwhile
	}
	job := descendants(c.strangers)
	for p, group := range job {
		if c.ended || group != c.pid {
			p.signal(sig)
		}
	}
	if c.ended && len(job) == 0 {
		c.signalGroup(sig)
	}
	return job
}

// signalGroup ignores the error: there is nobody left.
func (c *command) signalGroup(sig syscall.Signal) { _ = syscall.Kill(-c.pid, sig) }

// reap looks what became of the process, and of those that lost their parent: on Linux we
// inherit them, whatever group they are in, and elsewhere as process 1.
func (c *command) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case pid <= 0:
			c.childless = err == syscall.ECHILD
			return
		case pid != c.pid || c.ended: // an orphan
		case status.Stopped():
			c.suspend(status.StopSignal())
		default:
			c.ended, c.status = true, status
			c.tty.takeFrom(c.pid)
		}
	}
}

// suspend stops our own group after the terminal has stopped the command's, so
// that the shell notices; SIGCONT ends it. Nobody renews meanwhile: if that is
// longer than the lease, the command is killed without having run outside it.
// A command in a pipeline that asks at the terminal, as for a password, gets the
// place that the shell has given us.
func (c *command) suspend(by syscall.Signal) {
	switch {
	case c.tty == nil:
	case (by == syscall.SIGTTIN || by == syscall.SIGTTOU) && c.tty.ours():
		c.forward(syscall.SIGCONT)
	case c.tty.managed():
		c.tty.takeFrom(c.pid)
		c.signal(syscall.SIGSTOP) // some of the job may not have heeded the terminal
		_ = syscall.Kill(0, syscall.SIGSTOP)
	default: // as if the kernel had not stopped it
		c.forward(syscall.SIGCONT)
	}
}

// gone reports whether the job has no process any more. The number of the group is free then;
// while there is a process in it, it is given to nobody else.
func (c *command) gone() bool {
	switch {
	case c.killed != nil && left(c.killAt) < -restWait:
		return true
	case c.adopts && len(c.strangers) == 0:
		return c.childless
	}
	return syscall.Kill(-c.pid, 0) == syscall.ESRCH && len(descendants(c.strangers)) == 0
}
