package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
)

// screen is a terminal with a program on it, which leads the session.
type screen struct {
	t      *testing.T
	master *os.File
	p      *program
	mu     sync.Mutex // guards shown
	shown  bytes.Buffer
}

func onTerminal(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	fd := int(master.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 60}))
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)

	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setctty = true
	require.NoError(t, cmd.Start())
	require.NoError(t, slave.Close())
	s := &screen{t: t, master: master, p: &program{t: t, cmd: cmd}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 1024); ; {
			n, err := master.Read(b) // EIO when all that has the terminal has ended
			s.mu.Lock()
			s.shown.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the test may have waited
		<-ended
		_ = master.Close()
		if t.Failed() {
			t.Logf("screen:\n%q", s.shown.String())
		}
	})
	return s
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

func (s *screen) shows(pattern string) {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	redistest.Eventually(s.t, "the screen shows "+pattern, func() bool { return re.MatchString(s.text()) })
}

func (s *screen) types(keys string) {
	s.t.Helper()
	_, err := s.master.WriteString(keys)
	require.NoError(s.t, err)
}

func (s *screen) code() int {
	_ = s.p.cmd.Wait() // the code tells
	return s.p.cmd.ProcessState.ExitCode()
}

func TestTheCommandHasTheTerminal(t *testing.T) {
	f := newFixture(t)
	s := onTerminal(t, prepare(t, f.URL(), "run", "a", "--", "sh", "-c", "echo ready; read x; echo got $x; exit 3"))
	s.shows("ready")
	s.types("hello\n")
	s.shows("got hello")
	require.Equal(t, 3, s.code())

	s = onTerminal(t, prepare(t, f.URL(), "run", "a", "--", "sh", "-c", `trap 'echo INT; exit 8' INT; echo ready; while :; do sleep 0.02; done`))
	s.shows("ready")
	s.types("\x03")
	require.Equal(t, 8, s.code())
}

// The first attempt at a script without an interpreter takes the terminal, and leaves it.
func TestScriptWithoutAnInterpreterHasTheTerminal(t *testing.T) {
	f := newFixture(t)
	script := t.TempDir() + "/script"
	require.NoError(t, os.WriteFile(script, []byte("echo ready; read x; echo got $x; exit 3\n"), 0o700))
	s := onTerminal(t, prepare(t, f.URL(), "run", "a", "--", script))
	s.shows("ready")
	s.types("hello\n")
	s.shows("got hello")
	require.Equal(t, 3, s.code())
}

// shell returns a shell that runs the script with job control.
func shell(t *testing.T, url, script string) *exec.Cmd {
	t.Helper()
	return wrap(prepare(t, url), "set -m; "+script)
}

// resumes types a line for the shell, which then runs fg, and one for the command.
func (s *screen) resumes() {
	s.t.Helper()
	s.types("one\n")
	s.shows("shell got one")
	s.types("two\n")
	s.shows("got two")
	require.Equal(s.t, 3, s.code())
}

func TestSuspendAndResume(t *testing.T) {
	f := newFixture(t)
	s := onTerminal(t, shell(t, f.URL(), `
		"$SELF" run a -- sh -c 'echo ready; read x; echo got $x; exit 3'
		echo "status $?"; read x; echo "shell got $x"; fg; exit $?`))
	s.shows("ready")
	s.types("\x1a")
	s.shows("status 147") // SIGSTOP
	s.resumes()
}

// stands reports whether a process was stopped by a signal.
func stands(t *testing.T, pid string) bool {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	require.NoError(t, err)
	return bytes.Contains(stat, []byte(") T "))
}

// In a pipeline the terminal's signals come to rlock.
func TestSuspendAndInterruptAPipeline(t *testing.T) {
	f := newFixture(t)
	s := onTerminal(t, shell(t, f.URL(), `
		"$SELF" run a -- sh -c 'echo ready $$.; exec sleep 1000' | cat
		echo "status $?"; read x; fg; echo interrupted`))
	s.shows(`ready \d+\.`)
	pid := regexp.MustCompile(`ready (\d+)`).FindStringSubmatch(s.text())[1]
	s.types("\x1a")
	s.shows("status 1")
	redistest.Eventually(t, "the command stands", func() bool { return stands(t, pid) })
	s.types("\n")
	redistest.Eventually(t, "the command runs again", func() bool { return !stands(t, pid) })
	s.types("\x03")
	s.shows("interrupted")
}

// A command of a pipeline that asks at the terminal gets it.
func TestPromptInAPipeline(t *testing.T) {
	f := newFixture(t)
	s := onTerminal(t, shell(t, f.URL(), `
		"$SELF" run a -- sh -c 'echo ready; read x </dev/tty; echo got $x' | cat
		echo "status $?"; read y; echo "shell got $y"`))
	s.shows("ready")
	s.types("hello\n")
	s.shows("got hello\r\nstatus 0")
	s.types("again\n")
	s.shows("shell got again")
	require.Zero(t, s.code())
}

// What does not heed the terminal's signal is stopped as well: nobody renews any more.
func TestSuspendStopsAllOfTheGroup(t *testing.T) {
	f := newFixture(t)
	s := onTerminal(t, shell(t, f.URL(), `
		"$SELF" run a -- sh -c 'sh -c "trap \"\" TSTP; echo deaf \$\$.; exec sleep 1000" & echo ready; read x; kill $!; exit 3'
		echo "status $?"; read x; echo "shell got $x"; fg; exit $?`))
	s.shows("ready")
	s.shows(`deaf \d+\.`)
	pid := regexp.MustCompile(`deaf (\d+)`).FindStringSubmatch(s.text())[1]
	s.types("\x1a")
	s.shows("status 147")
	redistest.Eventually(t, "the deaf process stands as well", func() bool { return stands(t, pid) }) // a process on another core takes a moment
	s.types("one\n")
	s.shows("shell got one")
	s.types("two\n")
	require.Equal(t, 3, s.code())
}

func TestResumedAfterTheLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := onTerminal(t, shell(t, f.URL(), `
		"$SELF" run --ttl 5s a -- sh -c 'echo ready; read x; echo got $x'
		until "$SELF" inspect a | grep "is free"; do sleep 0.2; done; fg; exit $?`))
	s.shows("ready")
	s.types("\x1a")
	s.shows("is free")
	s.types("hello\n")
	require.Equal(t, exitLost, s.code())
	require.NotContains(t, s.text(), "got hello")
}

func TestBackgroundCommandGetsTheTerminalFromFg(t *testing.T) {
	f := newFixture(t)
	s := onTerminal(t, shell(t, f.URL(), `
		"$SELF" run a -- sh -c 'echo ready; read x; echo got $x; exit 3' &
		until grep -q '^State:.T' /proc/$!/status; do sleep 0.01; done
		read x; echo "shell got $x"; fg; exit $?`))
	s.shows("ready")
	s.resumes()
}

func TestNobodyToResume(t *testing.T) {
	f := newFixture(t)
	s := onTerminal(t, prepare(t, f.URL(), "run", "a", "--", "sh", "-c", "echo ready; read x; echo got $x"))
	s.shows("ready")
	s.types("\x1a")
	s.types("hello\n")
	s.shows("got hello")
	require.Zero(t, s.code())
}

func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	unlock := f.hold("a")
	s := onTerminal(t, prepare(t, f.URL(), "run", "a", "--", "echo", "ran"))
	began := time.Now()
	s.shows(`\r\x1b\[Krlock: waiting for "a" \(\d+s\): held by `)
	s.shows(`\r\x1b\[Krlock: waiting for "a" \([2-9]s\): held by [^\r\n]*…\r\x1b\[K`)
	calls := f.CommandCalls(t)["pubsub|numsub"] // one for each Inspect, and one for each request of the waiter
	require.LessOrEqual(t, calls, 2*int64(time.Since(began)/time.Second)+4, "once a second")
	require.NoError(t, unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 24}))
	s.shows(`\r\x1b\[Krlock: waiting for "a"…\r`) // does not wrap
	unlock()
	s.shows(`\r\x1b\[Kran\r\n$`)
	require.Zero(t, s.code())

	tells(t, f.Client(t), record.Holds, "b")
	s = onTerminal(t, prepare(t, f.URL(), "run", "b", "--", "echo", "ran"))
	s.shows(`waiting for "b" \(\d+s\): held by h p\[1\] for "sums", s`)
	s.types("\x03")
	require.Equal(t, exitSignal+int(syscall.SIGINT), s.code())
}
