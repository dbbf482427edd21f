package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// A command's help is asked for by --help, and no name of a lock is taken for it.
func TestLocksNamedHelp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"h", "help"} {
		require.Equal(t, result{0, "ran\n", ""}, outcome(t, f.URL(), "run", name, "--", "echo", "ran"))
		require.Equal(t, result{0, name + " is free\n", ""}, outcome(t, f.URL(), "inspect", name))
		require.Equal(t, 1, outcome(t, f.URL(), "unlock", "--force", name).code)
	}
	require.Contains(t, outcome(t, f.URL(), "help", "unlock").stdout, "--owner")
}

func TestSeparate(t *testing.T) {
	for _, tc := range []struct{ argv, args, names, command string }{
		{"run a -- c d", "a c d", "a", "c d"},
		{"run a b -n -- c -n", "a b c -n", "a b", "c -n"},
		{"run a -- c -- d", "a c -- d", "a", "c -- d"},
		{"run -- -a b -- c", "-a b -- c", "-a b", "c"},
		{"run -- -a -- c -- d", "-a -- c -- d", "-a", "c -- d"},
		{"run -- a", "a", "a", ""},
		{"run a b", "a b", "a b", ""},
		{"run a --", "a", "a", ""},
		{"run --wait -- a b", "a b c", "a b c", ""}, // which it cannot be: not what urfave/cli saw
	} {
		names, command := separate(strings.Fields(tc.args), strings.Fields(tc.argv))
		require.Equal(t, strings.Fields(tc.names), names, tc.argv)
		require.Equal(t, strings.Fields(tc.command), append([]string{}, command...), tc.argv)
	}
}

func TestRunOfSeveralNames(t *testing.T) {
	f := newFixture(t)
	p := begin(t, f.URL(), "run", "b", "a", "--", "sh", "-c", `echo "$RLOCK_NAME $RLOCK_OWNER $RLOCK_TOKEN"
		read x; "$SELF" run -n a c -- sh -c 'echo "nested $RLOCK_NAME"; read x'; echo "exit $?"`)
	said := strings.Fields(p.says("b "))
	require.Equal(t, map[string]int64{said[0]: 1}, f.state("b").Holds, "the first name")
	require.Equal(t, said[1], f.Client(t).Get(t.Context(), "redisson_lock_token:{b}").Val())
	require.Len(t, f.state("a").Holds, 1)
	p.tell("")
	require.Equal(t, "a", p.says("nested "), "the first name, although it is held already")
	require.Len(t, f.state("c").Holds, 1)
	p.tell("")
	p.says("exit 0")
	require.Zero(t, p.end().code)
	for _, name := range []string{"a", "b", "c"} {
		require.Empty(t, f.state(name).Holds)
	}

	unlock := f.hold("a")
	r := outcome(t, f.URL(), "run", "-n", "b", "a", "--", "echo", "ran")
	require.Equal(t, exitBusy, r.code)
	require.Contains(t, r.stderr, `lock "a": not acquired`)
	require.Empty(t, f.state("b").Holds, "all or none")
	p = begin(t, f.URL(), "run", "b", "a", "--", "echo", "ran")
	f.awaitWaiter("a")
	unlock()
	require.Equal(t, "ran\n", p.end().stdout)
}

func TestRunOfNamesLikeOptions(t *testing.T) {
	f := newFixture(t)
	r := outcome(t, f.URL(), "run", "--", "-a", "--", "sh", "-c", `echo $RLOCK_NAME; "$SELF" inspect -- -a`)
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `^-a\nlock +-a\n`, r.stdout)
}

func TestRunFair(t *testing.T) {
	f := newFixture(t)
	_, hold, err := f.client.NewFairLock("a").TryLock(t.Context())
	require.NoError(t, err)
	// Of two clients that wait, a fair lock is passed to the one that came first.
	first := begin(t, f.URL(), "run", "-q", "--fair", "a", "--", "sh", "-c", "echo in; read x")
	f.awaitWaiter("a")
	second := begin(t, f.URL(), "run", "-q", "--fair", "a", "--", "echo", "in")
	redistest.Eventually(t, "two wait", func() bool { return f.state("a").Waiters == 2 })
	require.NoError(t, hold.Unlock(t.Context()))
	first.says("in")
	require.Equal(t, int64(1), f.state("a").Waiters)
	first.tell("")
	require.Zero(t, first.end().code)
	require.Equal(t, "in\n", second.end().stdout)
}

// The time from TERM to KILL may be longer than the lease that a waiter has at first.
func TestRunThatHasWaitedWithALongGrace(t *testing.T) {
	f := newFixture(t)
	unlock := f.hold("a")
	p := begin(t, f.URL(), "run", "-q", "--ttl", "1h", "--kill-after", "30m", "a", "--", "sh", "-c", "sleep 2; echo done")
	f.awaitWaiter("a")
	unlock()
	require.Equal(t, "done\n", p.end().stdout)
}

func TestRunSharedAndExclusive(t *testing.T) {
	f := newFixture(t)
	reader := begin(t, f.URL(), "run", "-s", "a", "--", "sh", "-c", `echo in; read x
		"$SELF" run -n -s a -- echo nested; "$SELF" run -n -x a -- echo alone; echo "exit $?"`)
	reader.says("in")
	require.Equal(t, "beside\n", outcome(t, f.URL(), "run", "-n", "--shared", "a", "--", "echo", "beside").stdout)
	require.Equal(t, exitBusy, outcome(t, f.URL(), "run", "-n", "--exclusive", "a", "--", "true").code)
	require.Equal(t, exitNotALock, outcome(t, f.URL(), "run", "-n", "a", "--", "true").code, "of another kind")
	reader.tell("")
	reader.says("nested")
	reader.says("exit 64") // nothing would end the wait
	require.Contains(t, reader.end().stderr, "shares it")

	writer := begin(t, f.URL(), "run", "-x", "a", "--", "sh", "-c", `echo in; read x
		"$SELF" run -n -s a -- echo nested; "$SELF" run -n -x a -- echo alone`)
	writer.says("in")
	require.Equal(t, exitBusy, outcome(t, f.URL(), "run", "-n", "-s", "a", "--", "true").code)
	writer.tell("")
	require.Equal(t, "in\nnested\nalone\n", writer.end().stdout)
}

func TestPrefixFromTheEnvironment(t *testing.T) {
	f := newFixture(t)
	t.Setenv("RLOCK_URL", f.URL())
	t.Setenv("RLOCK_PREFIX", "p:")
	f.hold("p:a")
	require.Regexp(t, `^lock +a\nowner `, inProcess("inspect", "a").stdout)
	require.Regexp(t, `^lock +p:a\nowner `, inProcess("--prefix", "", "inspect", "p:a").stdout)
	require.Equal(t, []string{"a"}, completed(t, "inspect", ""))
}
