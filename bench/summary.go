package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// headline is a line of the summary: columns by which a scenario is known.
type headline struct {
	head string
	of   []column
}

var headlines = map[Kind][]headline{
	Cycle: {
		{"throughput, × floor", ratios("ops/s", scriptsName)},
		{"throughput, × floor on all servers", ratios("ops/s", everywhereName)},
		{"p99, × floor", ratios("p99", scriptsName)},
	},
	Contend: {
		{"hand-offs, × floor", ratios("handoffs/s", scriptsName)},
		{"hand-offs, × floor on all servers", ratios("handoffs/s", everywhereName)},
		{"hand-offs, × pubsub", ratios("handoffs/s", plainName)},
		{"share of what the sections alone allow", show("share")},
		{"Jain's index, longest wait", show("jain", "longest")},
	},
	Wide: {
		{"hand-offs per second, × floor", slices.Concat(show("handoffs/s"), ratios("handoffs/s", scriptsName))},
		{"share of what the sections alone allow", show("share")},
		{"scripts, messages, requests, bytes per hand-off", show("scripts/handoff", "messages/handoff", "requests/handoff", "net/handoff")},
		{"scripts per acquisition", show("scripts/op")},
		{"server CPU per hand-off, × floor", slices.Concat(show("server CPU/handoff"), ratios("server CPU/handoff", scriptsName))},
		{"Jain's index, longest wait", show("jain", "longest")},
		{"wake-up p50, in floor cycles, p99", slices.Concat(show("wakeup p50"), ratios("wakeup p50", scriptsName), show("wakeup p99"))},
	},
	Kill: {
		{"delay, p50 and longest", show("p50", "longest")},
		{"delay in round trips, p50", ratios("p50", pingName)},
	},
	Wakeup: {
		{"p50", show("p50")},
		{"p50 in floor cycles, in paced ones", ratios("p50", scriptsName, pacedName)},
		{"p50 in round trips", ratios("p50", pingName)},
	},
	Foreign: {
		{"longest wait", show("longest")},
		{"throughput of all, × floor", ratios("ops/s", scriptsName)},
	},
	Idle: {
		{"commands per second, bytes of memory each", show("commands/s", "memory")},
		{"per second and client: probes, other requests", show("probes/s each", "others/s each")},
	},
	Held: {
		{"round trips per 100 renewals, goroutines per lock, locks lost", show("reads/100 scripts", "goroutines/lock", "lost")},
		{"server CPU in %, p99 of a PING beside", show("server CPU %", "p99")},
	},
}

// WriteSummary writes a table in Markdown with one line per main result. The contenders are next to each other,
// each with one value for all rounds.
func (r *Report) WriteSummary(w io.Writer) error {
	names := r.played()
	if len(names) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	line := func(cells []string) { fmt.Fprintf(t, "| %s\t|\n", strings.Join(cells, "\t| ")) }
	line(append([]string{""}, names...))
	line(append([]string{"---"}, slices.Repeat([]string{"---:"}, len(names))...))
	for _, result := range r.Results {
		about := result.Scenario.About
		for _, h := range headlines[result.Scenario.Kind] {
			cells, found := make([]string, 1+len(names)), false
			cells[0] = about + ": " + h.head
			for i, name := range names {
				if row := result.row(name); row != nil {
					cells[1+i] = h.cell(*row)
					found = found || cells[1+i] != ""
				}
			}
			if found {
				line(cells)
				about = "the same"
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	sections, violations := r.sections()
	_, err := fmt.Fprintf(w, "\n%d critical sections, %d violations of mutual exclusion.\n", sections, violations)
	return err
}

// cell is empty if there is nothing to compare with.
func (h headline) cell(row Row) string {
	var values []string
	for _, c := range h.of {
		if v := c.value(row); v != none {
			values = append(values, v)
		}
	}
	return strings.Join(values, ", ")
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
