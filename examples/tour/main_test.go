//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// What a visitor sees: each fault of a holder lets another worker in, and who was only stopped or cut off notices.
func TestTour(t *testing.T) {
	redistest.Long(t, "builds the tour, and takes it in real time: six seconds each")
	program := filepath.Join(t.TempDir(), "tour")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Stderr = os.Stderr
	require.NoError(t, build.Run())
	for name, args := range map[string][]string{"in memory": nil, "with a URL": {"-url", "redis://" + redistest.Start(t).Addr()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
			require.NoError(t, err, string(out))
			works := regexp.MustCompile(`(worker-.) has the lock, and works`).FindAllSubmatch(out, -1)
			require.GreaterOrEqual(t, len(works), 4, string(out))
			for i := range works[1:] {
				require.NotEqual(t, string(works[i][1]), string(works[i+1][1]), string(out))
			}
			for _, fault := range []string{"stopped, as", "cut off"} {
				victim := regexp.MustCompile(`(worker-.) is ` + fault).FindSubmatch(out)
				require.NotNil(t, victim, string(out))
				require.Contains(t, string(out), string(victim[1])+" has lost the lock, and has stopped its work")
			}
		})
	}
}
