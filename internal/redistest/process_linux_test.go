package redistest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProcessDiesWithItsParent(t *testing.T) {
	c := Spawn(t, "parent")
	c.Expect("started", limit)
	c.Kill()
	// The pipe ends when nobody is left to write to it.
	require.NoError(t, c.pipe.SetReadDeadline(time.Now().Add(limit)))
	_, err := io.Copy(io.Discard, c.stdout)
	require.NoError(t, err)
}

func TestProcessSurvivesTheThreadThatWantedIt(t *testing.T) {
	type result struct {
		p      *process
		err    error
		thread int
	}
	started := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		p, err := startProcess(exec.Command("sleep", "1000"))
		started <- result{p, err, syscall.Gettid()}
	}()
	r := <-started
	require.NoError(t, r.err)
	defer r.p.kill()
	if r.thread != os.Getpid() { // the main thread never ends
		Eventually(t, "the thread has ended", func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", r.thread))
			return os.IsNotExist(err)
		})
	}
	require.NoError(t, r.p.stop(), "stopping a killed process fails")
}

func TestProcessStop(t *testing.T) {
	p, err := startProcess(exec.Command("sleep", "1000"))
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, p.stop())
		require.NoError(t, p.stop(), "twice")
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
		require.NoError(t, err)
		require.Contains(t, string(stat), "(sleep) T ")
		require.NoError(t, p.cont())
	}
	require.NoError(t, p.stop())
	p.kill()
	p.kill()
	require.ErrorIs(t, p.stop(), os.ErrProcessDone)
}
