package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

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
	var r result
	const figure = "| 1 goroutine, a free lock: throughput, × floor "
	for d := 100 * time.Millisecond; !strings.Contains(r.stdout, figure); d *= 2 { // until the floor is more than nothing
		require.Less(t, d, time.Minute, r.stdout)
		r = outcome(t, srv.URL(), "bench", "--scenario", "uncontended-1,hot-2", "--compare", "rlock",
			"--rounds", "1", "--duration", d.String(), "--json", file, "--svg", picture, "--markdown", summary)
		require.Zero(t, r.code, r.stderr)
	}
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

	r = outcome(t, srv.URL(), "bench", "--scenario", "uncontended-1", "--compare", "rlock", "--rounds", "1", "--duration", "100ms", "--json", "-")
	require.Zero(t, r.code, r.stderr)
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report), r.stdout)
	require.Contains(t, r.stderr, "uncontended-1: 1 goroutine")
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
		{"--svg: only one of them", []string{"bench", "--json", "-", "--svg", "-"}},
		{"must be positive", []string{"bench", "--rounds", "0"}},
		{"not of what Sentinels name", []string{"--sentinel", "a:1", "--master", "m", "--url", "redis://", "bench"}},
		{"a quorum has single servers", []string{"--cluster", "bench", "--node", "redis://b,redis://c"}},
		{`no scenario matches "handoff-kill" of those for a cluster`, []string{"--cluster", "bench", "--scenario", "handoff-kill"}},
		{`no scenario matches "hot-8x8" of those for any number of processes`, []string{"bench", "--processes", "2", "--scenario", "hot-8x8"}},
		{"--processes: want 1 to 256 processes, not 0", []string{"bench", "--processes", "0"}},
		{"want 1 to 256 processes, not -1", []string{"bench", "--processes", "-1"}},
		{"want 1 to 256 processes, not 257", []string{"bench", "--processes", "257"}},
		{"use either --capacity or --scenario, not both", []string{"bench", "--capacity", "--scenario", "hot-2"}},
		{"use either --capacity or --processes, not both", []string{"bench", "--capacity", "--processes", "2"}},
		{"-processes", []string{"bench", "--processes", "x"}},
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

// clusterURL names one node of a cluster.
func clusterURL(c *redistest.Cluster) string {
	return "redis://" + c.Nodes[0].Addr() + "?addr=" + c.Nodes[0].Addr()
}

// What cannot be written is known before anything is measured, and what is there already
// stays until it is.
func TestBenchOpensItsFilesFirst(t *testing.T) {
	nowhere := []string{"--url", "redis://127.0.0.1:1", "bench"} // 69 if it were asked
	r := inProcess(append(nowhere, "--json", filepath.Join(t.TempDir(), "no", "such"))...)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "--json: open ")
	file := writeFileOf(t, []byte("before"))
	require.Equal(t, exitUnavailable, inProcess(append(nowhere, "--svg", file)...).code)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "before", string(text))
}

// Three masters, two processes: all are in the table, and nothing is left.
func TestBenchOfACluster(t *testing.T) {
	redistest.Long(t, "a cluster, and two processes that are busy")
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := outcome(t, clusterURL(c), "bench", "--processes", "2", "--scenario", "uncontended-1,hot-2", "--compare", "rlock,pubsub",
		"--rounds", "1", "--duration", "50ms")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "A cluster of 3 masters")
	require.Contains(t, r.stdout, "uncontended-1: 2 processes with 1 goroutine each, a lock each\n")
	require.Contains(t, r.stdout, "hot-2: 2 processes with 2 goroutines each, one lock\n")
	require.Contains(t, r.stdout, "cannot take part: pubsub\n")
	require.Regexp(t, `(?m)^ +process +ops/s +× floor +p50 +p99 `, r.stdout)
	for _, row := range []string{"2 scripts", "2 scripts 1", "2 scripts 2", "rlock", "rlock 1", "rlock 2"} {
		require.Regexp(t, `(?m)^ +`+row+`  +\d`, r.stdout)
	}
	requireEmpty(t, c.Nodes...)
}

func requireEmpty(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	for _, srv := range servers {
		redistest.Eventually(t, "no keys are left", func() bool {
			n, err := srv.Client(t).DBSize(t.Context()).Result()
			require.NoError(t, err)
			return n == 0
		})
	}
}

// rlock bench refuses a single server that --cluster says is a cluster, and a node of a
// cluster without --cluster.
func TestBenchOfTheWrongServer(t *testing.T) {
	t.Parallel()
	single, cluster := redistest.Start(t), redistest.StartCluster(t, 1, 0)
	r := outcome(t, single.URL(), "--cluster", "bench")
	require.Equal(t, exitUsage, r.code, r.stderr)
	require.Contains(t, r.stderr, "--cluster: bench: the server is not a node of a cluster: leave it out")
	r = outcome(t, cluster.Nodes[0].URL(), "bench")
	require.Equal(t, exitUsage, r.code, r.stderr)
	require.Contains(t, r.stderr, "is a node of a cluster, and has a part of the locks only: add --cluster")
}

// Interrupted at the terminal, ended or killed: the processes end, and release what
// they hold.
func TestBenchLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		scenario string
		sig      syscall.Signal
		group    bool
		code     int
	}{
		{"uncontended-64", syscall.SIGINT, true, 130},
		{"hot-8", syscall.SIGTERM, false, 143},
		{"hot-8", syscall.SIGKILL, false, -1},
	} {
		t.Run(tc.scenario+" "+tc.sig.String(), func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			p := begin(t, srv.URL(), "bench", "--processes", "2", "--scenario", tc.scenario, "--compare", "rlock",
				"--rounds", "1000000", "--duration", "300ms")
			redistest.Eventually(t, "locks are taken", func() bool { return srv.CommandCalls(t)["hset"] > 0 })
			pid := p.cmd.Process.Pid
			workers := childrenOf(t, pid)
			if tc.group {
				pid = -pid
			}
			require.NoError(t, syscall.Kill(pid, tc.sig))
			require.Equal(t, tc.code, p.end().code)
			redistest.Eventually(t, "its processes end", func() bool {
				return !slices.ContainsFunc(workers, func(pid string) bool { return alive(t, pid) })
			})
			requireEmpty(t, srv)
		})
	}
}

// childrenOf returns the processes that a process has started.
func childrenOf(t *testing.T, pid int) (pids []string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	for _, file := range stats {
		text, _ := os.ReadFile(file) // it may have ended
		_, after, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(after); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}
