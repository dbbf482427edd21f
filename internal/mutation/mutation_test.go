package mutation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mutation is a deliberate mistake, and the check that must notice it.
type mutation struct {
	name     string
	dir      string // of a package
	in       string // a declaration of it, such as grant.finish, or a script, such as queue.lua
	from, to string // from is there exactly once; in Go, however it is wrapped
	pkg      string // of the check
	check    string // a test, or a subtest of it
	limit    time.Duration
}

const root = "../.."

// inScript tells that the mistake is in Lua.
func (m mutation) inScript() bool { return filepath.Ext(m.in) == ".lua" }

// mutated returns the file with the mistake in it.
func (m mutation) mutated(t *testing.T) (path string, text []byte) {
	t.Helper()
	if m.inScript() {
		path = filepath.Join(root, m.dir, m.in)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, 1, bytes.Count(text, []byte(m.from)), "%s: %q must be there once", path, m.from)
		return path, bytes.Replace(text, []byte(m.from), []byte(m.to), 1)
	}
	packages, err := sources()
	require.NoError(t, err)
	path, text, err = packages[m.dir].edit(m.in, m.from, m.to)
	require.NoError(t, err, m.dir)
	return path, text
}

// top is the test that check is, or is in.
func (m mutation) top() string {
	name, _, _ := strings.Cut(m.check, "/")
	return name
}

// pattern is check as go test -run wants it.
func (m mutation) pattern() string {
	return "^" + strings.ReplaceAll(m.check, "/", "$/^") + "$"
}

// gotest runs tests of a package from the repository's root.
func gotest(pkg, pattern string, limit time.Duration, args ...string) (output string, err error) {
	args = append([]string{"test", "-count=1", "-timeout", limit.String(), "-run", pattern}, args...)
	cmd := exec.Command("go", append(args, "./"+pkg)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "RAPID_NOFAILFILE=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// overlay writes the mutated file, and what makes go see it in place of its own.
func (m mutation) overlay(t *testing.T) string {
	dir := t.TempDir()
	path, text := m.mutated(t)
	theirs, err := filepath.Abs(path)
	require.NoError(t, err)
	mine := filepath.Join(dir, filepath.Base(path))
	require.NoError(t, os.WriteFile(mine, text, 0o600))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{theirs: mine}})
	require.NoError(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))
	return overlay
}

// Every mistake can be made, and has its check.
func TestMutationsExist(t *testing.T) {
	require.GreaterOrEqual(t, len(mutations), 12)
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			m.mutated(t)
			files, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
			require.NoError(t, err)
			require.True(t, slices.ContainsFunc(files, func(path string) bool {
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				return bytes.Contains(text, []byte("func "+m.top()+"(t *testing.T)"))
			}), "%s has no %s", m.pkg, m.top())
		})
	}
}

// TestMutations makes every mistake. None may survive.
func TestMutations(t *testing.T) {
	if os.Getenv("RLOCK_MUTATE") == "" {
		t.Skip("compiles the library once for each mistake: make mutate")
	}
	var table bytes.Buffer
	made := 0
	var mu sync.Mutex // guards made, and what is written to the table
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "mistake\tfound by\tafter")
	start := time.Now()
	t.Run("all", func(t *testing.T) {
		var chosen []mutation // by -run
		fine := false
		for _, m := range mutations {
			t.Run(m.name, func(t *testing.T) {
				chosen = append(chosen, m)
				t.Parallel() // waits until all are chosen, and found innocent
				if !fine {
					t.Skip("a check finds something without any mistake")
				}
				overlay := m.overlay(t)
				start := time.Now()
				output, err := gotest(m.pkg, m.pattern(), m.limit, "-overlay", overlay)
				caught := err != nil && !strings.Contains(output, "[build failed]") && !strings.Contains(output, "[setup failed]")
				verdict := fmt.Sprintf("%s %s", m.pkg, m.check)
				if !caught {
					verdict = "NOBODY, not even " + verdict
					t.Errorf("it survived: %v\n%s", err, output)
				}
				mu.Lock()
				defer mu.Unlock()
				made++
				took := time.Since(start).Round(100 * time.Millisecond)
				fmt.Printf("%3d of %d  %s: %s, %v\n", made, len(chosen), m.name, verdict, took) // a run may be cut
				fmt.Fprintf(w, "%s\t%s\t%v\n", m.name, verdict, took)
			})
		}
		innocent(t, chosen)
		fine = true
	})
	_ = w.Flush()
	fmt.Printf("%s%d mistakes, %v\n", table.String(), made, time.Since(start).Round(time.Second))
	require.NotZero(t, made, "-run names none: TestMutations/all/NAME does, with _ for each space")
}

// innocent makes sure that the checks find nothing where there is nothing.
func innocent(t *testing.T, chosen []mutation) {
	checks := make(map[string][]string)
	for _, m := range chosen {
		if !slices.Contains(checks[m.pkg], m.top()) {
			checks[m.pkg] = append(checks[m.pkg], m.top())
		}
	}
	for pkg, names := range checks {
		output, err := gotest(pkg, "^("+strings.Join(names, "|")+")$", 5*time.Minute)
		require.NoError(t, err, "without any mistake:\n%s", output)
	}
}
