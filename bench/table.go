package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// column shows a metric in a table: by itself, or in ratio to another row.
type column struct {
	metric string
	head   string
	to     string // name of the other row
	format func(float64) string
}

// columns are those that say something about a kind of scenario; the JSON has
// every metric.
var columns = map[Kind][]column{
	Cycle: slices.Concat([]column{
		{"ops/s", "ops/s", "", count},
		{"ops/s", "× floor", scriptsName, factor},
		{"ops/s", "× rlock", rlockName, factor},
		{"p50", "p50", "", duration},
		{"p99", "p99", "", duration},
		{"p99", "× floor", scriptsName, factor},
		{"p99.9", "p99.9", "", duration},
		{"max", "max", "", duration},
	}, perCycle, present),
	Contend: slices.Concat([]column{
		{"ops/s", "ops/s", "", count},
		{"handoffs/s", "handoffs/s", "", count},
		{"handoffs/s", "× floor", scriptsName, factor},
		{"handoffs/s", "× pubsub", plainName, factor},
		{"passed/s", "to others/s", "", count},
		{"jain", "Jain", "", fraction},
		{"longest", "longest", "", duration},
		{"p50", "p50", "", duration},
		{"p99", "p99", "", duration},
		{"p99.9", "p99.9", "", duration},
	}, perCycle, present),
	Wakeup: slices.Concat([]column{
		{"p50", "p50", "", duration},
		{"p50", "floor cycles", scriptsName, factor},
		{"p50", "paced cycles", pacedName, factor},
		{"p50", "round trips", pingName, factor},
		{"p50", "× rlock", rlockName, factor},
		{"p90", "p90", "", duration},
		{"p99", "p99", "", duration},
		{"max", "max", "", duration},
		{"longest", "longest", "", duration},
		{"reads/op", "reads/op", "", count},
	}, present),
	Foreign: {
		{"longest", "longest", "", duration},
		{"p50", "p50", "", duration},
		{"p99", "p99", "", duration},
		{"max", "max", "", duration},
		{"ops/s", "ops/s of all", "", count},
		{"ops/s", "× floor", scriptsName, factor},
		{"jain", "Jain of hot", "", fraction},
		{"connections", "conns", "", count},
	},
	Idle: slices.Concat([]column{
		{"commands/s", "cmds/s", "", fraction},
		{"reads/s", "reads/s", "", fraction},
		{"memory", "bytes/waiter", "", count},
	}, present, busy),
	Held: slices.Concat([]column{
		{"lost", "lost", "", count},
		{"scripts/s", "renewals/s", "", count},
		{"reads/100 scripts", "reads/100", "", fraction},
		{"goroutines/lock", "gor./lock", "", fraction},
		{"p50", "PING p50", "", duration},
		{"p99", "PING p99", "", duration},
		{"max", "PING max", "", duration},
	}, present, busy),
}

// What several kinds of scenarios show: what an operation costs, what there is all
// the time, and how busy it keeps a CPU.
var (
	perCycle = []column{
		{"commands/op", "cmds/op", "", count},
		{"scripts/op", "scripts/op", "", fraction},
		{"reads/op", "reads/op", "", count},
		{"server CPU/op", "srv CPU", "", duration},
		{"client CPU/op", "own CPU", "", duration},
		{"allocs/op", "allocs", "", count},
	}
	present = []column{
		{"goroutines", "gor.", "", count},
		{"connections", "conns", "", count},
	}
	busy = []column{
		{"server CPU %", "srv CPU %", "", fraction},
		{"client CPU %", "own CPU %", "", fraction},
	}
)

// WriteTable writes what a person wants to see.
func (r *Report) WriteTable(w io.Writer) error {
	e := r.Environment
	fmt.Fprintf(w, "%s · %s, %d CPUs · %s · %d rounds of %v · medians (min..max)\n", e.Server, e.Machine, e.CPUs, e.Go, e.Rounds, e.Duration)
	if e.Others > 0 {
		fmt.Fprintf(w, "NOT FOR PUBLICATION: %d other connections to the server; what they do is counted as the contenders'.\n", e.Others)
	}
	for _, result := range r.Results {
		fmt.Fprintf(w, "\n%s: %s\n", result.Scenario.Name, result.Scenario.About)
		if err := result.writeTable(w); err != nil {
			return err
		}
	}
	if err := r.writeSummary(w); err != nil {
		return err
	}
	for _, problem := range r.Problems() {
		if _, err := fmt.Fprintf(w, "\nPROBLEM: %s\n", problem); err != nil {
			return err
		}
	}
	return nil
}

func (r Result) writeTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	columns := slices.DeleteFunc(slices.Clone(columns[r.Scenario.Kind]), func(c column) bool { return c.to != "" && !r.compares(c.to) })
	skipped := make(map[string][]string) // by the reason
	fmt.Fprint(t, "\t")
	for _, c := range columns {
		fmt.Fprintf(t, "%s\t", c.head)
	}
	fmt.Fprintln(t)
	for _, row := range r.Rows {
		if row.Skipped != "" {
			why, _, _ := strings.Cut(row.Skipped, ":") // the rest is among the problems
			skipped[why] = append(skipped[why], row.Contender)
			continue
		}
		fmt.Fprintf(t, "%s\t", row.Contender)
		for _, c := range columns {
			fmt.Fprintf(t, "%s\t", c.cell(row, r.Scenario))
		}
		fmt.Fprintln(t)
	}
	err := t.Flush()
	for _, why := range slices.Sorted(maps.Keys(skipped)) {
		_, err = fmt.Fprintf(w, "%s: %s\n", why, strings.Join(skipped[why], ", "))
	}
	return err
}

// compares tells whether a contender, other than to itself, is to be seen in
// ratio to it.
func (r Result) compares(to string) bool {
	played, others := false, false
	for _, row := range r.Rows {
		played = played || row.Contender == to && row.Skipped == ""
		others = others || row.Contender != to && row.Skipped == "" && !row.Floor
	}
	return played && others
}

// cell is empty where there is no such number: no such row to divide by, or a
// floor that plays a loop of its own.
func (c column) cell(row Row, s Scenario) string {
	loop := s.playedBy(Contender{floor: true}).Kind
	if row.Floor && s.Kind != loop && !shows(loop, c.metric) {
		return "·"
	}
	median := c.median(row)
	if ratio, ok := row.Values[c.metric].Ratios[c.to]; ok {
		return fmt.Sprintf("%s (%s..%s)", median, c.format(ratio.Min), c.format(ratio.Max))
	}
	return median
}

func (c column) median(row Row) string {
	v := row.Values[c.metric]
	if c.to == "" {
		return c.format(v.Value.Median)
	}
	if ratio, ok := v.Ratios[c.to]; ok {
		return c.format(ratio.Median)
	}
	return "·"
}

func shows(kind Kind, metric string) bool {
	return slices.ContainsFunc(columns[kind], func(c column) bool { return c.metric == metric })
}
