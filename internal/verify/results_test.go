package verify

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// A few rows of results; RLOCK_VERIFY runs all of them.
func TestVerifyResults(t *testing.T) {
	redistest.Long(t, "histories under faults")
	var rows []fault
	for _, f := range matrix() {
		if f.lock == results && (os.Getenv("RLOCK_VERIFY") != "" || f.name == "once: any reply lost" || f.name == "once: DEL" || f.name == "once: process killed while it holds") {
			rows = append(rows, f)
		}
	}
	total := verify(t, rows, size{rounds: 1, further: 1, histories: 10, clients: 6, steps: 4, fault: 1000 * ms})
	require.True(t, total.clean())
	require.Positive(t, total.grants)
}
