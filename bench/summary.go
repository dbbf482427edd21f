package bench

import (
	"fmt"
	"io"
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
	var names []string // of contenders that have played anything
	column := make(map[string]int)
	for _, result := range r.Results {
		for _, row := range result.Rows {
			if _, known := column[row.Contender]; !known && !row.Floor && row.Skipped == "" {
				column[row.Contender] = len(names)
				names = append(names, row.Contender)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	line := func(cells []string) { fmt.Fprintf(t, "| %s\t|\n", strings.Join(cells, "\t| ")) }
	fmt.Fprintln(w)
	line(append([]string{"scenario", "median"}, names...))
	line(append([]string{"---", "---"}, strings.Split(strings.Repeat("---: ", len(names)), " ")[:len(names)]...))
	for _, result := range r.Results {
		for i, headline := range headlines[result.Scenario.Kind] {
			cells := make([]string, 2+len(names))
			if i == 0 {
				cells[0] = result.Scenario.Name
			}
			cells[1] = headline.head
			for _, row := range result.Rows {
				if n, ok := column[row.Contender]; ok && row.Skipped == "" {
					cells[2+n] = headline.median(row)
				}
			}
			line(cells)
		}
	}
	return t.Flush()
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
