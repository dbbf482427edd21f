package bench

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

func TestInProcesses(t *testing.T) {
	several, err := InProcesses(Scenarios(), 3)
	require.NoError(t, err)
	named := make(map[string]Scenario)
	for _, s := range several {
		named[s.Name] = s
		require.Equal(t, 3, s.Processes)
	}
	apart, hot := named["uncontended-64"], named["hot-64"]
	require.Equal(t, "3 processes with 64 goroutines each, a lock each", apart.About)
	require.Equal(t, 3*64, apart.Keys)
	require.Equal(t, "3 processes with 64 goroutines each, one lock", hot.About)
	require.Equal(t, 1, hot.Keys)
	for _, name := range []string{"hot-8x8", "wakeup-remote", "readers-64", "nested-2", "held-10000", "wide-4"} {
		require.NotContains(t, named, name, "the processes have parts, or the lock has no more to give")
	}

	floor := Contender{Name: scriptsName, floor: true}
	require.Equal(t, 3*64, apart.playedBy(floor).Keys, "the floor has as many processes")
	require.Equal(t, 3, apart.playedBy(floor).Processes)
	require.Equal(t, 1, hot.playedBy(floor).Processes, "a lock serves one at a time")
	require.Equal(t, 1, hot.playedBy(floor).Keys)
	for _, n := range []int{-1, 0, maxProcesses + 1} {
		_, err := InProcesses(Scenarios(), n)
		require.ErrorContains(t, err, "want 1 to 256 processes")
	}
}

func TestKeysOfAllProcesses(t *testing.T) {
	keys := make(map[string]bool)
	for process := range 3 {
		w := &worker{
			job:    job{Scenario: Scenario{Kind: Cycle, Processes: 3, Goroutines: 2, Keys: 6}, Process: process},
			region: &region{cells: make([]cell, 6)},
		}
		for i := range 2 {
			name, _ := w.key(i)
			keys[name] = true
		}
	}
	require.Len(t, keys, 6, "a lock for each goroutine")
}

// A scenario of each kind, on three masters.
func TestScenariosOnACluster(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	table := OnCluster(Scenarios())
	for _, s := range table {
		require.Zero(t, s.RTT, s.Name)
	}
	var scenarios []Scenario
	played := make(map[Kind]bool)
	for _, s := range table {
		if !played[s.Kind] && (s.Kind == Cycle || s.Kind == Contend || !testing.Short()) {
			scenarios = append(scenarios, brief(s))
		}
		played[s.Kind] = true
	}
	contenders, err := Pick(Contenders(), []string{rlockName, plainName, "quorum"})
	require.NoError(t, err)
	report, err := Run(t.Context(), Config{
		Cluster: c.Client(t).Options(), Contenders: contenders, Scenarios: scenarios,
		Rounds: 1, Duration: 100 * time.Millisecond, Warmup: 30 * time.Millisecond,
	})
	require.NoError(t, err)
	require.Empty(t, report.Problems())
	require.True(t, report.Environment.Cluster)
	require.Equal(t, 3, report.Environment.Servers)
	for _, result := range report.Results {
		for _, row := range result.Rows {
			if row.Contender == plainName || row.Contender == "quorum" {
				require.Equal(t, unsuited, row.Skipped, "it needs single servers")
				continue
			}
			require.Empty(t, row.Skipped)
		}
	}
}

func TestServersThatAreNotWhatWasSaid(t *testing.T) {
	single, cluster := redistest.Start(t), redistest.StartCluster(t, 1, 0)
	_, err := Run(t.Context(), Config{Cluster: &redis.ClusterOptions{Addrs: []string{single.Addr()}}})
	require.ErrorIs(t, err, ErrNoCluster)
	_, err = Run(t.Context(), Config{Server: &redis.Options{Addr: cluster.Nodes[0].Addr()}})
	require.ErrorIs(t, err, ErrCluster)
}

// The processes by themselves add up to all of them.
func TestShares(t *testing.T) {
	r := newRunner(t)
	table, err := InProcesses(Scenarios(), 2)
	require.NoError(t, err)
	chosen, err := Select(table, []string{"uncontended-1"})
	require.NoError(t, err)
	sample := r.must(t, chosen[0])
	require.Len(t, sample.Shares, 2)
	require.Equal(t, sample.Ops, sample.Shares[0].Ops+sample.Shares[1].Ops)
	require.LessOrEqual(t, sample.Shares[1].Latency.P50, sample.Latency.Max)
	require.Zero(t, sample.Handoffs, "a lock each")
}

func TestSharesAreInRatioToTheSameProcess(t *testing.T) {
	shares := func(ops ...int64) *Sample {
		s := &Sample{Elapsed: time.Second, latencies: newHistogram()}
		for _, n := range ops {
			s.Shares = append(s.Shares, Share{Ops: n})
		}
		return s
	}
	r := Result{Scenario: Scenario{Kind: Cycle, Processes: 2}, Rows: []Row{
		{Contender: scriptsName, Floor: true, Samples: []*Sample{shares(100, 10)}},
		{Contender: "x", Samples: []*Sample{shares(50, 20)}},
		{Contender: "y", Skipped: unsuited},
	}}
	rows := r.shareRows(1)
	require.Len(t, rows, 2)
	require.InDelta(t, 2, rows[1].Values["ops/s"].Ratios[scriptsName].Median, 1e-9)
	require.InDelta(t, 0.5, r.shareRows(0)[1].Values["ops/s"].Ratios[scriptsName].Median, 1e-9)
}
