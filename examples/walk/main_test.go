package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// The way of a free Lock begins where the caller is, sends a script, and has the lease renewed.
func TestWalk(t *testing.T) {
	redistest.Long(t, "builds the library with coverage")
	var out strings.Builder
	require.NoError(t, walk(t.Context(), &out, "free", false))
	require.True(t, strings.HasPrefix(out.String(), "rlock.(*Lock).Lock  rlock/"), out.String())
	require.Contains(t, out.String(), " lua.(*script).command  lua/script.go:")
	require.Contains(t, out.String(), " watchdog.(*Scheduler).Add  watchdog/")
}

func TestUnknownCall(t *testing.T) {
	require.ErrorContains(t, walk(t.Context(), nil, "gone", false), "free, unlock and contended")
}
