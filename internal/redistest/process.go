package redistest

import (
	"os/exec"
	"runtime"
)

// process is a child process that cannot outlive the test binary. Its methods may be called
// from any goroutine.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the process is reaped
	err  error         // how it ended; read after done
}

func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error, 1)
	go func() {
		// Linux sends the parent-death signal when the thread that forked
		// ends, not the whole parent. So that thread is kept until the
		// child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill also ends a stopped process, and is no error for one that has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop returns when no thread of the process runs any more.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(sigStop); err != nil {
		return err
	}
	return awaitStopped(p.pid())
}

func (p *process) cont() error { return p.cmd.Process.Signal(sigCont) }
