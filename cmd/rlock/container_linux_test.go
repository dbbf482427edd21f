package main

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// orphans loses two processes and looks until each is reaped, then has rlock told
// to end.
const orphans = `trap 'echo TERM; exit 9' TERM
gone() { while [ -e /proc/$1 ]; do sleep 0.02; done; }
gone $( (sh -c 'echo $$' &) ); echo reaped of the group
gone $( (setsid sh -c 'echo $$' &) ); echo reaped of another session
kill -TERM 1
while :; do sleep 0.02; done`

// asProcess1 has rlock run as process 1 of a namespace.
func asProcess1(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	unshare := []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no process namespace of its own: %v: %s", err, out)
	}
	path, err := exec.LookPath(unshare[0])
	require.NoError(t, err)
	cmd.Path, cmd.Args = path, append(unshare, cmd.Args...)
	return cmd
}

func TestRunAsProcess1(t *testing.T) {
	f := newFixture(t)
	p := launch(t, asProcess1(t, prepare(t, f.URL(), "run", "a", "--", "sh", "-c", orphans)))
	p.says("reaped of the group")
	p.says("reaped of another session")
	p.says("TERM")
	require.Equal(t, 9, p.end().code)
	require.Empty(t, f.state("a").Holds)
}

// What is left of a group is dead for whoever waits for it, also below a process that reaps nobody
// but its own children, as process 1 of many containers does: here it is the test.
func TestRunReapsWhatItsCommandLeaves(t *testing.T) {
	require.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	defer func() { require.NoError(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)) }()
	f := newFixture(t)
	began := time.Now()
	r := outcome(t, f.URL(), "run", "--ttl", "5m", "a", "--", "sh", "-c", "sleep 1000 & exit 5")
	require.Equal(t, 5, r.code)
	require.Less(t, time.Since(began), 20*time.Second, "KILL would come after 24 s")
}
