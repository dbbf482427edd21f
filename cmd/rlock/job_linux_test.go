package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/go-rlock/rlock/internal/redistest"
)

// survivors returns the processes that have a word in their environment.
func survivors(t *testing.T, word string) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, dir := range dirs {
		environment, _ := os.ReadFile(dir + "/environ") // it may have ended
		if pid := filepath.Base(dir); bytes.Contains(environment, []byte(word+"\x00")) && alive(t, pid) {
			n, err := strconv.Atoi(pid)
			require.NoError(t, err)
			pids = append(pids, n)
		}
	}
	return pids
}

// job starts rlock with a command whose processes can be found again.
func (f *fixture) job(t *testing.T, name, killAfter, script string, env ...string) (p *program, left func() []int) {
	t.Helper()
	word := fmt.Sprintf("JOB=%d %s", os.Getpid(), t.Name())
	t.Cleanup(func() {
		for _, pid := range survivors(t, word) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	cmd := prepare(t, f.URL(), "run", "--ttl", "1m", "-k", killAfter, name, "--", "sh", "-c", script)
	cmd.Env = append(append(cmd.Env, word), env...)
	return launch(t, cmd), func() []int { return survivors(t, word) }
}

// exits returns the status of rlock, although others may have its output.
func (p *program) exits() int {
	p.t.Helper()
	state, err := p.cmd.Process.Wait()
	require.NoError(p.t, err)
	return state.ExitCode()
}

// Nothing of a job runs when rlock has ended, in whatever way it has left the command's group.
func TestNothingOfAJobOutlivesRlock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, way := range []struct{ name, script string }{
		{"a group of its own", `timeout 600 sh -c "$WORK"`},
		{"a session of its own", `setsid sh -c "$WORK"`},
		{"a daemon", `(setsid sh -c '(sh -c "$WORK" &)' &)`},
		{"nohup", `nohup setsid sh -c "$WORK"`},
		{"a pipeline", `setsid sh -c "$WORK" | cat`},
		{"a shell with job control", `bash -mc 'sh -c "$WORK" & sh -c "$WORK" | cat & wait'`},
		{"no environment", `setsid env -i PATH="$PATH" JOB="$JOB" sh -c "$WORK"`},
		{"deaf to TERM", `setsid sh -c "trap '' TERM; $WORK"`},
		{"stopped", `setsid sh -c 'echo ready; kill -STOP $$; sleep 600'`},
		{"forks on", `setsid sh -c 'trap "" TERM; echo ready; while :; do setsid sh -c "$WORK" >/dev/null & sleep 0.2; done'`},
		{"forks and ends, again and again", `echo ready; CHAIN='trap "" TERM; sh -c "$CHAIN" &' setsid sh -c 'sh -c "$CHAIN"'`},
	} {
		for _, end := range []struct {
			name string
			end  func(p *program, lock string)
			code int
		}{
			{"lost", func(_ *program, lock string) { require.NoError(t, f.Client(t).Del(t.Context(), lock).Err()) }, exitLost},
			{"TERM", func(p *program, _ string) { p.signal(syscall.SIGTERM) }, exitSignal + int(syscall.SIGTERM)},
			{"ends", func(p *program, _ string) { p.tell("") }, 4},
		} {
			t.Run(way.name+", "+end.name, func(t *testing.T) {
				if strings.HasPrefix(way.name, "forks") {
					redistest.Long(t, "it takes processors and processes from all tests beside it")
				}
				t.Parallel()
				p, left := f.job(t, t.Name(), "500ms", way.script+" & read x; exit 4", "WORK=echo ready; while :; do sleep 0.05; done")
				p.says("ready")
				end.end(p, t.Name())
				require.Equal(t, end.code, p.exits())
				require.Empty(t, left())
				require.Empty(t, f.state(t.Name()).Holds)
			})
		}
	}
}

// What has left the group may clean up: the lock is held until it has.
func TestWhatHasLeftTheGroupIsTold(t *testing.T) {
	f := newFixture(t)
	// timeout passes the signal on that its group gets as well: the second may come while the trap runs.
	const work = `trap 'trap "" TERM; sleep 0.3; "$SELF" inspect a | sed -n "s/^/told: /p;q"; exit' TERM; echo ready; while :; do sleep 0.02; done`
	p, left := f.job(t, "a", "20s", `setsid sh -c "$WORK" & read x; exit 4`, "WORK="+work)
	p.says("ready")
	p.tell("")
	require.NotContains(t, p.says("told:"), "free")
	require.Equal(t, 4, p.exits())
	require.Empty(t, left())

	// The shell runs its trap when what it waits for has ended.
	p, left = f.job(t, "a", "20s", `trap 'echo trapped; exit 9' TERM; timeout 600 sh -c "$WORK"`, "WORK="+work)
	p.says("ready")
	p.signal(syscall.SIGTERM)
	for seen := ""; !strings.Contains(seen, "told:") || !strings.Contains(seen, "trapped"); { // in any order
		seen += p.says("")
	}
	require.Equal(t, 9, p.exits())
	require.Empty(t, left())
}

// Children of the program that has become rlock are none of its job.
func TestStrangersGoOn(t *testing.T) {
	f := newFixture(t)
	cmd := wrap(prepare(t, f.URL()), `sleep 600 >/dev/null 2>&1 & echo stranger $!
		exec "$SELF" run -k 500ms a -- sh -c 'setsid sh -c "trap \"\" TERM; echo ready \$\$; sleep 600" & read x; exit 4'`)
	p := launch(t, cmd)
	stranger := p.says("stranger ")
	defer func() {
		n, err := strconv.Atoi(stranger)
		require.NoError(t, err)
		_ = syscall.Kill(n, syscall.SIGKILL)
	}()
	pid := p.says("ready ")
	p.tell("")
	require.Equal(t, 4, p.exits())
	require.False(t, alive(t, pid))
	require.True(t, alive(t, stranger))
	require.Empty(t, f.state("a").Holds)
}

// Process 1 inherits whatever loses its parent in the container.
func TestProcess1TellsWhatHasLeftTheGroup(t *testing.T) {
	f := newFixture(t)
	p := launch(t, asProcess1(t, prepare(t, f.URL(), "run", "a", "--", "sh", "-c",
		`(setsid sh -c 'trap "echo told; exit" TERM; echo ready; while :; do sleep 0.02; done' &); read x; exit 4`)))
	p.says("ready")
	p.tell("")
	p.says("told")
	require.Equal(t, 4, p.exits())
	require.Empty(t, f.state("a").Holds)
}

// A shell on a terminal gives each of its jobs a group, and the terminal. When the lock is lost,
// all of them end, and the terminal is that of the shell around rlock again.
func TestShellOnATerminalLosesTheLock(t *testing.T) {
	f := newFixture(t)
	s := onTerminal(t, shell(t, f.URL(), `
		"$SELF" run --ttl 10s -k 500ms a -- bash --norc -i
		echo "status $?"; read x; echo "shell got $x"`))
	s.shows(`[#$] `)
	s.types("sh -c 'trap \"\" TERM HUP INT; echo in the background $$.; exec sleep 600' &\n")
	s.shows(`in the background \d+\.`)
	s.types("sh -c 'trap \"\" TERM HUP INT; echo in front $$.; exec sleep 600'\n")
	s.shows(`in front \d+\.`)
	require.NoError(t, f.Client(t).Del(t.Context(), "a").Err())
	s.shows("status 79")
	for _, pid := range regexp.MustCompile(`in (?:front|the background) (\d+)\.`).FindAllStringSubmatch(s.text(), -1) {
		require.False(t, alive(t, pid[1]))
	}
	s.types("hello\n")
	s.shows("shell got hello")
	require.Zero(t, s.code())
}

// While rlock is stopped nobody renews, and so nothing of the job may run.
func TestSuspendStopsWhatHasLeftTheGroup(t *testing.T) {
	f := newFixture(t)
	s := onTerminal(t, shell(t, f.URL(), `
		"$SELF" run a -- sh -c 'setsid sh -c "echo away \$\$.; exec sleep 1000" & echo ready; read x; exit 3'
		echo "status $?"; read x; echo "shell got $x"; fg; exit $?`))
	s.shows("ready")
	s.shows(`away \d+\.`)
	pid := regexp.MustCompile(`away (\d+)`).FindStringSubmatch(s.text())[1]
	s.types("\x1a")
	s.shows("status 147")
	redistest.Eventually(t, "what has left the group stands as well", func() bool { return stands(t, pid) })
	s.types("one\n")
	s.shows("shell got one")
	redistest.Eventually(t, "it goes on", func() bool { return !stands(t, pid) })
	s.types("two\n")
	require.Equal(t, 3, s.code())
	require.False(t, alive(t, pid))
}

// The dead are not killed again, and again: with many of them, a look would take longer than their
// successors take to fork.
func TestTheDeadAreNotOfTheJob(t *testing.T) {
	child := exec.Command("true")
	require.NoError(t, child.Start())
	pid := child.Process.Pid
	require.NoError(t, unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil))
	dead := look(pid)
	require.True(t, dead.dead)
	require.Equal(t, os.Getpid(), dead.parent)
	require.NotContains(t, descendants(nil), process{pid, dead.start})
	require.NoError(t, child.Wait())
}
