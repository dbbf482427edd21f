//go:build unix

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// On a real PostgreSQL: nothing is sold twice, a lost lock rolls back, and a late write changes no row.
func TestShow(t *testing.T) {
	var out strings.Builder
	err := start(t.Context(), &out, "", "")
	if errors.Is(err, errNoPostgres) {
		t.Skip(err)
	}
	require.NoError(t, err, out.String())
	t.Log("\n" + out.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 3)
	for i, left := range []string{"80 are left.", "80 are left.", "79 are left."} {
		require.True(t, strings.HasSuffix(lines[i], left), out.String())
	}
}
