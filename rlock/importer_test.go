package rlock_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImporter makes a program that imports the library, and lists the modules that
// it needs for that: what is there for tests, benchmarks and the command is not
// downloaded.
func TestImporter(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module example.com/importer\n\ngo 1.26.0\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n")
	write("main.go", "package main\n\nimport _ \""+module+"/rlock\"\n\nfunc main() {}\n")
	sums, err := os.ReadFile("../go.sum")
	require.NoError(t, err)
	write("go.sum", string(sums))
	run := func(args ...string) []string {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, stderr.String())
		return strings.Fields(string(out))
	}
	modules := make(map[string]bool)
	for _, name := range run("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".") {
		modules[name] = true
	}
	require.Equal(t, map[string]bool{
		"example.com/importer":         true,
		module:                         true,
		"github.com/redis/go-redis/v9": true,
		"github.com/rs/xid":            true,
		"github.com/cespare/xxhash/v2": true, // go-redis'
		"go.uber.org/atomic":           true, // go-redis'
		"golang.org/x/sys":             true, // go-redis'
	}, modules)
	// What go mod graph has for it: what the library requires of others for tests and
	// commands is named there, and not what those require in turn.
	graph := make(map[string][]string)
	edges := run("mod", "graph")
	for i := 0; i < len(edges); i += 2 {
		from, _, _ := strings.Cut(edges[i], "@")
		to, _, _ := strings.Cut(edges[i+1], "@")
		graph[from] = append(graph[from], to)
	}
	require.ElementsMatch(t, []string{
		"go", module, "github.com/redis/go-redis/v9", "github.com/rs/xid",
		"github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys",
	}, graph["example.com/importer"])
	require.ElementsMatch(t, []string{
		"go", "github.com/redis/go-redis/v9", "github.com/rs/xid",
		"github.com/cespare/xxhash/v2", "go.uber.org/atomic", "golang.org/x/sys", // go-redis'
		"github.com/urfave/cli/v3",                                          // the command
		"github.com/mattn/go-runewidth", "github.com/clipperhouse/uax29/v2", // likewise
		"github.com/HdrHistogram/hdrhistogram-go",                        // bench
		"github.com/alicebob/miniredis/v2", "github.com/yuin/gopher-lua", // rlocktest and the demo
		"github.com/stretchr/testify", "go.yaml.in/yaml/v3", "go.uber.org/goleak", "github.com/anishathalye/porcupine", "pgregory.net/rapid", // tests
	}, graph[module])
	require.Subset(t, []string{"example.com/importer", module, "github.com/redis/go-redis/v9", "go.uber.org/atomic", "golang.org/x/sys", "go"}, slices.Collect(maps.Keys(graph)))

	// What the go command writes down for such a program.
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	for line := range strings.Lines(string(mod)) {
		if name, indirect := strings.CutSuffix(strings.TrimSpace(line), " // indirect"); indirect {
			name, _, _ = strings.Cut(strings.TrimPrefix(name, "require "), " ")
			require.Contains(t, modules, name)
		}
	}
}
