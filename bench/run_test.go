package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

func newRunner(t *testing.T) *runner {
	t.Helper()
	srv := redistest.Start(t)
	return &runner{
		Config: Config{Duration: 40 * time.Millisecond, Warmup: 20 * time.Millisecond},
		nodes:  []*node{{server: Server{Addr: srv.Addr()}, rdb: srv.Client(t), connections: 1}},
	}
}

// must runs a scenario, with a longer window if the machine is too busy for
// anything to end within it.
func (r *runner) must(t *testing.T, s Scenario) *Sample {
	t.Helper()
	contender := rlockName
	if s.Shared {
		contender = "readers"
	}
	for s.Span = r.span(s); ; s.Span *= 4 {
		sample, err := r.run(t.Context(), s, Contender{Name: contender}, fmt.Sprintf("test:%s:%v:", s.Name, s.Span))
		require.NoError(t, err)
		enough := sample.Ops > 0 && sample.Commands > 0 && sample.Jain > 0 || s.Kind == Idle // a stall moves the servers' window
		if s.Kind == Held {
			enough = sample.Scripts >= int64(s.Keys) // each is renewed
		}
		if enough || s.Span > 10*time.Second {
			return sample
		}
	}
}

// brief makes a scenario as short as it can be.
func brief(s Scenario) Scenario {
	switch s.Kind {
	case Wakeup:
		s.Span = 300 * time.Millisecond
	case Idle:
		s.Keys, s.Goroutines, s.Clients, s.Span = min(s.Keys, 10*crowd), 10, min(s.Clients, 10), 150*time.Millisecond
		s.Warmup = 0
	case Wide:
		s.Processes, s.Goroutines, s.Clients, s.Warmup, s.Span = 2, 3, 3, 60*time.Millisecond, 100*time.Millisecond
	case Kill:
		s.Processes, s.Keys = firstVictim+1, 1
	case Held:
		s.Keys, s.Lease, s.Span = 200, 9*time.Second, 3500*time.Millisecond // a renewal every 3 s
	}
	return s
}

// Every scenario of the table runs, and finds the lock to be one. Nothing is said
// about speed.
func TestScenarios(t *testing.T) {
	r := newRunner(t)
	played := make(map[Kind]bool)
	for _, s := range Scenarios() {
		if s.Keys > 10_000 {
			continue // in brief, it is the one before
		}
		t.Run(s.Name, func(t *testing.T) {
			if played[s.Kind] {
				redistest.Long(t, "one scenario of each kind will do")
			}
			played[s.Kind] = true
			sample := r.must(t, brief(s))
			require.Zero(t, sample.Violations)
			require.Zero(t, sample.Lost)
			require.Zero(t, sample.Errors, sample.FirstErr)
			require.Positive(t, sample.Connections)
			switch s.Kind {
			case Idle:
				require.Zero(t, sample.Ops, "nobody gets a lock that is held")
				require.Equal(t, s.Clients == 0, sample.Memory > 0, "many clients take what clients take")
			case Held:
				require.GreaterOrEqual(t, sample.Scripts, int64(200), "all are renewed")
				require.Positive(t, sample.Latency.P50)
			default:
				require.Positive(t, sample.Ops)
				require.Positive(t, sample.Commands)
				require.Positive(t, sample.Jain)
				require.LessOrEqual(t, sample.Raw.P50, sample.Raw.Max)
				require.GreaterOrEqual(t, sample.Handoffs, sample.Passed)
			}
			if s.RTT > 0 && s.Kind == Cycle && !s.Shared { // readers join one another
				require.Greater(t, sample.Raw.P50, 2*s.RTT, "two round trips")
			}
			if s.Processes*s.Goroutines == 1 {
				require.Zero(t, sample.Handoffs, "taking one's own lock is no hand-off")
			}
		})
	}
}

func TestViolationsAreCounted(t *testing.T) {
	r := newRunner(t)
	for _, s := range []Scenario{
		{Name: "goroutines", Kind: Contend, Processes: 1, Goroutines: 4, Keys: 1, Section: time.Millisecond},
		{Name: "processes", Kind: Contend, Processes: 3, Goroutines: 1, Keys: 1, Section: time.Millisecond},
		{Name: "wake-up", Kind: Wakeup, Processes: 2, Goroutines: 2, Keys: 2, Span: 300 * time.Millisecond},
		{Name: "idle", Kind: Idle, Processes: 2, Goroutines: 2, Keys: 1},
	} {
		t.Run(s.Name, func(t *testing.T) {
			for s.Span = r.span(s); ; s.Span *= 4 { // on a busy machine nobody may meet in a short window
				sample, err := r.run(t.Context(), s, brokenContender(), fmt.Sprintf("test:broken:%v:", s.Span))
				require.NoError(t, err)
				if sample.Violations > 0 {
					return
				}
				require.Less(t, s.Span, time.Minute)
			}
		})
	}
}

func TestRun(t *testing.T) {
	srv := redistest.Start(t)
	scenarios, err := Select(Scenarios(), []string{"uncontended-1", "hot-2", "nested-2", "foreign-1"})
	require.NoError(t, err)
	contenders, err := Pick(Contenders(), []string{rlockName, plainName})
	require.NoError(t, err)
	var report *Report
	empty := func(row Row) bool { return row.Skipped == "" && len(row.Curve) == 0 }
	for d := 50 * time.Millisecond; report == nil || slices.ContainsFunc(report.Results, func(r Result) bool { return slices.ContainsFunc(r.Rows, empty) }); d *= 4 {
		require.Less(t, d, time.Minute, "nothing happens in the window")
		runs := 0
		report, err = Run(t.Context(), Config{
			Server: &redis.Options{Addr: srv.Addr()}, Contenders: contenders, Scenarios: scenarios,
			Rounds: 2, Duration: d, Warmup: 30 * time.Millisecond,
			Progress: func(done, total int, _, _ string, _ int) {
				require.Equal(t, runs, done)
				require.Equal(t, 2*(4*4-1), total, "one contender is not reentrant")
				runs++
			},
		})
		require.NoError(t, err)
		require.Equal(t, 30, runs)
	}
	require.Empty(t, report.Problems())
	require.Contains(t, report.Environment.Server, "Redis")
	require.Zero(t, report.Environment.Others)

	for _, result := range report.Results {
		require.Len(t, result.Rows, 4)
		for _, row := range result.Rows {
			if row.Skipped != "" {
				require.Equal(t, "nested-2 pubsub", result.Scenario.Name+" "+row.Contender)
				continue
			}
			require.Len(t, row.Samples, 2)
			require.NotEmpty(t, row.Curve)
			require.InDelta(t, 1, row.Curve[len(row.Curve)-1].Share, 1e-9)
			ops := row.Values["ops/s"]
			require.LessOrEqual(t, ops.Value.Min, ops.Value.Median)
			require.LessOrEqual(t, ops.Value.Median, ops.Value.Max)
		}
	}

	var table, file, picture strings.Builder
	require.NoError(t, report.WriteTable(&table))
	require.NoError(t, report.WriteJSON(&file))
	require.NoError(t, report.WriteSVG(&picture))
	for _, name := range []string{"hot-2", "rlock", "2 scripts", "× floor", "cannot take part"} {
		require.Contains(t, table.String(), name)
	}
	require.NotContains(t, table.String(), "%!")
	require.Contains(t, file.String(), `"contender": "rlock"`)
	require.Contains(t, picture.String(), "</svg>")
	require.NotContains(t, picture.String(), "NaN")
}

// The server's counters are those of the window, on a machine that has time to
// read them at its edges. Each run has keys of its own: it may end in the middle of a
// cycle.
func TestReadsOfAnOperation(t *testing.T) {
	r := newRunner(t)
	lone := Scenario{Name: "lone", Kind: Cycle, Processes: 1, Goroutines: 1, Keys: 1}
	for contender, want := range map[string]float64{pingName: 1, scriptsName: 2, rlockName: 2} {
		runs := 0
		require.Eventually(t, func() bool {
			runs++
			s, err := r.run(t.Context(), lone, Contender{Name: contender}, fmt.Sprintf("test:reads:%s:%d:", contender, runs))
			return err == nil && math.Abs(perOp(s, float64(s.Reads))-want) < 0.3
		}, time.Minute, time.Millisecond, contender)
	}
}

func TestQuorum(t *testing.T) {
	r := newRunner(t)
	for range 2 {
		srv := redistest.Start(t)
		r.nodes = append(r.nodes, &node{server: Server{Addr: srv.Addr()}, rdb: srv.Client(t), connections: 1})
	}
	s := Scenario{Name: "quorum", Kind: Contend, Processes: 2, Goroutines: 2, Keys: 1, Lease: time.Second, RTT: time.Millisecond}
	for s.Span = r.Duration; ; s.Span *= 2 { // first the servers are too young
		require.Less(t, s.Span, time.Minute)
		sample, err := r.run(t.Context(), s, quorumContender(), fmt.Sprintf("test:quorum:%v:", s.Span))
		require.NoError(t, err)
		require.Zero(t, sample.Violations+sample.Errors, sample.FirstErr)
		if sample.Ops > 0 {
			break
		}
	}
	lone := Scenario{Name: "lone", Kind: Cycle, Processes: 1, Goroutines: 1, Keys: 1, Span: 500 * time.Millisecond}
	all := floors(Cycle, len(r.nodes))
	runs := 0
	require.Eventually(t, func() bool {
		runs++
		sample, err := r.run(t.Context(), lone, all[len(all)-1], fmt.Sprintf("test:everywhere:%d:", runs))
		return err == nil && sample.Connections >= 3 && math.Abs(metricOf("scripts/op").value(sample)-6) < 0.5
	}, time.Minute, time.Millisecond, "two scripts are counted on each server")
}

// The servers of a test are as young as it is.
func TestRipen(t *testing.T) {
	r := newRunner(t)
	require.NoError(t, r.ripen(t.Context()))
	r.nodes = append(r.nodes, r.nodes[0])
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.ripen(ctx), context.DeadlineExceeded)
}

func TestBudgetsAreDrawn(t *testing.T) {
	srv := redistest.Start(t)
	contenders, err := Pick(Contenders(), []string{rlockName, "handoff-2ms", "handoff-1024"})
	require.NoError(t, err)
	report, err := Run(t.Context(), Config{
		Server: &redis.Options{Addr: srv.Addr()}, Contenders: contenders,
		Scenarios: []Scenario{{Name: "hot", Kind: Contend, Processes: 1, Goroutines: 2, Keys: 1, Floor: 1}},
		Rounds:    1, Duration: 50 * time.Millisecond, Warmup: 10 * time.Millisecond,
	})
	require.NoError(t, err)
	require.Empty(t, report.Problems())
	panels := report.budgetPanels()
	require.Len(t, panels, 1)
	require.Len(t, panels[0].lines, 3)
	for i := range panels[0].lines {
		for j := range panels[0].lines[i].points { // on a busy machine nothing may have happened
			panels[0].lines[i].points[j].x, panels[0].lines[i].points[j].y = 1000, 2
		}
	}
	var picture strings.Builder
	panels[0].draw(&picture)
	require.Contains(t, picture.String(), ">2ms<")
	require.Contains(t, picture.String(), ">1024<")
}

// A contender has one colour, in whichever row of a table it is; with tuned settings the same one, and
// dashes. The first colour is this library's in every picture.
func TestColours(t *testing.T) {
	curve := []Point{{At: time.Millisecond, Share: 1}}
	result := func(names ...string) Result {
		r := Result{Scenario: Scenario{Kind: Cycle}}
		for _, name := range names {
			r.Rows = append(r.Rows, Row{Contender: name, Curve: curve})
		}
		return r
	}
	r := Report{Results: []Result{result("PING", "2 scripts", "pubsub", "rlock", "fair"), result("rlock", "pubsub-tuned", "pubsub", "PING")}}
	var picture strings.Builder
	require.NoError(t, r.WriteSVG(&picture))
	colours := make(map[string][]string)
	for _, m := range regexp.MustCompile(`fill="([^"]+)">(PING|2 scripts|rlock|fair|pubsub|pubsub-tuned)<`).FindAllStringSubmatch(picture.String(), -1) {
		colours[m[2]] = append(colours[m[2]], m[1])
	}
	require.Len(t, colours, 6)
	require.Equal(t, palette[0], colours["rlock"][0])
	require.Equal(t, colours["pubsub"][0], colours["pubsub-tuned"][0])
	used := make(map[string]bool)
	for name, all := range colours {
		require.Len(t, slices.Compact(all), 1, name)
		used[all[0]] = true
	}
	require.Len(t, used, 5)
}

// A picture has six panels at most, those that a reader wants first.
func TestMostPanels(t *testing.T) {
	var r Report
	for _, name := range []string{"a", "b", "wakeup-remote", "c", "d", "e", "hot-8x8", "f"} {
		r.Results = append(r.Results, Result{
			Scenario: Scenario{Name: name, Kind: Cycle},
			Rows:     []Row{{Contender: "rlock", Curve: []Point{{At: time.Millisecond, Share: 1}}}},
		})
	}
	var picture strings.Builder
	require.NoError(t, r.WriteSVG(&picture))
	var titles []string
	for _, m := range regexp.MustCompile(`>([^<]+): share of latencies below<`).FindAllStringSubmatch(picture.String(), -1) {
		titles = append(titles, m[1])
	}
	require.Equal(t, []string{"hot-8x8", "wakeup-remote", "a", "b", "c", "d"}, titles)
}

// A window in which nothing happened has no place on a logarithmic axis.
func TestWhatHasNoPlaceIsNotDrawn(t *testing.T) {
	nothing := []dot{{x: 0, y: 1}, {x: math.NaN(), y: 1}, {x: math.Inf(1), y: 1}, {x: 1, y: math.NaN()}}
	p := panel{title: "title", lines: []line2d{{name: "none", points: slices.Clone(nothing)}}, xText: count, yText: count}
	var picture strings.Builder
	p.draw(&picture)
	require.Contains(t, picture.String(), "title: nothing was measured")
	p.lines = []line2d{{name: "one", points: append(nothing, dot{x: 5, y: 7, label: "five"})}}
	p.draw(&picture)
	require.Contains(t, picture.String(), ">five<")
	require.NotContains(t, picture.String(), "NaN")
	require.NotContains(t, picture.String(), "Inf")
}

func TestRunEndsWithItsContext(t *testing.T) {
	srv := redistest.Start(t)
	scenarios, err := Select(Scenarios(), []string{"hot-8x8"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	_, err = Run(ctx, Config{
		Server: &redis.Options{Addr: srv.Addr()}, Contenders: Contenders(), Scenarios: scenarios,
		Progress: func(done, _ int, _, _ string, _ int) {
			if done == 2 {
				time.AfterFunc(200*time.Millisecond, func() { cancel(over) })
			}
		},
		Duration: 50 * time.Millisecond, Warmup: 10 * time.Millisecond,
	})
	require.ErrorIs(t, err, over)
}

func TestEmbeddedServerIsRefused(t *testing.T) {
	srv := miniredis.RunT(t)
	_, err := Run(t.Context(), Config{Server: &redis.Options{Addr: srv.Addr()}})
	require.ErrorIs(t, err, ErrEmbedded)
}

func TestWorkerRefusesWhatIsNoJob(t *testing.T) {
	require.Error(t, Work(Contenders(), strings.NewReader("x\n"), nil))
}
