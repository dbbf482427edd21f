package main

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v3"
)

// inProcess runs a command that needs neither a server nor processes.
func inProcess(args ...string) result {
	var stdout, stderr bytes.Buffer
	code := execute(append([]string{"rlock"}, args...), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

func TestUsageErrorsAreOneLine(t *testing.T) {
	for _, tc := range []struct{ args, says string }{
		{"", "no command given (see rlock --help)"},
		{"lock", `there is no command "lock"`},
		{"rnu a", `there is no command "rnu", did you mean run? (see rlock --help)`},
		{"inspekt a", "did you mean inspect?"},
		{"run --no-wiat a -- true", "flag provided but not defined: -no-wiat, did you mean --no-wait? (see rlock run --help)"},
		{"ls --prefx p", "did you mean --prefix?"},
		{"run --frobnicate a -- true", "-frobnicate (see"},
		{"frobnicate", `"frobnicate" (see`},
		{"run a -c true", `there is no option -c: a line of the shell is a command behind "--": rlock run NAME -- sh -c '…'`},
		{"run -nw1s a -- true", "exclude each other"},
		{"run -qE256 a -- true", "not a number from 0 to 255"},
		{"run -w5x a -- true", `"5x" is not a duration`},
		{"run -qa a -- true", "-qa"},
		{"help lock", "'lock' (see rlock --help)"},
		{"--frob ls", "-frob"},
		{"run", "want NAME -- COMMAND (see rlock run --help)"},
		{"run a", "want NAME -- COMMAND"},
		{"run a true", `want "--"`},
		{"run -- x", "want NAME -- COMMAND"},
		{"run a --", "want NAME -- COMMAND"},
		{"run --fair -x a -- true", "--fair and --exclusive exclude each other"},
		{"run --frob a -- true", "-frob"},
		{"run -w", "-w"},
		{"run -w 5x a -- true", `--wait: "5x" is not a duration such as`},
		{"run -w -1s a -- true", "--wait"},
		{"run -n -w 1s a -- true", "exclude each other"},
		{"run --ttl 1s --lease 1s a -- true", "exclude each other"},
		{"run --ttl 0s a -- true", "too short"},
		{"run --ttl 10s -k 6s a -- true", "--kill-after 6s is more than half of the lease of 10s"},
		{"run -E 256 a -- true", "not a number from 0 to 255"},
		{"run -E x a -- true", "not a number from 0 to 255"},
		{"run a} -- true", "slot"},
		{"--url ftp://x run a -- true", "--url: not a Redis URL"},
		{"inspect", "expected a NAME"},
		{"unlock --owner x:1 a b", "expected one NAME"},
		{"ls a b", "quote it"},
		{"unlock a", "use either --owner ID or --force"},
		{"unlock --owner x --force a", "use either --owner ID or --force"},
		{"demo x", "takes no arguments"},
		{"version x", "takes no arguments"},
		{"completion", "expected one of bash, zsh, fish (see rlock completion --help)"},
		{"completion tcsh", "expected one of bash, zsh, fish"},
		{"completion bash x", "takes no arguments"},
		{"completion bash --frob", "-frob"},
		{"--url redis://x demo", "takes no arguments"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			r := inProcess(strings.Fields(tc.args)...)
			require.Equal(t, exitUsage, r.code, r.stderr)
			require.Contains(t, r.stderr, tc.says)
			require.True(t, strings.HasPrefix(r.stderr, "rlock: "), r.stderr)
			require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
			require.Empty(t, r.stdout)
		})
	}
}

func TestCommandsThatCannotRunAreFoundOutFirst(t *testing.T) {
	t.Setenv("RLOCK_URL", "redis://127.0.0.1:1") // nothing listens: 69 if it were asked
	for _, tc := range []struct {
		command string
		code    int
	}{
		{"no-such-command", exitNotFound},
		{"/no/such/command", exitNotFound},
		{"/etc/passwd", exitCannotRun},
		{"/etc", exitCannotRun},
	} {
		r := inProcess("run", "a", "--", tc.command)
		require.Equal(t, tc.code, r.code, r.stderr)
		require.Contains(t, r.stderr, tc.command+": ")
	}
}

func TestHelp(t *testing.T) {
	for _, cmd := range append(newApp(nil).Commands, newApp(nil)) {
		args := []string{cmd.Name, "--help"}
		if cmd.Name == "rlock" {
			args = args[1:]
		}
		r := inProcess(args...)
		require.Equal(t, 0, r.code, cmd.Name)
		require.Empty(t, r.stderr)
		require.NotContains(t, r.stdout, "%!")
		require.True(t, strings.HasSuffix(r.stdout, "\n"), r.stdout)
		for _, flag := range cmd.Flags {
			require.Contains(t, r.stdout, "--"+flag.Names()[0], cmd.Name)
		}
		connects := !slices.Contains([]string{"demo", "man", "version"}, cmd.Name)
		for _, flag := range serverFlags() { // only where they do something
			require.Equal(t, connects, strings.Contains(r.stdout, "--"+flag.Names()[0]), "%s %s", cmd.Name, flag)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "bash"}} {
		require.NotContains(t, inProcess(append(args, "--help")...).stdout, "--url", args)
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		r := inProcess(arg)
		require.Zero(t, r.code)
		require.Regexp(t, `^rlock version \S+ .*go1\.`, r.stdout)
	}
}

func TestURLErrorsRepeatNothing(t *testing.T) {
	for _, url := range []string{
		"redis://:s3cret@h:port",
		"redis://:s3cret#@h",
		"redis://:s3cret/@h",
		"redis://u:s3cret%@h",
		"s3cret://h",
		"s3cret",
		"redis://h/s3cret",
		"redis://u:1?s3cret=1@h",
		"redis://u:1?addr=x&s3cret=1@h",
		"redis://u:s3cret@h?x=1",
		"redis://u:s3cret@h:port?x=1",
		"redis://u:s3cret@h/x",
		"redis://u:s3cret^@h",
		"unix://:s3cret@",
	} {
		for _, name := range []string{"RLOCK_URL", "REDIS_URL"} {
			t.Setenv("RLOCK_URL", "")
			t.Setenv(name, url)
			r := inProcess("inspect", "a")
			require.Equal(t, exitUsage, r.code, url)
			require.Contains(t, r.stderr, "$"+name)
			require.NotContains(t, r.stderr, "s3cret")
		}
		r := inProcess("--url", url, "run", "--help")
		require.NotContains(t, r.stdout+r.stderr, "s3cret")
	}
}

func TestURLErrorsSayWhatIsWrong(t *testing.T) {
	for url, wrong := range map[string]string{
		"localhost:6379":           "the scheme is missing: redis://HOST:PORT",
		"127.0.0.1:17401":          "the scheme is missing: redis://HOST:PORT",
		"http://h":                 "its scheme is none of redis, rediss, unix",
		"redis://h:x":              "expected HOST or HOST:PORT, with a number as port",
		"redis://h:6379?timeout=5": "unexpected option: timeout",
		"redis://h?addr=i:1&x=1":   "unexpected option: x",
		"redis://h?pool_size=x":    "invalid pool_size number",
		"redis://h/x":              "its path is the number of a database: redis://HOST/0",
		"unix://":                  "the path of the socket is missing: unix:///SOCKET",
		"redis://u:a#b@h":          "# as %23",
		"redis://u:a%b@h":          "% as %25",
	} {
		r := inProcess("--url", url, "inspect", "a")
		require.Equal(t, exitUsage, r.code, url)
		require.Contains(t, r.stderr, "--url: not a Redis URL: ", url)
		require.Contains(t, r.stderr, wrong, url)
	}
}

func TestURLPrecedence(t *testing.T) {
	name := func(args ...string) (name string) {
		app := newApp(nil)
		app.Commands = []*cli.Command{{Name: "probe", Action: probe(&name)}}
		require.NoError(t, app.Run(t.Context(), append([]string{"rlock"}, args...)))
		return name
	}
	t.Setenv("RLOCK_URL", "")
	t.Setenv("REDIS_URL", "")
	require.Equal(t, "127.0.0.1:6379/0", name("probe"))
	t.Setenv("REDIS_URL", "redis://u:p@c/3")
	require.Equal(t, "c:6379/3", name("probe"))
	t.Setenv("RLOCK_URL", "rediss://b:1")
	require.Equal(t, "b:1/0", name("probe"))
	require.Equal(t, "/run/redis.sock/0", name("--url", "unix:///run/redis.sock", "probe"))
	require.Equal(t, "a:1/0", name("probe", "--url", "redis://:p@a:1?addr=a:2"))
}

func probe(name *string) cli.ActionFunc {
	return func(_ context.Context, cmd *cli.Command) error {
		s, err := connect(cmd)
		if err != nil {
			return err
		}
		defer s.close()
		*name = s.name
		return nil
	}
}

// What could not be printed is no success, whoever prints it.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full")
	}
	defer func() { require.NoError(t, full.Close()) }()
	const doctor = "--url redis://127.0.0.1:1 doctor" // whose 1 is of warnings
	for _, args := range []string{"version", "--version", "--help", "run --help", "help", "completion bash", "bench --list", doctor} {
		var stderr bytes.Buffer
		code := execute(append([]string{"rlock"}, strings.Fields(args)...), full, &stderr)
		if args == doctor {
			require.Equal(t, exitBroken, code)
		} else {
			require.Equal(t, exitFailure, code, args)
		}
		require.Equal(t, "rlock: write /dev/full: no space left on device\n", stderr.String(), args)
	}
}
