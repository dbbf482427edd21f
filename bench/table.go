package bench

import (
	"errors"
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
	to     string // name of the other row
}

// columns are those that say something about a kind of scenario; the JSON has
// every metric.
var columns = map[Kind][]column{
	Cycle: slices.Concat(
		show("ops/s"), ratios("ops/s", scriptsName, everywhereName, rlockName),
		show("p50", "p99"), ratios("p99", scriptsName), show("p99.9", "max"), perCycle, present,
	),
	Contend: slices.Concat(
		show("ops/s", "handoffs/s"), ratios("handoffs/s", scriptsName, everywhereName, plainName),
		show("passed/s", "share", "jain", "longest", "p50", "p99", "p99.9"), perCycle, present,
	),
	Wide: slices.Concat(
		show("ops/s", "handoffs/s"), ratios("handoffs/s", scriptsName, plainName), ratios("handoffs/s", rlockName), show("share", "jain", "least/most", "longest"),
		show("wakeup p50"), ratios("wakeup p50", scriptsName, pingName), show("wakeup p99", "wakeup max", "p50", "p99"),
		show("scripts/op", "scripts/handoff", "messages/handoff", "requests/handoff", "server CPU/handoff"), ratios("server CPU/handoff", scriptsName),
		show("net/handoff", "probes/s each", "client CPU/op"), present,
	),
	Kill: slices.Concat(show("p50"), ratios("p50", scriptsName, pingName), show("p90", "max", "longest", "scripts/op")),
	Wakeup: slices.Concat(
		show("p50"), ratios("p50", scriptsName, pacedName, everywhereName, pingName, rlockName),
		show("p90", "p99", "max", "longest", "scripts/op", "reads/op"), present,
	),
	Foreign: slices.Concat(show("longest", "p50", "p99", "max", "ops/s"), ratios("ops/s", scriptsName), show("jain", "connections")),
	Idle:    slices.Concat(show("commands/s", "reads/s", "probes/s each", "others/s each", "memory"), present, busy),
	Held:    slices.Concat(show("lost", "scripts/s", "reads/100 scripts", "goroutines/lock", "p50", "p99", "max"), present, busy),
}

// What several kinds of scenarios show: what an operation costs, what there is all
// the time, and how busy it keeps a CPU.
var (
	perCycle = show("commands/op", "scripts/op", "reads/op", "server CPU/op", "client CPU/op", "allocs/op")
	present  = show("goroutines", "connections")
	busy     = show("server CPU %", "client CPU %")
)

func show(metrics ...string) (columns []column) {
	for _, m := range metrics {
		columns = append(columns, column{metric: m})
	}
	return columns
}

func ratios(metric string, to ...string) (columns []column) {
	for _, row := range to {
		columns = append(columns, column{metric, row})
	}
	return columns
}

// head says what a ratio is to. The floor is that of two scripts, if nothing else
// is said.
func (c column) head() string {
	switch c.to {
	case "":
		return metricOf(c.metric).head
	case scriptsName:
		return "× floor"
	case everywhereName:
		return "× floor, all servers"
	case pacedName:
		return "× paced"
	}
	return "× " + c.to
}

// WriteTable writes the report as text for people.
func (r *Report) WriteTable(w io.Writer) error {
	e := r.Environment
	fmt.Fprintf(w, "%s · %s, %d CPUs · %s · %d rounds of %v · medians (min..max), longest waits of all rounds\n", e.Server, e.Machine, e.CPUs, e.Go, e.Rounds, e.Duration)
	switch {
	case e.Cluster:
		fmt.Fprintf(w, "A cluster of %d masters; what a server needs is the sum over all of them.\n", e.Servers)
	case e.Servers > 1:
		fmt.Fprintf(w, "%d servers: a quorum locks on all of them, whoever else on the first.\n", e.Servers)
	}
	if e.Others > 0 {
		fmt.Fprintf(w, "NOT FOR PUBLICATION: %d other connections to the server; what they do is counted as the contenders'.\n", e.Others)
	}
	for _, result := range r.Results {
		fmt.Fprintf(w, "\n%s: %s\n", result.Scenario.Name, result.Scenario.About)
		if err := errors.Join(result.writeTable(w), result.writeShares(w)); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	if err := r.WriteSummary(w); err != nil {
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
		fmt.Fprintf(t, "%s\t", c.head())
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

// compares reports whether a contender, other than to itself, is to be seen in
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
		return none
	}
	if ratio, ok := row.Values[c.metric].Ratios[c.to]; ok && c.value(row) != none {
		return fmt.Sprintf("%s (%s..%s)", c.value(row), factor(ratio.Min), factor(ratio.Max))
	}
	return c.value(row)
}

// none is in place of a number that there is not.
const none = "·"

// value stands for all rounds.
func (c column) value(row Row) string {
	m, v := metricOf(c.metric), row.Values[c.metric]
	ratio, ok := v.Ratios[c.to]
	switch {
	case c.to == everywhereName && !row.Quorum:
		return none
	case ok:
		return factor(ratio.Median)
	case c.to != "", m.lacks != nil && len(row.Samples) > 0 && m.lacks(row.Samples[0]):
		return none
	case m.worst:
		return m.format(v.Value.Max)
	}
	return m.format(v.Value.Median)
}

func shows(kind Kind, metric string) bool {
	return slices.ContainsFunc(columns[kind], func(c column) bool { return c.metric == metric })
}
