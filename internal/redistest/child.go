package redistest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const childEnv = "RLOCK_TEST_CHILD"

// RunChild makes a test binary usable with [Spawn]. TestMain calls it first:
//
//	func TestMain(m *testing.M) {
//		redistest.RunChild(map[string]func(args []string){"holder": holder})
//		goleak.VerifyTestMain(m)
//	}
//
// In a child it runs the named function and exits: with 0 if the function
// returns. In the parent it returns at once.
func RunChild(children map[string]func(args []string)) {
	name, ok := os.LookupEnv(childEnv)
	if !ok {
		return
	}
	child, ok := children[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "TestMain gave RunChild no function %q\n", name)
		os.Exit(2)
	}
	child(os.Args[1:])
	os.Exit(0)
}

// Child is the test binary, running again as another process.
type Child struct {
	Stdin io.WriteCloser // the child's standard input

	tb     testing.TB
	name   string
	proc   *process
	pipe   *os.File
	stdout *bufio.Reader // of pipe
}

// Spawn runs the function name of [RunChild] in a child process, which is
// killed when the test ends. The child reports by printing lines for
// [Child.Expect]; its standard error is shown if the test fails.
func Spawn(tb testing.TB, name string, args ...string) *Child {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	logFile := filepath.Join(tb.TempDir(), "stderr")
	log, err := os.Create(logFile)
	if err != nil {
		tb.Fatal(err)
	}
	stdin, stdinW, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdoutR, stdout, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	// Plain files: exec.Cmd's own pipes are closed by Wait, which runs from the start.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, log
	p, err := startProcess(cmd)
	for _, f := range []*os.File{stdin, stdout, log} {
		_ = f.Close() // the child has its own
	}
	if err != nil {
		tb.Fatal(err)
	}
	c := &Child{Stdin: stdinW, tb: tb, name: name, proc: p, pipe: stdoutR, stdout: bufio.NewReader(stdoutR)}
	tb.Cleanup(func() {
		c.Kill()
		_ = stdinW.Close() // the test may have closed it
		_ = stdoutR.Close()
		if text := logTail(logFile); tb.Failed() && text != "" {
			tb.Logf("standard error of child %s:\n%s", name, text)
		}
	})
	return c
}

// Expect reads the child's output up to a line with this prefix and returns
// what follows it. The test fails if that line does not come in time.
func (c *Child) Expect(prefix string, timeout time.Duration) string {
	c.tb.Helper()
	if err := c.pipe.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		c.tb.Fatal(err)
	}
	var others strings.Builder
	for {
		line, err := c.stdout.ReadString('\n')
		if rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), prefix); ok && err == nil {
			return rest
		}
		others.WriteString(line)
		if err != nil {
			c.tb.Fatalf("child %s printed no line %q: %v; it printed:\n%s", c.name, prefix, err, others.String())
		}
	}
}

// Pid returns the child's process id.
func (c *Child) Pid() int { return c.proc.pid() }

// Kill sends SIGKILL and returns when the child is gone.
func (c *Child) Kill() { c.proc.kill() }

// Stop sends SIGSTOP and returns when the child stands still.
func (c *Child) Stop() {
	c.tb.Helper()
	if err := c.proc.stop(); err != nil {
		c.tb.Errorf("stop child %s: %v", c.name, err)
	}
}

// Cont ends a [Child.Stop].
func (c *Child) Cont() {
	c.tb.Helper()
	if err := c.proc.cont(); err != nil {
		c.tb.Errorf("continue child %s: %v", c.name, err)
	}
}

// Wait waits until the child has ended by itself; an exit code other than 0 is
// an [*exec.ExitError].
func (c *Child) Wait(timeout time.Duration) error {
	select {
	case <-c.proc.done:
		return c.proc.err
	case <-time.After(timeout):
		return fmt.Errorf("child %s still runs after %v", c.name, timeout)
	}
}
