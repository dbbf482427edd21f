package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

// sized is a report in which everything has one value.
func sized() *Report {
	sample := func(s Sample) *Sample {
		s.Elapsed, s.Counted = 3*time.Second, time.Second // on a busy machine, the readings are not at the edges
		return &s
	}
	r := &Report{Environment: Environment{Rest: 0.001}}
	add := func(name string, s *Sample) {
		r.Results = append(r.Results, Result{Scenario: Scenario{Name: name}, Rows: []Row{
			{Contender: scriptsName, Floor: true, Samples: []*Sample{sample(Sample{Ops: 1})}},
			{Contender: rlockName, Samples: []*Sample{s}},
		}})
	}
	for name, cpu := range map[string]time.Duration{pairApart: 50, pairShared: 20, pairCrowd: 10} { // ms for 1,000 pairs
		add(name, sample(Sample{Ops: 1000, Calls: map[string]int64{"hset": 1000}, ServerCPU: cpu * time.Millisecond, ClientCPU: 30 * time.Millisecond, Received: 300_000, Bytes: 310_000}))
	}
	add("wide-64", sample(Sample{Ops: 6500, Handoffs: 6000, Calls: map[string]int64{"hset": 2000}, ServerCPU: 200 * time.Millisecond, Received: 1, Bytes: 1}))
	add("idle-wide-100", sample(Sample{Clients: 100, Connections: 300, ServerCPU: 6 * time.Millisecond, Received: 9000, Bytes: 15_000, Stored: 6_000_000}))
	add("held-10000", sample(Sample{Locks: 10_000, Scripts: 1000, ServerCPU: 10 * time.Millisecond, Received: 160_000, Bytes: 165_000, Stored: 2_500_000}))
	return r
}

func TestCapacity(t *testing.T) {
	c, err := sized().capacity()
	require.NoError(t, err)
	require.InDelta(t, 50e-6, c.pairs[0].cpu.Median, 1e-12)
	require.InDelta(t, 300, c.pairs[0].in.Median, 1e-9)
	require.InDelta(t, 10, c.pairs[0].out.Median, 1e-9)
	require.InDelta(t, 100e-6, c.handover.cpu.Median, 1e-12)
	require.InDelta(t, 10e-6, c.renewal.cpu.Median, 1e-12)
	require.InDelta(t, 250, c.renewal.memory.Median, 1e-9)
	require.InDelta(t, 50e-6, c.waiting.cpu.Median, 1e-12, "less what the server needs at rest")
	require.InDelta(t, 60_000, c.waiting.memory.Median, 1e-9)

	require.InDelta(t, 0.7/50e-6, c.pairsOf(c.pairs[0]).most, 1e-6)
	require.Equal(t, "maxclients", c.waiters(c.connections.Median).limit)
	require.InDelta(t, 10_000.0/3, c.waiters(c.connections.Median).most, 1e-9)
	require.Equal(t, "CPU", c.waiters(0).limit)
	require.InDelta(t, 0.7/(10e-6/10), c.held().most, 1e-6)
	require.Equal(t, "memory", boundOf(1e-9, 0, 0, 1e6, 0).limit)
	require.Equal(t, "network", boundOf(1e-9, 1e6, 0, 0, 0).limit)

	require.InDelta(t, 2000, c.handovers.Median, 1e-9)

	var out strings.Builder
	require.NoError(t, sized().WriteCapacity(&out))
	for _, line := range []string{
		`pair of Lock and Unlock, 1 goroutine +50\.0 \(50\.0\.\.50\.0\) +300 \(300\.\.300\) `,
		`pairs per second, each request by itself +CPU +14,000 +42,000 +140,000 +1,400,000 `,
		`hand-offs per second of one lock +CPU +7,000 +7,000 +7,000 +7,000 `,
		`100,000 held locks +0\.1 +1 +12\.8 +0\.4 +25\.0 +·`,
		`10,000 waiting clients +0\.5 +3 `,
		`1,000,000 pairs a second, by themselves +50\.0 +72 +2,400 +80\.0 +· +30\.0`,
	} {
		require.Regexp(t, `(?m)^`+line, out.String())
	}
	require.NotContains(t, out.String(), "%!")
	require.Contains(t, out.String(), "measure that with --cluster")
	cluster := sized()
	cluster.Environment.Cluster = true
	out.Reset()
	require.NoError(t, cluster.WriteCapacity(&out))
	require.NotContains(t, out.String(), "--cluster")
}

func TestCapacityOfAnotherReport(t *testing.T) {
	r := sized()
	r.Results = r.Results[:4]
	require.ErrorIs(t, r.WriteCapacity(new(strings.Builder)), ErrNoCapacity)
	require.ErrorContains(t, r.WriteCapacity(new(strings.Builder)), "renewal")
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.1234: "0.12", 1: "1.00", 12.34: "12.3", 123.4: "123", 999.9: "1,000", 1234: "1,230", 1_234_567: "1,230,000",
	} {
		require.Equal(t, want, number(v))
	}
}

// What the calculation is made from is measured, on a real server. Nothing is said
// about how much it is.
func TestCapacityIsMeasured(t *testing.T) {
	redistest.Long(t, "each scenario of the page about capacity")
	srv := redistest.Start(t)
	contenders, err := Pick(Contenders(), []string{rlockName})
	require.NoError(t, err)
	var scenarios []Scenario
	for _, s := range CapacityScenarios() {
		scenarios = append(scenarios, brief(s))
	}
	report, err := Run(t.Context(), Config{
		Server: &redis.Options{Addr: srv.Addr()}, Contenders: contenders, Scenarios: scenarios,
		Rounds: 1, Duration: 200 * time.Millisecond, Warmup: 30 * time.Millisecond, Rest: 100 * time.Millisecond,
	})
	require.NoError(t, err)
	require.Empty(t, report.Problems())
	require.Len(t, report.Results, 6)
	for _, s := range scenarios {
		samples := report.samples(s.Name)
		require.Len(t, samples, 1, s.Name)
		require.Positive(t, samples[0].Received, s.Name)
		if s.Kind == Cycle || s.Kind == Wide {
			require.Positive(t, grants(samples[0]), "the script of a grant writes the owner")
		}
		require.Greater(t, samples[0].Bytes, samples[0].Received, s.Name)
	}
	require.GreaterOrEqual(t, renewals(report.samples("held-10000")[0]), 200.0)
	require.Greater(t, report.samples("held-10000")[0].Stored, int64(200*100), "a lock is more than a hundred bytes")
	require.Greater(t, report.samples("idle-wide-100")[0].Stored, int64(10*1000), "a connection is more than a kilobyte")
}
