package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// orphans loses two processes and looks until each is reaped, then has rlock told
// to end.
const orphans = `trap 'echo TERM; exit 9' TERM
gone() { while [ -e /proc/$1 ]; do sleep 0.02; done; }
gone $( (sh -c 'echo $$' &) ); echo reaped of the group
gone $( (setsid sh -c 'echo $$' &) ); echo reaped of another session
kill -TERM 1
while :; do sleep 0.02; done`

func TestRunAsProcess1(t *testing.T) {
	unshare := []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no process namespace of its own: %v: %s", err, out)
	}
	f := newFixture(t)
	cmd := prepare(t, f.URL(), "run", "a", "--", "sh", "-c", orphans)
	path, err := exec.LookPath(unshare[0])
	require.NoError(t, err)
	cmd.Path, cmd.Args = path, append(unshare, cmd.Args...)
	p := launch(t, cmd)
	p.says("reaped of the group")
	p.says("reaped of another session")
	p.says("TERM")
	require.Equal(t, 9, p.end().code)
	require.Empty(t, f.state("a").Holds)
}
