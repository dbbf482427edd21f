//go:build unix

// Package hold_test runs the examples of rlock hold in other languages.
package hold_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// Each program takes the lock, prints its token, looks whether it still has it, and releases it. Then it
// takes it again, prints "holds", and works until the lock is lost. In the end it prints "works", and works under the lock "c"
// until rlock is killed.
var programs = map[string]struct{ interpreter, text string }{
	"hold.py": {"python3", `
import sys, time
sys.path.insert(0, sys.argv[1])
from hold import hold, Lost
import subprocess
with hold("a", options=["--ttl", "1s"]) as lock:
    lock.check()
    print("token", lock.token, flush=True)
    try:
        with hold("a", options=["-n"]):
            print("two have it")
    except subprocess.CalledProcessError as e:
        print("refused", e.returncode, flush=True)
try:
    with hold("a", "b", options=["--ttl", "1s"]) as lock:
        print("holds", flush=True)
        while True:
            lock.check()
            time.sleep(0.01)
except Lost as e:
    print("lost", flush=True)
try:
    with hold("c") as lock:
        print("works", flush=True)
        while True:
            lock.check()
            time.sleep(0.01)
except Lost as e:
    print("killed", flush=True)
`},
	"hold.mjs": {"node", `
import { pathToFileURL } from 'node:url'
const { hold } = await import(pathToFileURL(process.argv[2] + '/hold.mjs'))
await hold(['a'], async ({ token, signal }) => {
	signal.throwIfAborted()
	console.log('token', token)
	await hold(['a'], () => console.log('two have it'), ['-n']).catch((e) => console.log('refused', e.message.split(' ').pop()))
}, ['--ttl', '1s'])
await hold(['a', 'b'], ({ signal }) => {
	console.log('holds')
	return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
}, ['--ttl', '1s']).catch(() => console.log('lost'))
const alive = setInterval(() => {}, 1000) // or node would end while it waits for the loss
await hold(['c'], ({ signal }) => {
	console.log('works')
	return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
})
	.catch(() => console.log('killed'))
clearInterval(alive)
`},
	"hold.sh": {"bash", `
set -u
. "$1/hold.sh"
hold --ttl 1s a || exit
held || exit
echo token "$TOKEN"
(rlock hold -n --until-signal a; echo refused $?)
release || exit
hold --ttl 1s a b || exit
echo holds
while held; do sleep 0.01; done
release
[ $? = 79 ] && echo lost
hold c || exit
echo works
while held; do sleep 0.01; done
release
[ $? = 137 ] && echo killed
`},
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "the command is built")
	bin := t.TempDir()
	build := exec.Command("go", "build", "-o", bin+"/real", "github.com/go-rlock/rlock/cmd/rlock")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	// The command writes down which process it is, so that the test can kill it.
	require.NoError(t, os.WriteFile(bin+"/rlock", []byte("#!/bin/sh\necho $$ >\"$PID_FILE\"\nexec '"+bin+"/real' \"$@\"\n"), 0o700))
	here, err := filepath.Abs(".")
	require.NoError(t, err)
	for file, program := range programs {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			interpreter, err := exec.LookPath(program.interpreter)
			if err != nil {
				t.Skip(program.interpreter + " is not there")
			}
			srv := redistest.Start(t)
			rdb := srv.Client(t)
			script := filepath.Join(t.TempDir(), "program"+filepath.Ext(file))
			require.NoError(t, os.WriteFile(script, []byte(program.text), 0o600))
			cmd := exec.CommandContext(t.Context(), interpreter, script, here)
			pidFile := script + ".pid"
			cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "RLOCK_URL="+srv.URL(), "PID_FILE="+pidFile)
			said, err := os.Create(filepath.Join(t.TempDir(), "said"))
			require.NoError(t, err)
			defer func() { require.NoError(t, said.Close()) }()
			lines := func() string {
				text, err := os.ReadFile(said.Name())
				require.NoError(t, err)
				return string(text)
			}
			cmd.Stdout, cmd.Stderr = said, said
			require.NoError(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			redistest.Eventually(t, "both locks are held", func() bool { return held(rdb) })
			require.NoError(t, rdb.Del(t.Context(), "b").Err()) // the next renewal notices
			redistest.Eventually(t, "the program works under the last lock", func() bool { return strings.Contains(lines(), "\nworks\n") })
			text, err := os.ReadFile(pidFile)
			require.NoError(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			select {
			case err := <-ended:
				require.NoError(t, err, "%s", lines())
			case <-time.After(time.Minute):
				_ = cmd.Process.Kill()
				<-ended
				require.Fail(t, "the program goes on", "%s", lines())
			}
			require.Regexp(t, `token [1-9][0-9]+\n`, lines())
			require.Contains(t, lines(), "refused 75\n")
			require.Contains(t, lines(), "holds\n")
			require.True(t, strings.Contains(lines(), "\nlost\n"), lines())
			require.Contains(t, lines(), "\nkilled\n")
			require.NotContains(t, lines(), "two have it")
			redistest.Eventually(t, "nothing is held", func() bool { return rdb.Exists(context.Background(), "a", "b").Val() == 0 })
		})
	}
}

func held(rdb *redis.Client) bool { return rdb.Exists(context.Background(), "a", "b").Val() == 2 }
