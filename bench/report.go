package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// column shows a metric in a table: by itself, or as the ratio to the floor.
type column struct {
	metric string
	head   string
	ratio  bool
	format func(float64) string
}

// columns are those that say something about a kind of scenario; the JSON has
// every metric.
var columns = map[Kind][]column{
	Cycle: {
		{"ops/s", "ops/s", false, count},
		{"ops/s", "× floor", true, factor},
		{"p50", "p50", false, duration},
		{"p99", "p99", false, duration},
		{"p99", "× floor", true, factor},
		{"p99.9", "p99.9", false, duration},
		{"max", "max", false, duration},
		{"commands/op", "cmds/op", false, count},
		{"reads/op", "reads/op", false, count},
		{"server CPU/op", "srv CPU", false, duration},
		{"client CPU/op", "own CPU", false, duration},
		{"allocs/op", "allocs", false, count},
		{"goroutines", "gor.", false, count},
		{"connections", "conns", false, count},
	},
	Contend: {
		{"ops/s", "ops/s", false, count},
		{"handoffs/s", "handoffs/s", false, count},
		{"handoffs/s", "× floor", true, factor},
		{"passed/s", "to others/s", false, count},
		{"jain", "Jain", false, fraction},
		{"longest", "longest", false, duration},
		{"p50", "p50", false, duration},
		{"p99", "p99", false, duration},
		{"p99.9", "p99.9", false, duration},
		{"commands/op", "cmds/op", false, count},
		{"reads/op", "reads/op", false, count},
		{"server CPU/op", "srv CPU", false, duration},
		{"client CPU/op", "own CPU", false, duration},
		{"allocs/op", "allocs", false, count},
		{"goroutines", "gor.", false, count},
		{"connections", "conns", false, count},
	},
	Wakeup: {
		{"p50", "p50", false, duration},
		{"p50", "× floor", true, factor},
		{"p90", "p90", false, duration},
		{"p99", "p99", false, duration},
		{"p99", "× floor", true, factor},
		{"max", "max", false, duration},
		{"longest", "longest", false, duration},
		{"reads/op", "reads/op", false, count},
		{"goroutines", "gor.", false, count},
		{"connections", "conns", false, count},
	},
	Foreign: {
		{"longest", "longest", false, duration},
		{"p50", "p50", false, duration},
		{"p99", "p99", false, duration},
		{"max", "max", false, duration},
		{"ops/s", "ops/s of all", false, count},
		{"ops/s", "× floor", true, factor},
		{"jain", "Jain of hot", false, fraction},
		{"connections", "conns", false, count},
	},
	Idle: {
		{"commands/s", "cmds/s", false, fraction},
		{"reads/s", "reads/s", false, fraction},
		{"memory", "bytes/waiter", false, count},
		{"goroutines", "gor.", false, count},
		{"connections", "conns", false, count},
		{"server CPU %", "srv CPU %", false, fraction},
		{"client CPU %", "own CPU %", false, fraction},
	},
	Held: {
		{"lost", "lost", false, count},
		{"scripts/s", "renewals/s", false, count},
		{"reads/100 scripts", "reads/100", false, fraction},
		{"goroutines", "gor.", false, count},
		{"connections", "conns", false, count},
		{"server CPU %", "srv CPU %", false, fraction},
		{"client CPU %", "own CPU %", false, fraction},
		{"p50", "PING p50", false, duration},
		{"p99", "PING p99", false, duration},
		{"max", "PING max", false, duration},
	},
}

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
	for _, problem := range r.Problems() {
		if _, err := fmt.Fprintf(w, "\nPROBLEM: %s\n", problem); err != nil {
			return err
		}
	}
	return nil
}

func (r Result) writeTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	columns := columns[r.Scenario.Kind]
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

// cell is empty where the floor, which is a loop of its own, has no such number.
func (c column) cell(row Row, s Scenario) string {
	loop := s.floor().Kind
	if row.Floor && s.Kind != loop && !shows(loop, c.metric) {
		return "·"
	}
	v := row.Values[c.metric]
	if !c.ratio {
		return c.format(v.Value.Median)
	}
	return fmt.Sprintf("%s (%s..%s)", c.format(v.Ratio.Median), c.format(v.Ratio.Min), c.format(v.Ratio.Max))
}

func shows(kind Kind, metric string) bool {
	for _, c := range columns[kind] {
		if c.metric == metric {
			return true
		}
	}
	return false
}

// WriteJSON writes everything.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// Formats of numbers: three digits are what a benchmark may claim.

func count(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', 2, 64) + "M"
	case v >= 1e4:
		return strconv.FormatFloat(v/1e3, 'f', 1, 64) + "k"
	case v >= 100 || v == float64(int64(v)):
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

func fraction(v float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 2, 64), ".00")
}

func factor(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func duration(v float64) string {
	d := time.Duration(v)
	switch {
	case d >= 10*time.Second:
		d = d.Round(100 * time.Millisecond)
	case d >= 10*time.Millisecond:
		d = d.Round(100 * time.Microsecond)
	case d >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	case d >= 10*time.Microsecond:
		d = d.Round(100 * time.Nanosecond)
	}
	return d.String()
}
