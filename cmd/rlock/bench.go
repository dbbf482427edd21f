package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/go-rlock/rlock/bench"
)

func benchCommand() *cli.Command {
	return &cli.Command{
		Name:      "bench",
		Usage:     "measure the lock under contention",
		UsageText: "rlock bench [--scenario PATTERN,…] [--compare NAME,…] [options]",
		Description: `Runs scenarios in alternating rounds with several contenders: each kind of lock, PING,
and two scripts that only set and delete a key. The ratios in the tables are relative to
these two scripts. Every run has processes of its own and checks mutual exclusion. The
server and the machine must do nothing else. All keys begin with "rlock-bench:" and
expire. If --node names more servers, the quorum lock takes part. rlock first waits until
each of these servers has been up for 30 s, the length of the lease.

With --cluster, the lock and the two scripts run on all masters. With --processes, several
client processes of this machine run each scenario.

One FILE can be "-" for the standard output. The tables then go to the standard error.

"go doc github.com/go-rlock/rlock/bench" explains the columns. The module in
bench/compare measures other libraries.

Exit status: 0 everything was measured; 1 a lock was lost or had two holders, or a call
failed; 128+N signal N ended rlock, and the tables contain the scenarios that were
finished; others as in "rlock --help".`,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "scenario", Usage: "run the scenarios that match `PATTERN`, such as 'hot-*@1ms'; see --list", DefaultText: "all scenarios of up to 10 s, without those of a server that is 1 ms away; with a cluster or several processes: " + strings.Join(benchSpread, ",")},
			&cli.StringSliceFlag{Name: "compare", Usage: "run the contenders that match `PATTERN`; see --list", DefaultText: "all but handoff-*"},
			&cli.StringSliceFlag{Name: "node", Usage: "`URL` of a further server for the quorum lock; give two or four of them"},
			&cli.IntFlag{Name: "processes", Usage: "run uncontended-* and hot-* in `N` client processes", DefaultText: "as the scenario says"},
			&cli.BoolFlag{Name: "capacity", HideDefault: true, Usage: "measure the cost of each operation on the server, and calculate the capacity of 1 to 100 masters"},
			&cli.IntFlag{Name: "rounds", Value: 5, Usage: "run each scenario `N` times"},
			&cli.StringFlag{Name: "duration", DefaultText: benchDuration.String(), Usage: "measure for `D` in each run, unless the scenario has its own duration"},
			&cli.StringFlag{Name: "json", Usage: "write all data to `FILE`"},
			&cli.StringFlag{Name: "markdown", Usage: "write the summary at the end of the output to `FILE` too"},
			&cli.StringFlag{Name: "svg", Usage: "draw up to six diagrams to `FILE`: hand-offs, their cost, and latencies"},
			&cli.BoolFlag{Name: "list", HideDefault: true, Usage: "list scenarios and contenders"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Bool("list") {
				return listBench(cmd.Root().Writer)
			}
			config, err := benchConfig(cmd)
			if err != nil {
				return err
			}
			return runBench(ctx, cmd, config)
		},
	}
}

// benchWorkerCommand is what the processes of a benchmark run.
func benchWorkerCommand() *cli.Command {
	return &cli.Command{
		Name:   bench.WorkerArg,
		Usage:  "a process of the benchmark",
		Hidden: true,
		Action: func(_ context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usagef(cmd, "only a benchmark starts it")
			}
			return bench.Work(bench.Contenders(), os.Stdin, os.Stdout)
		},
	}
}

func runBench(ctx context.Context, cmd *cli.Command, config bench.Config) error {
	files, err := openFiles(cmd, "json", "markdown", "svg")
	defer files.close()
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupt(ctx)
	defer stop()
	p := benchProgress{out: os.Stderr, columns: width(os.Stderr), began: time.Now()}
	config.Progress = p.show
	report, runErr := bench.Run(ctx, config)
	p.clear()
	tables := cmd.Root().Writer
	if files.standard() {
		tables = cmd.Root().ErrWriter
	}
	switch {
	case errors.Is(runErr, bench.ErrEmbedded):
		return usagef(cmd, "%w", runErr)
	case errors.Is(runErr, bench.ErrCluster):
		return usagef(cmd, "%w: add --cluster", runErr)
	case errors.Is(runErr, bench.ErrNoCluster):
		return usagef(cmd, "--cluster: %w: leave it out", runErr)
	case report == nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case report == nil:
		return &exitError{exitUnavailable, runErr}
	}
	err = errors.Join(
		report.WriteTable(tables),
		writeCapacity(tables, cmd, report, runErr),
		files.write("json", report.WriteJSON),
		files.write("markdown", report.WriteSummary),
		files.write("svg", report.WriteSVG),
	)
	if problems := len(report.Problems()); problems > 0 && runErr == nil {
		runErr = fmt.Errorf("%d runs went wrong", problems)
	}
	return errors.Join(runErr, err)
}

// writeCapacity does nothing unless it was asked for, or if the run was ended.
func writeCapacity(w io.Writer, cmd *cli.Command, report *bench.Report, runErr error) error {
	if !cmd.Bool("capacity") || runErr != nil {
		return nil
	}
	return report.WriteCapacity(w)
}

// outputs are what options name, by the options: files, or the standard output.
type outputs map[string]io.Writer

// openFiles opens the files before minutes of work. What is in one stays until it is written.
func openFiles(cmd *cli.Command, options ...string) (outputs, error) {
	files := make(outputs)
	for _, option := range options {
		switch name := cmd.String(option); {
		case name == "":
		case name == "-" && files.standard():
			return files, usagef(cmd, "--%s: only one of them can be the standard output", option)
		case name == "-":
			files[option] = cmd.Root().Writer
		default:
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
			if err != nil {
				return files, usagef(cmd, "--%s: %w", option, err)
			}
			files[option] = f
		}
	}
	return files, nil
}

// standard reports whether the standard output is one of them.
func (o outputs) standard() bool {
	for _, w := range o {
		if _, file := w.(*os.File); !file {
			return true
		}
	}
	return false
}

// write does nothing for an option that was not given.
func (o outputs) write(option string, write func(io.Writer) error) error {
	w := o[option]
	f, file := w.(*os.File)
	switch {
	case file:
		_ = f.Truncate(0) // a pipe has nothing in it that would have to go
		return errors.Join(write(f), f.Close())
	case w != nil:
		return write(w)
	}
	return nil
}

// close is for those that were not written.
func (o outputs) close() {
	for _, w := range o {
		if f, file := w.(*os.File); file {
			_ = f.Close()
		}
	}
}

func listBench(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCENARIO")
	for _, s := range bench.Scenarios() {
		fmt.Fprintf(t, "%s\t%s\n", s.Name, s.About)
	}
	fmt.Fprintln(t, "\nCONTENDER")
	for _, c := range bench.Contenders() {
		fmt.Fprintf(t, "%s\t%s\n", c.Name, c.About)
	}
	return t.Flush()
}

// benchProgress shows what runs: on a terminal in one line that is rewritten,
// elsewhere in a line per scenario.
type benchProgress struct {
	out     *os.File
	columns int // 0: no terminal
	began   time.Time
	last    string // scenario
}

func (p *benchProgress) show(done, total int, scenario, contender string, round int) {
	if p.columns == 0 {
		if scenario != p.last {
			fmt.Fprintf(p.out, "rlock: bench: %s\n", scenario)
		}
		p.last = scenario
		return
	}
	text := fmt.Sprintf("rlock: bench: %d%%  %s, round %d, %s", 100*done/total, scenario, round, contender)
	if done > 0 {
		left := time.Since(p.began) / time.Duration(done) * time.Duration(total-done)
		text += fmt.Sprintf("  (about %s left)", left.Round(time.Second))
	}
	fmt.Fprintf(p.out, "\r%.*s\x1b[K", p.columns-1, text)
}

func (p *benchProgress) clear() {
	if p.columns > 0 {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
