package rlock_test

import (
	"os"
	"os/exec"
	"path/filepath"
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
