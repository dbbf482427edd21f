package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/xid"
)

// Config says what to measure. The program that passes it to [Run] must call [Work] with the same contenders
// when it is started with [WorkerArg].
type Config struct {
	Server     *redis.Options
	Nodes      []*redis.Options      // more servers, for contenders that lock on several servers
	Cluster    *redis.ClusterOptions // if set, the cluster is measured instead of Server and Nodes
	Contenders []Contender
	Scenarios  []Scenario

	Rounds   int           // number of rounds; 0 means 5
	Duration time.Duration // length of the window of a run, if the scenario sets no Span; 0 means 1 s
	Warmup   time.Duration // time before the window, unless the scenario sets it; 0 means 300 ms
	Rest     time.Duration // how long the idle servers are measured before the first run; 0 means not at all

	// Progress is called before each run, which is run number done+1 of total.
	Progress func(done, total int, scenario, contender string, round int)
}

type runner struct {
	Config
	nodes []*node // the first is Config.Server
}

// Run runs the scenarios. If it returns an error, the report contains the results that were complete before. A
// server that is embedded in a program is refused with [ErrEmbedded].
func Run(ctx context.Context, c Config) (*Report, error) {
	c.Rounds = cmp.Or(c.Rounds, 5)
	c.Duration = cmp.Or(c.Duration, time.Second)
	c.Warmup = cmp.Or(c.Warmup, 300*time.Millisecond)
	r := &runner{Config: c}
	servers, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		n := newNode(s)
		defer func() { _ = n.rdb.Close() }()
		r.nodes = append(r.nodes, n)
	}
	report := new(Report)
	if report.Environment, err = r.environment(ctx); err != nil {
		return nil, err
	}
	if c.Cluster == nil && slices.ContainsFunc(c.Contenders, func(c Contender) bool { return c.Quorum }) {
		if err := r.ripen(ctx); err != nil {
			return nil, err
		}
	}
	if report.Environment.Rest, err = r.rest(ctx); err != nil {
		return nil, err
	}
	runs := 0
	for _, s := range c.Scenarios {
		runs += len(r.order(s)) * c.Rounds
	}
	done := 0
	for _, s := range c.Scenarios {
		result, err := r.play(ctx, s, func(contender string, round int) {
			if c.Progress != nil {
				c.Progress(done, runs, s.Name, contender, round)
			}
			done++
		})
		if err != nil {
			return report, err
		}
		report.Results = append(report.Results, *result)
	}
	return report, nil
}

const unsuited = "cannot take part"

// field is everybody who is in the table of a scenario: the floors, then the
// contenders.
func (r *runner) field(s Scenario) []Contender {
	servers := len(r.nodes)
	if r.Cluster != nil {
		servers = 1 // each lock is on one of them
	}
	return append(floors(s.Kind, servers), r.Contenders...)
}

// order returns who of the field can take part.
func (r *runner) order(s Scenario) (order []int) {
	for i, c := range r.field(s) {
		if c.floor || s.suits(c) && r.has(c) {
			order = append(order, i)
		}
	}
	return order
}

// has reports whether there are the servers that a contender needs.
func (r *runner) has(c Contender) bool {
	if r.Cluster != nil {
		return c.Cluster
	}
	return !c.Quorum || len(r.nodes) > 1
}

// play plays all rounds of a scenario.
func (r *runner) play(ctx context.Context, s Scenario, begins func(contender string, round int)) (*Result, error) {
	field, order := r.field(s), r.order(s)
	rows := make([]Row, len(field))
	for i, c := range field {
		rows[i] = Row{Contender: c.Name, Floor: c.floor, Quorum: c.Quorum}
		if !slices.Contains(order, i) {
			rows[i].Skipped = unsuited
		}
	}
	for round := range r.Rounds {
		for _, i := range order {
			begins(field[i].Name, round+1)
			if rows[i].Skipped != "" {
				continue
			}
			names := fmt.Sprintf("rlock-bench:%s:", xid.New())
			sample, err := r.run(ctx, s.playedBy(field[i]), field[i], names)
			switch {
			case err == nil:
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case rows[i].Floor:
				return nil, err
			default: // the others are worth having all the same
				rows[i].Skipped = "failed: " + err.Error()
				continue
			}
			sample.Round = round + 1
			rows[i].Samples = append(rows[i].Samples, sample)
		}
		slices.Reverse(order)
	}
	if s.Kind == Held {
		leaveOutProbes(rows)
	}
	summarizeRows(rows)
	return &Result{s, rows}, nil
}

func (r *runner) environment(ctx context.Context) (Environment, error) {
	e := Environment{
		Time: time.Now().UTC().Truncate(time.Second), Machine: machine(), CPUs: runtime.NumCPU(), Go: runtime.Version(),
		Versions: make(map[string]string), Rounds: r.Rounds, Duration: r.Duration, Servers: len(r.nodes), Cluster: r.Cluster != nil,
	}
	for i, n := range r.nodes {
		name, mode, err := identify(ctx, n.rdb)
		if err != nil {
			return e, err
		}
		if mode == "cluster" && r.Cluster == nil {
			return e, ErrCluster
		}
		if i == 0 {
			e.Server = name
		}
		now, err := readCounters(ctx, n.rdb)
		if err != nil {
			return e, err
		}
		n.connections = max(now.connections, 1)
		e.Others += n.connections - 1
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			e.Versions[m.Path] = m.Version
		}
	}
	return e, nil
}

// machine is what Linux tells of the processor.
func machine() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOOS + "/" + runtime.GOARCH
}

// Pick returns the contenders whose names match the patterns, in the order of the patterns. The patterns have
// the syntax of [path.Match]. If there are no patterns, Pick returns all contenders except the variants. A
// pattern that matches no contender is an error.
func Pick(contenders []Contender, patterns []string) (picked []Contender, err error) {
	if len(patterns) == 0 {
		return slices.DeleteFunc(slices.Clone(contenders), func(c Contender) bool { return c.Variant }), nil
	}
	for _, pattern := range patterns {
		found := false
		for _, c := range contenders {
			if ok, _ := path.Match(pattern, c.Name); !ok {
				continue
			}
			found = true
			if !slices.ContainsFunc(picked, func(p Contender) bool { return p.Name == c.Name }) {
				picked = append(picked, c)
			}
		}
		if !found {
			err = errors.Join(err, fmt.Errorf("no contender %q", pattern))
		}
	}
	return picked, err
}
