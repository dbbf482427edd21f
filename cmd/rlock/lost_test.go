package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// requireDeadBefore requires that a process is dead before the end of a lease. Beside busy
// loops rlock may stand still for a second or two while this process does not: make test
// only requires that the process is dead soon after.
func requireDeadBefore(t *testing.T, end time.Time, dead <-chan time.Time) {
	t.Helper()
	stalls := redistest.WatchStalls()
	defer stalls.Stop()
	allowed, at := limit, <-dead
	if !testing.Short() {
		allowed = stalls.Total()
	}
	require.Less(t, at.Sub(end), allowed)
}

// death returns a channel that is told the time at which a process was dead.
func death(t *testing.T, pid string) <-chan time.Time {
	dead := make(chan time.Time, 1)
	go func() {
		for end := time.Now().Add(4 * limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if !alive(t, pid) {
				break
			}
		}
		dead <- time.Now()
	}()
	return dead
}

// leaseEnd returns when the lease ends on the server, to a millisecond or two. What is
// sent together is executed together: nothing comes between that and a last command.
func (f *fixture) leaseEnd(name string, last ...any) time.Time {
	f.t.Helper()
	pipe := f.Client(f.t).Pipeline()
	now, ttl := pipe.Time(f.t.Context()), pipe.PTTL(f.t.Context(), name)
	if last != nil {
		pipe.Do(f.t.Context(), last...)
	}
	_, err := pipe.Exec(f.t.Context())
	require.NoError(f.t, err)
	require.Positive(f.t, ttl.Val())
	return now.Val().Add(ttl.Val())
}

func TestLostBecauseRemoved(t *testing.T) {
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "--ttl", "10s", "-k", "2s", "a", "--", "sh", "-c", trap)
	p.says("ready")
	require.NoError(t, f.Client(t).Del(t.Context(), "a").Err())
	p.says("TERM")
	r := p.end()
	require.Equal(t, exitLost, r.code)
	require.Contains(t, r.stderr, `rlock: stopping the command: lock "a": lease lost: `)
}

// fullPipe returns a pipe that has no more room.
func fullPipe(t *testing.T) (out, in *os.File) {
	t.Helper()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, in.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = io.Copy(in, zeros{})
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, in.SetWriteDeadline(time.Time{}))
	return out, in
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// Who reads our messages may stand still: the command is ended in time all the same.
func TestLostWhileNobodyReadsTheMessages(t *testing.T) {
	f := newFixture(t)
	cmd := wrap(prepare(t, f.URL()), `exec "$SELF" run --ttl 10s -k 1s a -- sh -c '`+stubborn+`' 2>&3`)
	out, in := fullPipe(t)
	cmd.ExtraFiles = []*os.File{in}
	p := launch(t, cmd)
	defer func() { require.NoError(t, errors.Join(in.Close(), out.Close())) }()
	pid := p.says("ready ")
	end := f.leaseEnd("a", "DEL", "a")
	requireDeadBefore(t, end, death(t, pid))
}

// A signal ends it also while nobody reads why there is no lock.
func TestSignalWhileNobodyReadsTheEnd(t *testing.T) {
	f := newFixture(t)
	f.hold("a")
	out, in := fullPipe(t)
	defer func() { require.NoError(t, errors.Join(in.Close(), out.Close())) }()
	cmd := prepare(t, f.URL()+"?client_name=stuck", "run", "-n", "a", "--", "true")
	cmd.Stderr = in
	require.NoError(t, cmd.Start())
	rdb := f.Client(t)
	redistest.Eventually(t, "it has left the server", func() bool {
		return f.CommandCalls(t)["client|setname"] > 0 && !strings.Contains(rdb.ClientList(t.Context()).Val(), "name=stuck")
	})
	_ = terminated(t, cmd) // it may have ended with its own status
}

// terminated sends TERM to a command, which must end by that, and returns how.
func terminated(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	kill := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	require.True(t, kill.Stop(), "%q goes on", cmd.Args)
	return err
}

func TestLostOnlyFoundOutAtTheEnd(t *testing.T) {
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "a", "--", "sh", "-c", "echo ready; read x")
	p.says("ready")
	require.NoError(t, f.Client(t).Del(t.Context(), "a").Err())
	p.tell("")
	r := p.end()
	require.Equal(t, exitLost, r.code)
	require.Contains(t, r.stderr, `rlock: lock "a": lease lost: `)
}

// Between KILL and the end of the lease is a fiftieth of it: the lease is long enough
// for that to outlast what a busy machine takes to notice the death.
func TestDeadBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		args   []string
		script string
	}{
		{"ends when told", nil, `echo ready $$; while :; do sleep 0.5; done`},
		{"must be killed", nil, stubborn},
		{"long grace", []string{"-k", "6s"}, stubborn},
		{"no grace", []string{"-k", "0s"}, stubborn},
		{"stopped", nil, `echo ready $$; kill -STOP $$`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			args := append(append([]string{"run", "--ttl", "24s"}, tc.args...), "a", "--", "sh", "-c", tc.script)
			p := begin(t, f.URL(), args...)
			dead := death(t, p.says("ready "))
			end := f.leaseEnd("a", "client", "pause", time.Minute.Milliseconds()) // no renewal after it
			f.Stop()
			requireDeadBefore(t, end, dead)
			r := p.end()
			f.Cont()
			require.Equal(t, exitLost, r.code)
			require.Contains(t, r.stderr, "rlock: stopping the command: ")
		})
	}
}

func TestFixedLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "--lease", "24s", "a", "--", "sh", "-c", stubborn)
	dead := death(t, p.says("ready "))
	end := f.leaseEnd("a")
	requireDeadBefore(t, end, dead)
	require.Equal(t, exitLost, p.end().code)
	require.Less(t, time.Until(end), 24*time.Second/20, "nearly all of the lease is for the command")

	require.Zero(t, outcome(t, f.URL(), "run", "--lease", "10s", "a", "--", "true").code)
	require.Empty(t, f.state("a").Holds)
}

// rlock is stopped by a signal until its lease is over. When it goes on, it kills its
// command at once, without the time that the command has otherwise to end.
func TestStoppedForLongerThanTheLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "--ttl", "16s", "-k", "8s", "a", "--", "sh", "-c", stubborn)
	pid := p.says("ready ")
	p.signal(syscall.SIGSTOP)
	redistest.Eventually(t, "the lease is over", func() bool { return len(f.state("a").Holds) == 0 })
	resumed := time.Now()
	stalls := redistest.WatchStalls()
	defer stalls.Stop()
	p.signal(syscall.SIGCONT)
	died := <-death(t, pid)
	require.Less(t, died.Sub(resumed), 7*time.Second+stalls.Total(), "there is no grace left")
	require.Equal(t, exitLost, p.end().code)
}

func TestUnreleasedIsSaidButNotTheExitCode(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "--ttl", "6s", "a", "--", "sh", "-c", "echo ready; read x; exit 3")
	p.says("ready")
	f.Kill()
	p.tell("")
	r := p.end()
	f.Restart()
	require.Equal(t, 3, r.code)
	require.Contains(t, r.stderr, "rlock: the lock was not released and ends with its lease: ")
}
