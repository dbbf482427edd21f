package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// Five hosts at the same time, and again later: one of them runs the command.
func TestRunOncePer(t *testing.T) {
	f := newFixture(t)
	for range 2 {
		var all []*program
		for range 5 {
			all = append(all, begin(t, f.URL(), "run", "--once-per", "8760h", "a", "--", "echo", "ran"))
		}
		ran := 0
		for _, p := range all {
			r := p.end()
			require.Zero(t, r.code, r.stderr)
			switch r.stdout {
			case "ran\n":
				ran++
				require.Empty(t, r.stderr)
			default:
				require.Contains(t, r.stderr, "a was begun elsewhere for this 8760h0m0s")
			}
		}
		require.Equal(t, 1, ran)
		require.Equal(t, result{0, "", ""}, outcome(t, f.URL(), "run", "-q", "--once-per", "8760h", "a", "--", "echo", "ran"))
		require.NoError(t, f.Client(t).Del(t.Context(), "rlock_companion:{a}").Err()) // as in the next year
	}
	require.Empty(t, f.state("a").Holds)
}

// The lock is that of a run without --once-per. A claim is not given back.
func TestRunOncePerWhileSomebodyElseHolds(t *testing.T) {
	f := newFixture(t)
	release := f.hold("a")
	require.Equal(t, exitBusy, outcome(t, f.URL(), "run", "-n", "--once-per", "8760h", "a", "--", "echo", "ran").code)
	release()
	require.Equal(t, result{0, "", ""}, outcome(t, f.URL(), "run", "-q", "--once-per", "8760h", "a", "--", "echo", "ran"))
	require.Equal(t, result{3, "", ""}, outcome(t, f.URL(), "run", "a", "--", "sh", "-c", "exit 3"))
}

func TestRunOncePerErrors(t *testing.T) {
	f := newFixture(t)
	require.NoError(t, f.Client(t).Set(t.Context(), "rlock_companion:{taken}", "x", 0).Err())
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--once-per", "9ms", "a"}, exitUsage, "at least 10ms"},
		{[]string{"--once-per", "0", "a"}, exitUsage, "at least 10ms"},
		{[]string{"--once-per", "soon", "a"}, exitUsage, "once-per"},
		{[]string{"--once-per", "-1h", "a"}, exitUsage, "once-per"},
		{[]string{"--once-per", "1h", "a", "b"}, exitUsage, "one NAME"},
		{[]string{"--once-per", "1h", "taken"}, exitNotALock, "rlock_companion:{taken}"},
	} {
		r := outcome(t, f.URL(), append(append([]string{"run"}, c.args...), "--", "echo", "ran")...)
		require.Equal(t, c.code, r.code, r.stderr)
		require.Contains(t, r.stderr, c.text)
		require.Empty(t, r.stdout)
	}
	srv := redistest.Start(t)
	srv.Kill()
	start := time.Now()
	r := outcome(t, srv.URL(), "run", "--once-per", "1h", "a", "--", "echo", "ran")
	require.Equal(t, exitUnavailable, r.code)
	require.Less(t, time.Since(start), 20*time.Second)
	require.False(t, strings.Contains(r.stdout, "ran"))
}
