// Package examples_test runs the programs as a visitor does.
package examples_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// Each program ends well, with a Redis in memory and with a real one. What it shows is tested beside it, in fake time.
func TestPrograms(t *testing.T) {
	redistest.Long(t, "builds five programs")
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "./peruser", "./leader", "./job", "./queue", "./try").CombinedOutput()
	require.NoError(t, err, string(out))
	url := "redis://" + redistest.Start(t).Addr()
	for _, name := range []string{"peruser", "leader", "job", "queue", "try"} {
		for _, args := range [][]string{nil, {"-url", url}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				out, err := exec.CommandContext(t.Context(), filepath.Join(dir, name), args...).CombinedOutput()
				require.NoError(t, err, string(out))
				t.Logf("%s %q\n%s", name, args, out)
			})
		}
	}
}
