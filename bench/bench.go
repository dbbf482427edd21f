package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/xid"
)

// Config says what to measure. Its program must call [Work] when it is started
// with [WorkerArg], with the same contenders.
type Config struct {
	Server     *redis.Options
	Contenders []Contender
	Scenarios  []Scenario

	Rounds   int           // 0 means 5
	Duration time.Duration // of the window of a run, where the scenario has none of its own; 0 means 1 s
	Warmup   time.Duration // before the window; 0 means 300 ms

	// Progress is told what begins: run number done+1 of total.
	Progress func(done, total int, scenario, contender string, round int)
}

type runner struct {
	Config
	server      Server
	rdb         *redis.Client // for the counters
	connections int64         // to the server, before there were workers
}

// Run plays the scenarios. What was complete when an error ended it is in the
// report. A server that is embedded in a program is refused: [ErrEmbedded].
func Run(ctx context.Context, c Config) (*Report, error) {
	c.Rounds = cmp.Or(c.Rounds, 5)
	c.Duration = cmp.Or(c.Duration, time.Second)
	c.Warmup = cmp.Or(c.Warmup, 300*time.Millisecond)
	r := &runner{Config: c, server: NewServer(c.Server)}
	own := r.server.Options()
	own.PoolSize = 1
	r.rdb = redis.NewClient(own)
	defer func() { _ = r.rdb.Close() }()
	report := new(Report)
	var err error
	if report.Environment, err = r.environment(ctx); err != nil {
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
func (r *runner) field(s Scenario) []Contender { return append(floors(s.Kind), r.Contenders...) }

// order returns who of the field can take part.
func (r *runner) order(s Scenario) (order []int) {
	for i, c := range r.field(s) {
		if c.floor || s.suits(c) {
			order = append(order, i)
		}
	}
	return order
}

// play plays all rounds of a scenario.
func (r *runner) play(ctx context.Context, s Scenario, begins func(contender string, round int)) (*Result, error) {
	field, order := r.field(s), r.order(s)
	rows := make([]Row, len(field))
	for i, c := range field {
		rows[i] = Row{Contender: c.Name, Floor: c.floor}
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
			sample, err := r.run(ctx, s.playedBy(field[i]), field[i].Name, names)
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
		Versions: make(map[string]string), Rounds: r.Rounds, Duration: r.Duration,
	}
	var err error
	if e.Server, err = identify(ctx, r.rdb); err != nil {
		return e, err
	}
	now, err := readCounters(ctx, r.rdb)
	if err != nil {
		return e, err
	}
	r.connections = max(now.connections, 1)
	e.Others = r.connections - 1
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

// Pick returns the contenders of these names, in this order; all, if there are
// no names.
func Pick(contenders []Contender, names []string) ([]Contender, error) {
	if len(names) == 0 {
		return contenders, nil
	}
	var picked []Contender
	var unknown []error
	for _, name := range names {
		i := slices.IndexFunc(contenders, func(c Contender) bool { return c.Name == name })
		if i < 0 {
			unknown = append(unknown, fmt.Errorf("no contender %q", name))
			continue
		}
		picked = append(picked, contenders[i])
	}
	return picked, errors.Join(unknown...)
}
