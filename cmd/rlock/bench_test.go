package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/bench"
	"github.com/go-rlock/rlock/internal/redistest"
)

func TestBench(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	dir := t.TempDir()
	file, picture, summary := filepath.Join(dir, "json"), filepath.Join(dir, "svg"), filepath.Join(dir, "md")
	r := outcome(t, srv.URL(), "bench", "--scenario", "uncontended-1,hot-2", "--compare", "rlock",
		"--rounds", "1", "--duration", "50ms", "--json", file, "--svg", picture, "--markdown", summary)
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "rlock: bench: uncontended-1\nrlock: bench: hot-2\n", r.stderr)
	require.Contains(t, r.stdout, "hot-2: 2 goroutines of 1 process, one lock\n")
	require.NotContains(t, r.stdout, "pubsub")

	var report bench.Report
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &report))
	require.Len(t, report.Results, 2)
	svg, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Contains(t, string(svg), "</svg>")
	table, err := os.ReadFile(summary)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(r.stdout, string(table)), r.stdout)
	require.Contains(t, string(table), "| 1 goroutine, a free lock: throughput, × floor ")
}

func TestBenchList(t *testing.T) {
	r := inProcess("bench", "--list")
	require.Zero(t, r.code)
	for _, name := range []string{"hot-8x8-200us", "held-10000@1ms", "wide-1024-1ms", "handoff-kill", "idle-wide-100", "rlock", "pubsub"} {
		require.Contains(t, r.stdout, name)
	}
}

func TestBenchUsage(t *testing.T) {
	embedded := miniredis.RunT(t)
	for _, tc := range []struct {
		says string
		args []string
	}{
		{`unexpected argument "x"`, []string{"bench", "x"}},
		{`--scenario: no scenario matches "x"`, []string{"bench", "--scenario", "x"}},
		{`--compare: no contender "x"`, []string{"bench", "--compare", "x"}},
		{"--node: not a Redis URL", []string{"bench", "--node", "x://:s3cret@", "--node", "redis://b"}},
		{"odd number of servers", []string{"bench", "--node", "redis://127.0.0.1:1"}},
		{"must be positive", []string{"bench", "--rounds", "0"}},
		{"not of a cluster", []string{"--url", "redis://a:1?addr=b:1", "bench"}},
		{"embedded server", []string{"--url", "redis://" + embedded.Addr(), "bench"}},
		{"only a benchmark starts it", []string{bench.WorkerArg, "x"}},
	} {
		r := inProcess(tc.args...)
		require.Equal(t, exitUsage, r.code, "%q: %s", tc.args, r.stderr)
		require.Contains(t, r.stderr, tc.says)
	}
}

func TestBenchWithoutServer(t *testing.T) {
	r := outcome(t, "redis://127.0.0.1:1", "bench") // another process, as go-redis goes on dialling for a second
	require.Equal(t, exitUnavailable, r.code, r.stderr)
}
