package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// headlines are the columns by which a scenario is known, a line of the summary
// each.
var headlines = map[Kind][]column{
	Cycle:   {{"ops/s", "throughput, × floor", scriptsName, factor}, {"p99", "p99, × floor", scriptsName, factor}},
	Contend: {{"handoffs/s", "hand-offs, × floor", scriptsName, factor}, {"jain", "Jain", "", fraction}, {"longest", "longest wait", "", duration}},
	Wakeup:  {{"p50", "p50, floor cycles", scriptsName, factor}, {"p50", "p50, round trips", pingName, factor}},
	Foreign: {{"longest", "longest wait", "", duration}, {"ops/s", "throughput of all, × floor", scriptsName, factor}},
	Idle:    {{"commands/s", "commands/s", "", fraction}, {"memory", "bytes per waiter", "", count}},
	Held:    {{"reads/100 scripts", "round trips per 100 renewals", "", fraction}, {"lost", "locks lost", "", count}, {"server CPU %", "server CPU, %", "", fraction}, {"p99", "PING p99", "", duration}},
}

// writeSummary writes a table in Markdown: a line per headline, medians of the
// contenders side by side.
func (r *Report) writeSummary(w io.Writer) error {
	names := r.played()
	if len(names) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	line := func(cells []string) { fmt.Fprintf(t, "| %s\t|\n", strings.Join(cells, "\t| ")) }
	fmt.Fprintln(w)
	line(append([]string{"scenario", "median"}, names...))
	line(append([]string{"---", "---"}, slices.Repeat([]string{"---:"}, len(names))...))
	for _, result := range r.Results {
		for i, headline := range headlines[result.Scenario.Kind] {
			cells := make([]string, 2+len(names))
			if i == 0 {
				cells[0] = result.Scenario.Name
			}
			cells[1] = headline.head
			for _, row := range result.Rows {
				if n := slices.Index(names, row.Contender); n >= 0 && row.Skipped == "" {
					cells[2+n] = headline.median(row)
				}
			}
			line(cells)
		}
	}
	return t.Flush()
}

// played returns the contenders that took part in anything.
func (r *Report) played() (names []string) {
	took := make(map[string]bool)
	for _, result := range r.Results {
		for _, row := range result.Rows {
			took[row.Contender] = took[row.Contender] || !row.Floor && row.Skipped == ""
		}
	}
	for _, result := range r.Results[:min(1, len(r.Results))] { // all have the same rows
		for _, row := range result.Rows {
			if took[row.Contender] {
				names = append(names, row.Contender)
			}
		}
	}
	return names
}
