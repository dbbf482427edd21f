//go:build unix

package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// leads is a command that prints its term, and runs until it is told to end.
const leads = `trap 'echo TERM; exit 9' TERM; echo leads $RLOCK_TOKEN; while :; do sleep 0.02; done`

func TestLead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := begin(t, f.URL(), "lead", "--value", "one", "a", "--", "sh", "-c", leads)
	term := first.says("leads ")
	r := outcome(t, f.URL(), "leader", "a")
	require.Zero(t, r.code)
	require.Regexp(t, `^leader +one\nterm +`+term+`\nowner +[0-9a-v]{20}:[0-9]+\n$`, r.stdout)

	// Another host follows when the command ends by itself.
	second := begin(t, f.URL(), "lead", "--value", "two", "a", "--", "sh", "-c", leads)
	f.awaitWaiter("a")
	first.signal(syscall.SIGTERM)
	require.Equal(t, 9, first.end().code)
	require.Greater(t, second.says("leads "), term)
	require.Regexp(t, "^leader +two\n", outcome(t, f.URL(), "leader", "a").stdout)
	second.signal(syscall.SIGTERM)
	require.Equal(t, 9, second.end().code)
	require.Equal(t, result{exitFailure, "nobody leads a\n", ""}, outcome(t, f.URL(), "leader", "a"))
}

// A command whose lock is lost is ended, and runs again in the next term of this host.
func TestLeadAgainAfterALoss(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := begin(t, f.URL(), "lead", "--ttl", "3s", "-k", "1s", "a", "--", "sh", "-c",
		`echo held $RLOCK_HELD; echo proof $RLOCK_PROOF; echo owner $RLOCK_OWNER; `+leads)
	var held, owners, terms []string
	for range 3 {
		held = append(held, p.says("held "))
		require.NotContains(t, p.says("proof "), " ", "one proof, that of the term")
		owners = append(owners, p.says("owner "))
		terms = append(terms, p.says("leads "))
		require.Contains(t, f.state("a").Holds, owners[len(owners)-1])
		require.NotContains(t, held[len(held)-1], " ")
		require.NoError(t, f.Client(t).Del(t.Context(), "a").Err())
		p.says("TERM")
	}
	require.IsIncreasing(t, terms)
	p.says("leads ")
	p.signal(syscall.SIGTERM)
	r := p.end()
	require.Equal(t, 9, r.code)
	require.Equal(t, 3, strings.Count(r.stderr, `rlock: stopping the command: lock "a": lease lost: `), r.stderr)
	require.Empty(t, f.state("a").Holds)
}

// Who tells rlock to end while the lock is lost does not want another term, whether the signal comes before the loss,
// or while the command is ended.
func TestLeadTerminatedBesideALoss(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const drains = `trap 'echo TERM' TERM; trap 'echo INT' INT; echo leads; while :; do sleep 0.02; done`
	lead := func(name string) *program {
		p := begin(t, f.URL(), "lead", "--ttl", "3s", "-k", "1s", name, "--", "sh", "-c", drains)
		p.says("leads")
		return p
	}
	lose := func(name string) { require.NoError(t, f.Client(t).Del(t.Context(), name).Err()) }

	p := lead("a")
	p.signal(syscall.SIGINT)
	p.says("INT")
	lose("a")
	r := p.end()
	require.Equal(t, 128+int(syscall.SIGINT), r.code)
	require.Contains(t, r.stderr, "rlock: stopping the command: ")
	require.Equal(t, 1, strings.Count(r.stdout, "leads"), "another term: %s", r.stdout)

	p = lead("b")
	lose("b")
	p.says("TERM") // because of the loss
	p.signal(syscall.SIGTERM)
	require.Equal(t, 128+int(syscall.SIGTERM), p.end().code)
}

// Signals of job control that were for a command do not end the wait for the next term.
func TestLeadWaitsOnAfterSignalsOfJobControl(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := begin(t, f.URL(), "lead", "--ttl", "3s", "-k", "1s", "a", "--", "sh", "-c", leads)
	p.says("leads ")
	require.NoError(t, f.Client(t).Del(t.Context(), "a").Err())
	unlock := f.hold("a")
	p.says("TERM")
	f.awaitWaiter("a")
	p.signal(syscall.SIGWINCH)
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTSTP)
	redistest.Eventually(t, "rlock is stopped, as during the first wait", func() bool { return condition(strconv.Itoa(p.cmd.Process.Pid)) == "T" })
	p.signal(syscall.SIGCONT)
	unlock()
	p.says("leads ")
	p.signal(syscall.SIGTERM)
	require.Equal(t, 9, p.end().code)
}

// What the command has started is dead before another host leads, and a new command begins as the first did: it
// does not inherit that a signal is ignored.
func TestLeadEndsAllOfTheCommand(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := begin(t, f.URL(), "lead", "--ttl", "3s", "-k", "100ms", "a", "--", "sh", "-c", `grep SigIgn /proc/self/status; `+stubborn)
	ignored := p.says("SigIgn:")
	pid := p.says("ready ")
	end := f.leaseEnd("a", "DEL", "a")
	requireDeadBefore(t, end, death(t, pid))
	require.Equal(t, ignored, p.says("SigIgn:"))
	require.NotEqual(t, pid, p.says("ready "))
	require.NoError(t, p.cmd.Process.Kill())
}

func TestLeadWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	unlock := f.hold("a")
	p := begin(t, f.URL(), "lead", "a", "--", "sh", "-c", leads)
	f.awaitWaiter("a")
	p.signal(syscall.SIGINT)
	require.Equal(t, exitSignal+int(syscall.SIGINT), p.end().code)

	p = begin(t, f.URL(), "lead", "-q", "--takeover-delay", "100ms", "a", "--", "sh", "-c", "echo $RLOCK_NAME; exit 3")
	f.awaitWaiter("a")
	unlock()
	require.Equal(t, result{3, "a\n", ""}, p.end())

	require.Equal(t, exitNotFound, outcome(t, f.URL(), "lead", "a", "--", "no-such-command").code)
	require.NoError(t, f.Client(t).Set(t.Context(), "text", "x", 0).Err())
	require.Equal(t, exitNotALock, outcome(t, f.URL(), "lead", "text", "--", "true").code)
	require.Equal(t, exitUnavailable, outcome(t, strings.Replace(f.URL(), "redis://", "redis://nobody:wrong@", 1), "lead", "a", "--", "true").code)
	for _, args := range [][]string{
		{"lead", "a"},
		{"lead", "a", "b", "--", "true"},
		{"lead", "--takeover-delay", "x", "a", "--", "true"},
		{"lead", "--takeover-delay", "-1s", "a", "--", "true"},
		{"lead", "--value", strings.Repeat("x", 64<<10+1), "a", "--", "true"},
		{"leader"},
		{"leader", "a", "b"},
		{"leader", ""},
	} {
		r := outcome(t, f.URL(), args...)
		require.Equal(t, exitUsage, r.code, "%q: %s", args, r.stderr)
	}
}

// Under a command that leads, "rlock run" of the same name is nested, and "rlock lead" would wait for itself.
func TestLeadNested(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := outcome(t, f.URL(), "lead", "a", "--", "sh", "-c", `"$SELF" run a -- echo nested; "$SELF" lead a -- echo ran; echo $?`)
	require.Equal(t, "nested\n64\n", r.stdout)
	require.Contains(t, r.stderr, "the two would wait for each other")
}

// While Redis is away, nothing ends but the command.
func TestLeadWithoutRedis(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "a lease runs out, and Redis is away for as long as rlock run waits")
	f := newFixture(t)
	p := begin(t, f.URL(), "lead", "--ttl", "2s", "a", "--", "sh", "-c", leads)
	before := p.says("leads ")
	f.Stop()
	p.says("TERM")
	time.Sleep(6 * time.Second)
	f.Cont()
	require.Greater(t, p.says("leads "), before)
	p.signal(syscall.SIGTERM)
	require.Equal(t, 9, p.end().code)
}

// Who asks does not wait for as long as a lease.
func TestLeaderOfAnUnreachableServer(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "waits for 5 s")
	began := time.Now()
	require.Equal(t, exitUnavailable, outcome(t, "redis://127.0.0.1:1", "leader", "a").code)
	require.Less(t, time.Since(began), rlock.DefaultLeaseTime/2)
}

func TestLeaderWatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	watch := begin(t, f.URL(), "leader", "--watch", "--json", "a")
	next := func() (v leaderView) {
		require.NoError(t, json.Unmarshal([]byte("{"+watch.says("{")), &v))
		require.NotNil(t, v.At)
		require.Equal(t, "a", v.Name)
		return v
	}
	require.Zero(t, next().Term)
	client, err := rlock.New(f.Client(t), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close(t.Context())) }()
	held, term, err := election.New(client, "a", "go\x1b[31m\xff").Campaign(t.Context())
	require.NoError(t, err)
	v := next()
	require.Equal(t, term.Number(), v.Term)
	require.Equal(t, `"go\x1b[31m\xff"`, v.ValueQuoted)
	require.Contains(t, outcome(t, f.URL(), "leader", "a").stdout, `"go\x1b[31m\xff"`, "nothing that a terminal obeys")
	require.NoError(t, term.Proclaim(held, "another"))
	require.Equal(t, "another", next().Value)
	text := launch(t, wrap(prepare(t, f.URL()), `trap '' HUP; exec "$SELF" leader --watch a`)) // as under nohup
	redistest.Eventually(t, "the first line", func() bool {
		line, _ := text.lines.ReadString('\n')
		return strings.Contains(line, "  another\n")
	})
	text.signal(syscall.SIGHUP)
	require.NoError(t, term.Resign(held))
	require.Zero(t, next().Term)
	line, _ := text.lines.ReadString('\n')
	require.Regexp(t, `^\d\d:\d\d:\d\d\.\d{3}  nobody\n$`, line)
	for _, p := range []*program{watch, text} {
		p.signal(syscall.SIGINT)
		require.Zero(t, p.end().code)
	}
}
