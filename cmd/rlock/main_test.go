package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// asProgram makes the test binary, and what it starts, behave as rlock.
const asProgram = "RLOCK_TEST_MAIN"

// hasty leaves it the time that users give it for a completion.
const hasty = "RLOCK_TEST_HASTY"

// limit bounds what happens at once on a healthy machine.
const limit = 15 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv(hasty) == "" {
		completionTime = limit
	}
	patientLook = limit
	if os.Getenv(asProgram) != "" {
		main()
	}
	redistest.RunChild(map[string]func(args []string){"crowd": crowdOfOneName})
	// Under nohup rlock would inherit that HUP is ignored, and tests which send it would wait in vain. A
	// signal with a handler is not ignored, so what these tests start gets its default.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	// Parallel tests mostly wait for a lease to end; the default is the number of cores.
	_ = flag.Set("test.parallel", "8")
	goleak.VerifyTestMain(m, redistest.Dials)
}

// result is how a process ended.
type result struct {
	code           int
	stdout, stderr string
}

// program is rlock, running as another process.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  *os.File
	lines  *bufio.Reader
	seen   bytes.Buffer // of stdout
	stderr bytes.Buffer
}

// prepare returns rlock on the server at url. Its own command finds it as $SELF.
func prepare(t *testing.T, url string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), asProgram + "=1", "SELF=" + self, "RLOCK_URL=" + url, "GORACE=atexit_sleep_ms=0"}
	// Without a controlling terminal; tests of that have one of their own.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// begin starts rlock and kills it when the test ends.
func begin(t *testing.T, url string, args ...string) *program {
	t.Helper()
	return launch(t, prepare(t, url, args...))
}

func launch(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{t: t, cmd: cmd}
	in, stdin, err := os.Pipe()
	require.NoError(t, err)
	stdout, out, err := os.Pipe()
	require.NoError(t, err)
	p.stdin, p.lines = stdin, bufio.NewReader(stdout)
	require.NoError(t, stdout.SetReadDeadline(time.Now().Add(2*limit)))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &p.stderr
	cmd.WaitDelay = limit
	require.NoError(t, cmd.Start())
	require.NoError(t, errors.Join(in.Close(), out.Close()))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the test may have waited
		_ = errors.Join(stdin.Close(), stdout.Close())
		if t.Failed() {
			t.Logf("%q printed:\n%s%s", cmd.Args[1:], &p.seen, &p.stderr)
		}
	})
	return p
}

// says returns what follows prefix on the next line of output that begins so.
func (p *program) says(prefix string) string {
	p.t.Helper()
	for {
		line, err := p.lines.ReadString('\n')
		p.seen.WriteString(line)
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
		require.NoError(p.t, err, "no line begins with %q", prefix)
	}
}

func (p *program) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

func (p *program) tell(line string) {
	p.t.Helper()
	_, err := p.stdin.WriteString(line + "\n")
	require.NoError(p.t, err)
}

// end waits until rlock and all that has its output have ended.
func (p *program) end() result {
	p.t.Helper()
	_, err := p.lines.WriteTo(&p.seen)
	require.NoError(p.t, err)
	err = p.cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		require.NoError(p.t, err)
	}
	return result{p.cmd.ProcessState.ExitCode(), p.seen.String(), p.stderr.String()}
}

// outcome runs rlock to its end, and once more if a busy machine gave it no answer in the
// time of one attempt.
func outcome(t *testing.T, url string, args ...string) result {
	t.Helper()
	r := begin(t, url, args...).end()
	for tries := 1; strings.Contains(r.stderr, "no answer in time") && tries < 5; tries++ {
		r = begin(t, url, args...).end()
	}
	return r
}

// fixture is a Redis server with somebody else on it.
type fixture struct {
	*redistest.Server
	t      *testing.T
	client *rlock.Client
}

func newFixture(t *testing.T, args ...string) *fixture {
	t.Helper()
	return newFixtureOf(t, redistest.Start(t, args...))
}

// newFixtureOf is another somebody on a server.
func newFixtureOf(t *testing.T, srv *redistest.Server) *fixture {
	t.Helper()
	client, err := rlock.New(srv.Client(t), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		require.NoError(t, client.Close(ctx))
	})
	return &fixture{srv, t, client}
}

// hold takes a lock and returns its release, which may be called twice.
func (f *fixture) hold(name string) (unlock func()) {
	f.t.Helper()
	_, hold, err := f.client.NewLock(name).TryLock(f.t.Context())
	require.NoError(f.t, err)
	unlock = func() { _ = hold.Unlock(context.Background()) }
	f.t.Cleanup(unlock)
	return unlock
}

func (f *fixture) state(name string) rlock.State {
	f.t.Helper()
	state, err := f.client.NewLock(name).Inspect(f.t.Context())
	require.NoError(f.t, err)
	return state
}

// awaitWaiter returns when somebody waits for the lock.
func (f *fixture) awaitWaiter(name string) {
	f.t.Helper()
	redistest.Eventually(f.t, "somebody waits for "+name, func() bool { return f.state(name).Waiters == 1 })
}

// alive reports whether a process runs: a zombie does not.
func alive(t *testing.T, pid string) bool {
	t.Helper()
	return !strings.Contains("ZX", condition(pid))
}

// condition is the letter that Linux has for what a process does; "X" if it is gone.
func condition(pid string) string {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "X"
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return after[:1]
}
