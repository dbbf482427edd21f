package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// setupLimit bounds how long the workers of a run take to reach the barrier, and
// to leave.
const setupLimit = 30 * time.Second

// crew are the processes of a run.
type crew struct {
	ctx     context.Context // ends with the first of them that fails
	fail    context.CancelCauseFunc
	job     job // less the process
	region  *region
	members []*member
}

// muster starts the workers and returns when they are ready. The crew has to be
// dismissed in any case.
func muster(ctx context.Context, j job, region *region) (*crew, error) {
	c := &crew{job: j, region: region}
	c.ctx, c.fail = context.WithCancelCause(ctx)
	for j.Process = range j.Scenario.workers() {
		m, err := hire(c.ctx, j)
		if err != nil {
			return c, c.why(err)
		}
		c.members = append(c.members, m)
		go func() { // ends with the member
			if m.err = m.wait(j.Scenario.victim(m.process)); m.err != nil {
				c.fail(m.err) // or the others would wait at the barrier
			}
			close(m.ended)
		}()
	}
	return c, c.all("get ready", int64(len(c.members)), region.ready.Load)
}

// why returns the reason for the failure of a step: if a member has failed, ctx has ended, and the
// step only says that.
func (c *crew) why(err error) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	return err
}

// dismiss kills whoever is still there.
func (c *crew) dismiss() {
	c.fail(nil)
	for _, m := range c.members {
		<-m.ended
	}
}

// survivors counts those who are not to be killed: the first ones.
func (c *crew) survivors() int64 { return int64(len(c.members) - c.job.Scenario.victims()) }

// all waits until so many workers have done something.
func (c *crew) all(what string, n int64, counter func() int64) error {
	late := fmt.Errorf("bench: %s with %s: the workers do not %s", c.job.Scenario.Name, c.job.Contender, what)
	limited, cancel := context.WithTimeoutCause(c.ctx, setupLimit, late)
	defer cancel()
	return await(limited, func() bool { return counter() >= n })
}

// tallies lets the workers end and returns what they have found.
func (c *crew) tallies() ([]*tally, error) {
	if err := c.all("finish", c.survivors(), c.region.done.Load); err != nil {
		return nil, err
	}
	c.region.leave.Store(1)
	tallies := make([]*tally, c.survivors())
	for i, m := range c.members[:len(tallies)] {
		select {
		case <-m.ended:
		case <-time.After(setupLimit):
			return nil, fmt.Errorf("bench: %s with %s: a worker does not end", c.job.Scenario.Name, c.job.Contender)
		}
		if m.err != nil {
			return nil, m.err
		}
		var err error
		if tallies[i], err = m.tally(); err != nil {
			return nil, err
		}
	}
	return tallies, nil
}

// member is a worker process, seen from outside.
type member struct {
	process        int
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	ended          chan struct{} // closed when err is set
	err            error
}

// hire starts this program again, as a worker. It ends by itself when ctx ends, or
// this process, and is killed if it does not.
func hire(ctx context.Context, j job) (*member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	m := &member{process: j.Process, cmd: exec.CommandContext(ctx, self, WorkerArg), ended: make(chan struct{})}
	m.cmd.Stdout, m.cmd.Stderr = &m.stdout, &m.stderr
	stdin, err := m.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	m.cmd.Cancel, m.cmd.WaitDelay = stdin.Close, leaveLimit+time.Second
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := stdin.Write(append(text, '\n')); err != nil {
		_ = m.cmd.Process.Kill()
		_ = m.wait(false)
		return nil, err
	}
	return m, nil
}

// wait returns the error that the process has ended with. To be killed is none,
// for a victim.
func (m *member) wait(victim bool) error {
	err := m.cmd.Wait()
	status, ok := m.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if victim && ok && status.Signal() == syscall.SIGKILL {
		return nil
	}
	if err != nil {
		err = fmt.Errorf("bench: worker: %w: %s", err, bytes.TrimSpace(m.stderr.Bytes()))
	}
	return err
}

func (m *member) tally() (*tally, error) {
	t := new(tally)
	return t, json.Unmarshal(m.stdout.Bytes(), t)
}
