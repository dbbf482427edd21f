package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
)

// trap is a command that prints "ready", then "TERM" and exits with 9 when told
// to end.
const trap = `trap 'echo TERM; exit 9' TERM; echo ready; while :; do sleep 0.02; done`

// stubborn is one that ignores to be told.
const stubborn = `trap "" TERM; echo ready $$; while :; do sleep 0.5; done`

func TestRunExitsAsItsCommand(t *testing.T) {
	f := newFixture(t)
	for _, tc := range []struct {
		script string
		code   int
	}{
		{"exit 0", 0},
		{"exit 7", 7},
		{"kill -KILL $$", exitSignal + int(syscall.SIGKILL)},
		{"exec /no/such/command", exitNotFound},
	} {
		r := outcome(t, f.URL(), "run", "a", "--", "sh", "-c", tc.script)
		require.Equal(t, tc.code, r.code, tc.script)
	}
	require.Empty(t, f.state("a").Holds)
}

func TestRunReleasesIfTheCommandDoesNotStart(t *testing.T) {
	f := newFixture(t)
	script := t.TempDir() + "/script"
	require.NoError(t, os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o700))
	r := outcome(t, f.URL(), "run", "a", "--", script)
	require.Equal(t, exitNotFound, r.code)
	require.Contains(t, r.stderr, "the interpreter that its first line names was not found")
	require.NoError(t, os.WriteFile(script, []byte("\x7fELF\x02\x01\x01\x00?\n"), 0o700))
	r = outcome(t, f.URL(), "run", "a", "--", script)
	require.Equal(t, exitCannotRun, r.code)
	require.Contains(t, r.stderr, "it is no program for this machine")
	require.Empty(t, f.state("a").Holds)
}

// A script that names no interpreter is one for the shell, whoever executes it.
func TestRunOfAScriptWithoutAnInterpreter(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	script := dir + "/script"
	require.NoError(t, os.WriteFile(script, []byte("echo \"$0 $1,$2 $RLOCK_NAME\"; exit $3\n\x00"), 0o700))
	require.Equal(t, result{3, script + " x y,z a\n", ""}, outcome(t, f.URL(), "run", "a", "--", script, "x y", "z", "3"))
	r := outcome(t, f.URL(), "run", "a", "--", "sh", "-c", `"$SELF" run a -- "$0" x y 4`, script)
	require.Equal(t, result{4, script + " x,y a\n", ""}, r, "nested")

	require.NoError(t, os.Rename(script, dir+"/-e"))
	cmd := prepare(t, f.URL(), "run", "a", "--", "-e", "x", "y", "5")
	cmd.Dir, cmd.Env = dir, append(cmd.Env, "PATH=.")
	require.Equal(t, result{5, "./-e x,y a\n", ""}, launch(t, cmd).end(), "it is no option of the shell")
}

func TestRunFindsOutBeforeLockingThatThereIsNoCommand(t *testing.T) {
	srv := redistest.Start(t)
	require.Equal(t, exitNotFound, outcome(t, srv.URL(), "run", "a", "--", "no-such-command").code)
	r := outcome(t, srv.URL(), "run", "a", "--", "")
	require.Equal(t, exitNotFound, r.code)
	require.Contains(t, r.stderr, `"": not found`)
	for line, hint := range map[string]string{
		"echo hi":    `rlock: echo hi: not found (for a line of the shell: -- sh -c 'echo hi')`,
		"a\nb":       `-- sh -c '…')`,
		"echo 'a' b": `-- sh -c 'echo '\''a'\'' b')`,
	} {
		r := outcome(t, srv.URL(), "run", "a", "--", line)
		require.Equal(t, exitNotFound, r.code)
		require.Contains(t, r.stderr, hint)
		require.NotContains(t, outcome(t, srv.URL(), "run", "a", "--", line, "x").stderr, "sh -c")
	}
	require.Zero(t, srv.CommandCalls(t)["evalsha"]+srv.CommandCalls(t)["hello"])
}

func TestRunWhileSomebodyElseHolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.hold("a")
	for _, tc := range []struct {
		args []string
		code int
	}{
		{[]string{"-n"}, exitBusy},
		{[]string{"--no-wait", "--conflict-exit-code", "5"}, 5},
		{[]string{"-w", "0s"}, exitBusy},
		// Long enough for an answer, also where the machine stalls.
		{[]string{"-w", "5s"}, exitBusy},
		{[]string{"-w", "4.5"}, exitBusy}, // seconds
		{[]string{"--wait", "5000ms", "-E", "0"}, 0},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			t.Parallel()
			args := append(append([]string{"run"}, tc.args...), "a", "--", "echo", "ran")
			r := outcome(t, f.URL(), args...)
			require.Equal(t, tc.code, r.code)
			require.Contains(t, r.stderr, `rlock: lock "a": not acquired: held by `)
			require.Empty(t, r.stdout)

			r = outcome(t, f.URL(), append([]string{"run", "-q"}, args[1:]...)...)
			require.Equal(t, result{code: tc.code}, r)
		})
	}
}

func TestRunWaits(t *testing.T) {
	f := newFixture(t)
	unlock := f.hold("p:a")
	p := begin(t, f.URL(), "--prefix", "p:", "run", "a", "--", "echo", "ran")
	f.awaitWaiter("p:a")
	unlock()
	r := p.end()
	require.Equal(t, "ran\n", r.stdout)
	require.Zero(t, r.code)
	require.Regexp(t, `^rlock: waiting for lock "a": held by \S+:1, with \S+s of the lease left\n$`, r.stderr)
}

// Refused or waiting, one is told the same about the holder: who it is, and what for.
func TestRunTellsWhoHolds(t *testing.T) {
	f := newFixture(t)
	const holder = `held by h p\[1\] for "sums", since \d\d:\d\d:\d\d \(c:1\)`
	tells(t, f.Client(t), record.Holds, "b")
	r := outcome(t, f.URL(), "run", "-n", "b", "--", "true")
	require.Regexp(t, `^rlock: lock "b": not acquired: `+holder+`\n$`, r.stderr)
	p := launch(t, wrap(prepare(t, f.URL()), `exec "$SELF" run b -- true 2>&1`))
	require.Regexp(t, "^"+holder+"$", p.says(`rlock: waiting for lock "b": `))
}

// Who asks who holds the lock need not wait until the hold is a long one.
func TestRunTellsAtOnceWhatItHolds(t *testing.T) {
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "--ttl", "1h", "--purpose", "sums", "a", "--", "sh", "-c", "echo ready; read x")
	p.says("ready")
	var told *clientRecord
	redistest.Eventually(t, "it is told", func() bool {
		records, err := (&server{rdb: f.Client(t)}).records(t.Context())
		require.NoError(t, err)
		for _, told = range records {
		}
		return told != nil
	})
	require.Equal(t, "sums", told.Entries[0].Purpose)
	require.Less(t, told.Written.Sub(told.Entries[0].Since), 10*time.Second, "a hold is a long one then")
	require.Contains(t, outcome(t, f.URL(), "ls").stdout, `: "sums", held for `)
	p.tell("")
	require.Zero(t, p.end().code)
}

func TestRunWaitsForRedisson(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rdb := f.Client(t)
	require.NoError(t, rdb.HSet(t.Context(), "a", "8743c9c0-0795-4907-87fd-6c719a6b4586:61", 2).Err())
	require.NoError(t, rdb.PExpire(t.Context(), "a", time.Minute).Err())
	require.Equal(t, exitBusy, outcome(t, f.URL(), "run", "-n", "a", "--", "true").code)
	require.NoError(t, rdb.PExpire(t.Context(), "a", time.Second).Err())
	require.Equal(t, "ran\n", outcome(t, f.URL(), "run", "-w", "10s", "a", "--", "echo", "ran").stdout)
}

func TestRunLeavesOtherKeysAlone(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.Client(t).Set(t.Context(), "a", "text", 0).Err())
	r := outcome(t, f.URL(), "run", "a", "--", "echo", "ran")
	require.Equal(t, exitNotALock, r.code)
	require.Contains(t, r.stderr, "string")
	require.Equal(t, "text", f.Client(t).Get(t.Context(), "a").Val())
}

func TestRunInterruptedWhileItWaits(t *testing.T) {
	f := newFixture(t)
	unlock := f.hold("a")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		p := begin(t, f.URL(), "run", "-q", "a", "--", "echo", "ran")
		f.awaitWaiter("a")
		p.signal(sig)
		require.Equal(t, result{code: exitSignal + int(sig)}, p.end())
		redistest.Eventually(t, "nobody waits", func() bool { return f.state("a").Waiters == 0 })
	}
	unlock()
	require.Empty(t, f.state("a").Holds)
}

func TestRunForwardsSignals(t *testing.T) {
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "a", "--", "sh", "-c", trap)
	p.says("ready")
	p.signal(syscall.SIGTERM)
	p.says("TERM")
	require.Equal(t, 9, p.end().code)
	require.Empty(t, f.state("a").Holds)

	p = begin(t, f.URL(), "run", "a", "--", "sh", "-c", `trap 'echo USR1' USR1; echo ready; while :; do sleep 0.02; done`)
	p.says("ready")
	p.signal(syscall.SIGUSR1)
	p.says("USR1")
	p.signal(syscall.SIGINT)
	require.Equal(t, exitSignal+int(syscall.SIGINT), p.end().code)
}

func TestRunKeepsWhatNohupIgnores(t *testing.T) {
	f := newFixture(t)
	cmd := prepare(t, f.URL())
	p := launch(t, wrap(cmd, `trap '' HUP; exec "$SELF" run a -- sh -c 'echo ready; read x; echo read'`))
	p.says("ready")
	p.signal(syscall.SIGHUP)
	p.tell("go on")
	r := p.end()
	require.Contains(t, r.stdout, "read\n")
	require.Zero(t, r.code)

	unlock := f.hold("a")
	p = launch(t, wrap(prepare(t, f.URL()), `trap '' HUP; exec "$SELF" run -q a -- echo ran`))
	f.awaitWaiter("a")
	p.signal(syscall.SIGHUP)
	time.Sleep(100 * time.Millisecond) // it would have ended
	unlock()
	require.Equal(t, result{stdout: "ran\n"}, p.end())
}

func TestRunTellsItsCommandWhatItHolds(t *testing.T) {
	f := newFixture(t)
	p := begin(t, f.URL(), "--prefix", "p:", "run", "a", "--", "sh", "-c",
		`echo "$RLOCK_NAME $RLOCK_OWNER $RLOCK_TOKEN $RLOCK_URL"; read x`)
	said := strings.Fields(p.says(""))
	state := f.state("p:a")
	p.tell("")
	require.Zero(t, p.end().code)
	require.Len(t, said, 4)
	require.Equal(t, "a", said[0])
	require.Equal(t, map[string]int64{said[1]: 1}, state.Holds)
	require.Equal(t, said[2], f.Client(t).Get(t.Context(), "redisson_lock_token:{p:a}").Val())
	require.Equal(t, f.URL(), said[3])
}

func TestRunRenews(t *testing.T) {
	redistest.Long(t, "13 s of renewals")
	t.Parallel()
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "--ttl", "6s", "a", "--", "sh", "-c", "echo ready; sleep 13; echo done")
	p.says("ready")
	owner := f.state("a").Owner()
	require.NotEmpty(t, owner)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.says("done")
	}()
	for over := false; !over; {
		state := f.state("a")
		select {
		case <-done: // what was read before may be after it
			over = true
		case <-time.After(20 * time.Millisecond):
			require.Equal(t, owner, state.Owner())
			require.LessOrEqual(t, state.TTL, 6*time.Second)
		}
	}
	require.Zero(t, p.end().code)
}

func TestRunWithoutRedis(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := l.Addr().String()
	require.NoError(t, l.Close())
	silent := redistest.Start(t)
	silent.Stop()
	guarded := redistest.Start(t, "--requirepass", "right")

	for _, tc := range []struct {
		name, url string
		args      []string
		within    time.Duration
	}{
		{"refused, no wait", "redis://:s3cret@" + closed, []string{"-n"}, 10 * time.Second},
		{"refused, short wait", "redis://:s3cret@" + closed, []string{"-w", "1s"}, 10 * time.Second},
		{"refused, waits a lease", "redis://:s3cret@" + closed, []string{"--ttl", "1s"}, 15 * time.Second},
		{"silent, no wait", "redis://:s3cret@" + silent.Addr(), []string{"-n"}, 15 * time.Second},
		{"wrong password", "redis://:s3cret@" + guarded.Addr(), nil, 10 * time.Second},
		{"no password", guarded.URL(), nil, 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			r := begin(t, tc.url, append(append([]string{"run"}, tc.args...), "a", "--", "echo", "ran")...).end() // once
			require.Equal(t, exitUnavailable, r.code, r.stderr)
			require.Less(t, time.Since(began), tc.within)
			require.Empty(t, r.stdout)
			require.NotContains(t, r.stderr, "s3cret")
			last := strings.TrimPrefix(r.stderr, "rlock: no lock from "+closed+"/0 yet: dial tcp "+closed+": connect: connection refused\n")
			require.Equal(t, tc.name == "refused, waits a lease", last != r.stderr, "said why there is no lock: %s", r.stderr)
			require.Equal(t, 1, strings.Count(last, "\n"), r.stderr)
		})
	}
	r := outcome(t, "redis://:right@"+guarded.Addr(), "run", "a", "--", "echo", "ran")
	require.Equal(t, "ran\n", r.stdout)
}

func TestReleasedOnlyWhenTheWholeGroupIsGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "a", "--", "sh", "-c", `(trap 'sleep 0.3; echo cleaned up; exit' TERM; echo rest; while :; do sleep 0.02; done) & read x; exit 4`)
	p.says("rest")
	p.tell("")
	p.says("cleaned up")
	require.Equal(t, 4, p.end().code)
	require.Empty(t, f.state("a").Holds)

	p = begin(t, f.URL(), "run", "-k", "200ms", "a", "--", "sh", "-c", `sh -c '`+stubborn+`' & read x; exit 5`)
	pid := p.says("ready ")
	p.tell("")
	require.Equal(t, 5, p.end().code)
	require.False(t, alive(t, pid))
	require.Empty(t, f.state("a").Holds)
}

// A TERM that was passed on is not repeated when the leader has ended of it: what cleans up would take the second for
// a request to end at once.
func TestTermIsPassedOnOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "--ttl", "1m", "-k", "20s", "a", "--", "sh", "-c", `
		trap 'sleep 0.2; exit 4' TERM
		(trap 'echo TERM' TERM; echo rest; for i in $(seq 40); do sleep 0.02; done; echo cleaned up) &
		while :; do sleep 0.02; done`)
	p.says("rest")
	p.signal(syscall.SIGTERM)
	p.says("cleaned up")
	r := p.end()
	require.Equal(t, 4, r.code)
	require.Equal(t, 1, strings.Count(r.stdout, "TERM"), r.stdout)
}

// Whoever is told to end while it gives the lock back has to do that first: nobody else
// could have the lock for a lease.
func TestRunSignalledWhileItReleases(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	proxy := netfault.New(t, f.Addr())
	p := begin(t, "redis://"+proxy.Addr(), "run", "--ttl", "1h", "a", "--", "sh", "-c", "echo $RLOCK_OWNER; read x; exit 3")
	release := proxy.Hold(netfault.Arg(p.says("")))
	p.tell("")
	require.NoError(t, release.Wait(t.Context()))
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		p.signal(sig)
	}
	require.NoError(t, release.Deliver(t.Context()))
	require.Equal(t, 3, p.end().code, "it is the command's")
	require.Empty(t, f.state("a").Holds)
}

// A command that is stopped ends as well when rlock is told to.
func TestRunSignalledWhileItsCommandIsStopped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		p := begin(t, f.URL(), "run", "a", "--", "sh", "-c", "echo ready $$; kill -STOP $$; echo resumed")
		pid := p.says("ready ")
		redistest.Eventually(t, "the command is stopped", func() bool { return condition(pid) == "T" })
		p.signal(sig)
		require.Equal(t, 128+int(sig), p.end().code)
		require.Empty(t, f.state("a").Holds)
	}
}

func TestTheCommandDiesWithRlock(t *testing.T) {
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "a", "--", "sh", "-c", stubborn)
	pid := p.says("ready ")
	require.True(t, alive(t, pid))
	p.signal(syscall.SIGKILL)
	redistest.Eventually(t, "the command is dead", func() bool { return !alive(t, pid) })
	n, err := strconv.Atoi(pid)
	require.NoError(t, err)
	_ = syscall.Kill(-n, syscall.SIGKILL) // the sleep it ran
	_, err = f.client.NewLock("a").ForceUnlock(context.Background())
	require.NoError(t, err)
}

// The option by which the scripts for the shells ask is one of the command behind a "--".
func TestCommandMayHaveTheOptionOfCompletion(t *testing.T) {
	f := newFixture(t)
	require.Equal(t, result{stdout: "--generate-shell-completion\n"}, outcome(t, f.URL(), "run", "a", "--", "echo", "--generate-shell-completion"))
}

func TestReaderOfMessagesIsGone(t *testing.T) {
	f := newFixture(t)
	run := func(args ...string) (int, string) {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, r.Close())
		cmd := prepare(t, f.URL(), append([]string{"run", "-n"}, args...)...) // not -w, as a busy machine takes its time
		cmd.Stderr = w
		out, err := cmd.Output()
		require.NoError(t, w.Close())
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			require.NoError(t, err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	f.hold("held")
	code, _ := run("held", "--", "true")
	require.Equal(t, exitBusy, code)
	code, ignored := run("a", "--", "sed", "-n", "s/^SigIgn:\t//p", "/proc/self/status")
	require.Zero(t, code)
	mask, err := strconv.ParseUint(strings.TrimSpace(ignored), 16, 64)
	require.NoError(t, err)
	require.Zero(t, mask>>(syscall.SIGPIPE-1)&1, "the command does not ignore it")
}
