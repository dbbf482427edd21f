package verify

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSoak takes as long as RLOCK_SOAK says.
func TestSoak(t *testing.T) {
	text := os.Getenv("RLOCK_SOAK")
	if text == "" {
		t.Skip("runs as long as one likes: make soak D=10m")
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	soak(t, d)
}
