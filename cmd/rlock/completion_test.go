package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// completed returns what rlock offers for the last argument.
func completed(t *testing.T, args ...string) []string {
	t.Helper()
	r := inProcess(append(args, "--generate-shell-completion")...)
	require.Zero(t, r.code)
	require.Empty(t, r.stderr)
	var candidates []string
	for line := range strings.Lines(r.stdout) {
		candidate, _, found := strings.Cut(line, "\t")
		require.True(t, found, line)
		candidates = append(candidates, candidate)
	}
	return candidates
}

func TestCompletionOfCommandsAndOptions(t *testing.T) {
	t.Setenv("RLOCK_URL", "redis://127.0.0.1:1") // nothing listens
	require.Contains(t, completed(t, ""), "run")
	require.Contains(t, completed(t, ""), "completion")
	require.Equal(t, []string{"demo"}, completed(t, "--prefix", "p", "de"))
	require.Equal(t, []string{"--no-wait"}, completed(t, "run", "--no"))
	require.Equal(t, []string{"--url"}, completed(t, "unlock", "a", "--u"), "an option of the root")
	require.Contains(t, completed(t, "--"), "--sentinel")
	require.Equal(t, []string{"bash", "zsh", "fish"}, completed(t, "completion", ""))
	require.Equal(t, []string{"zsh"}, completed(t, "completion", "z"))
	require.Empty(t, completed(t, "completion"))
	require.Empty(t, completed(t, "completion", "bash", ""))
	require.Empty(t, completed(t, "run", "--wait", "1"), "the value of an option")
	require.Equal(t, topOrders(), completed(t, "top", "--sort", ""))
	require.Equal(t, []string{"held", "holder"}, slices.Sorted(slices.Values(completed(t, "top", "--sort", "h"))))
	require.Equal(t, []string{"lock", "name", "group"}, completed(t, "top", "--by", ""))
	require.Empty(t, completed(t, "unlock", "a", "--owner", ""), "no server: nothing, and no error")
	require.Contains(t, completed(t, "run", "a", "--"), "--wait")
	require.Empty(t, completed(t, "inspect", ""), "no server: nothing, and no error")
	require.Empty(t, completed(t, "--sentinel", "x:1", "inspect", ""), "wrong usage: no error")
}

func TestCompletionOfNames(t *testing.T) {
	f := newFixture(t)
	t.Setenv("RLOCK_URL", f.URL())
	for _, name := range []string{"deploy:web", "deploy:d b", "p:x", "*", "-x", "tab\tbed", "deploy*"} {
		f.hold(name)
	}
	require.NoError(t, f.Client(t).HSet(t.Context(), "deploy:user", "name", "no lock").Err())
	for _, command := range []string{"inspect", "unlock", "run"} {
		require.ElementsMatch(t, []string{"deploy:web", "deploy:d b"}, completed(t, command, "deploy:"))
	}
	require.Equal(t, []string{"deploy*"}, completed(t, "inspect", "deploy*"), "no pattern")
	require.ElementsMatch(t, []string{"deploy:web", "deploy:d b", "p:x", "*", "deploy*"}, completed(t, "inspect", ""))
	require.Equal(t, []string{"x"}, completed(t, "--prefix", "p:", "inspect", ""))
	require.Equal(t, []string{"p:x"}, completed(t, "inspect", "deploy:web", "p:"), "several names")
	owner := f.state("deploy:web").Owner()
	require.Equal(t, []string{owner}, completed(t, "unlock", "deploy:web", "--owner", ""))
	require.Equal(t, []string{owner}, completed(t, "unlock", "deploy:web", "--owner", owner[:5]))
	require.Empty(t, completed(t, "unlock", "deploy:web", "--owner", "x"))
	require.Empty(t, completed(t, "unlock", "free", "--owner", ""))
	require.Empty(t, completed(t, "unlock", "deploy:web", "--owner="), "the value of an option")
	require.Empty(t, completed(t, "run", "deploy:web", "-w", "1"), "the value of an option")
	require.Equal(t, []string{"p:x"}, completed(t, "run", "deploy:web", "p:"), "several names")

	pipe := f.Client(t).Pipeline()
	for i := range 2 * completionMost {
		pipe.HSet(t.Context(), "many"+strconv.Itoa(i), "c:1", 1)
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	require.Len(t, completed(t, "inspect", "many"), completionMost)
}

// A server that takes the connection and says nothing is given up, whatever the
// time-outs of the client are.
func TestCompletionDoesNotWait(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	url := fmt.Sprintf("redis://%s?read_timeout=1h&dial_timeout=1h", l.Addr())
	cmd := prepare(t, url, "inspect", "", "--generate-shell-completion")
	cmd.Env = append(cmd.Env, hasty+"=1")
	require.Equal(t, result{}, launch(t, cmd).end())
}

// Each script says what it offers for a command line, whose names have what the
// shells treat as separators.
func TestCompletionScripts(t *testing.T) {
	f := newFixture(t)
	f.hold("deploy:web")
	f.hold("a b")
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(dir, "rlock")))
	for _, tc := range []struct {
		shell, begin, ask string
		name, space       string // what is inserted
	}{
		{
			"bash", "source completion/rlock.bash",
			`COMP_LINE=$LINE; COMP_POINT=${#COMP_LINE}; COMP_CWORD=0; _rlock; printf '%s\n' "${COMPREPLY[@]}"`,
			"web", `a\ b`, // bash has "deploy:" already
		},
		{
			"zsh", "compdef() { }; source completion/rlock.zsh; _describe() { print -rl -- ${(P)2} }; _files() { }; _normal() { }",
			`words=("${(@s: :)LINE}"); CURRENT=$#words; _rlock`,
			`deploy\:web:held`, "a b:held",
		},
		{
			"fish", "source completion/rlock.fish",
			"complete -C $LINE",
			"deploy:web\theld", "a b\theld",
		},
	} {
		t.Run(tc.shell, func(t *testing.T) {
			if _, err := exec.LookPath(tc.shell); errors.Is(err, exec.ErrNotFound) {
				t.Skip("there is no " + tc.shell)
			}
			ask := func(line string) []string {
				cmd := exec.Command(tc.shell, "-c", tc.begin+"\n"+tc.ask)
				cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, "LINE=" + line, asProgram + "=1", "RLOCK_URL=" + f.URL(), "GORACE=atexit_sleep_ms=0"}
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", out)
				return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
			}
			require.Equal(t, []string{tc.name}, ask("rlock run deploy:w"))
			require.ElementsMatch(t, []string{tc.space}, ask("rlock --prefix '' inspect a"))
			require.Len(t, ask("rlock unlock x --own"), 1)
			ask("rlock inspect $(touch " + dir + "/evaluated) ")
			require.NoFileExists(t, dir+"/evaluated")
			if tc.shell == "bash" { // without bash-completion
				begun := exec.Command("bash", "-c", tc.begin+`
					COMP_WORDS=(rlock run a -- rloc); COMP_CWORD=4; _rlock; printf '%s\n' "${COMPREPLY[@]}"`)
				begun.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
				out, err := begun.CombinedOutput()
				require.NoError(t, err, "%s", out)
				require.Equal(t, "rlock\n", string(out), "a command")
			} else {
				require.Empty(t, ask("rlock run a -- rlock inspect no"))
			}
		})
	}
}

func TestCompletionCommand(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := os.ReadFile("completion/rlock." + shell)
		require.NoError(t, err)
		require.Equal(t, result{stdout: string(script)}, inProcess("completion", shell))
	}
	require.Contains(t, inProcess("--help").stdout, "   completion  print a script")
}
