package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/go-rlock/rlock/rlock"
)

// What the lines of rlock top are: the values of --by.
const (
	byLock  = "lock"
	byName  = "name"
	byGroup = "group"
)

func topLines() []string { return []string{byLock, byName, byGroup} }

// mostHot is how many names or groups a table has.
const mostHot = 10

// waitView is how much calls wait for a name or a group, by the records: in the 10 to 20 s before each record was written.
type waitView struct {
	Waiting   float64 `json:"waiting"`          // seconds of waiting per second: so many calls wait on average
	PerSecond float64 `json:"waits_per_second"` // that have ended
	Most      int     `json:"most_waiting"`     // the sum of the most calls of each client at once
}

func (w *waitView) add(other waitView) {
	w.Waiting += other.Waiting
	w.PerSecond += other.PerSecond
	w.Most += other.Most
}

// hotName is a name that costs waiting.
type hotName struct {
	Name   string `json:"name"`
	Quoted string `json:"name_quoted,omitempty"` // see quoted
	Group  string `json:"group"`
	waitView
	Clients int `json:"clients"` // whose records name it
}

// hotGroup is a group of such names.
type hotGroup struct {
	Group string `json:"group"`
	waitView
	Names int `json:"names"`
}

// worse compares by what costs more waiting, and then by name.
func worse(a, b waitView, nameA, nameB string) int {
	return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(nameA, nameB))
}

// hotNames returns the hot names of all clients that keep accepts, the worst first.
func (all clientRecords) hotNames(keep func(name string) bool) []hotName {
	names := make(map[string]hotName)
	for _, r := range all {
		for _, h := range r.Hot {
			if !keep(h.Name) {
				continue
			}
			n := names[h.Name]
			n.Name, n.Quoted, n.Group = h.Name, quoted(h.Name), max(n.Group, h.Group) // clients can have different functions
			n.add(waitView{h.Waiting, h.PerSecond, h.Most})
			n.Clients++
			names[h.Name] = n
		}
	}
	hot := make([]hotName, 0, len(names))
	for _, n := range names {
		n.Group = cmp.Or(n.Group, rlock.NameGroup(n.Name))
		hot = append(hot, n)
	}
	slices.SortFunc(hot, func(a, b hotName) int { return worse(a.waitView, b.waitView, a.Name, b.Name) })
	return hot
}

// hotGroups sums up names by group, the worst first.
func hotGroups(names []hotName) []hotGroup {
	groups := make(map[string]hotGroup)
	for _, n := range names {
		g := groups[n.Group]
		g.Group = n.Group
		g.add(n.waitView)
		g.Names++
		groups[n.Group] = g
	}
	all := slices.AppendSeq(make([]hotGroup, 0, len(groups)), maps.Values(groups))
	slices.SortFunc(all, func(a, b hotGroup) int { return worse(a.waitView, b.waitView, a.Group, b.Group) })
	return all
}

// hotRows returns the texts of the table that --by has chosen. None has anything that a terminal would obey.
func (v *topView) hotRows(by string) (rows [][]string) {
	row := func(w waitView, texts []string, count int) []string {
		rate := func(r float64) string { return strconv.FormatFloat(r, 'f', 1, 64) }
		return append(texts, rate(w.Waiting), rate(w.PerSecond), strconv.Itoa(w.Most), strconv.Itoa(count))
	}
	if by == byName {
		for _, n := range v.Hot[:min(len(v.Hot), mostHot)] {
			rows = append(rows, row(n.waitView, []string{printable(n.Name), printable(n.Group)}, n.Clients))
		}
		return rows
	}
	for _, g := range v.Groups[:min(len(v.Groups), mostHot)] {
		rows = append(rows, row(g.waitView, []string{printable(g.Group)}, g.Names))
	}
	return rows
}

// noneHot is shown instead of an empty table.
const noneHot = "no hot names match, or no client has waited for at least 1% of the time"

// printHot prints the table that --by has chosen, as plain lines of any width.
func printHot(w io.Writer, by string, v *topView) error {
	rows := v.hotRows(by)
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, noneHot)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{titles(by)}, rows...) {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// hotLines returns that table for a picture of so many columns.
func (v *topView) hotLines(by string, columns int, c colours) []string {
	rows := v.hotRows(by)
	if len(rows) == 0 {
		return []string{cut(noneHot, columns)}
	}
	lines := []string{c.head + table(by, columns, titles(by)) + c.off}
	for _, row := range rows {
		lines = append(lines, table(by, columns, row))
	}
	return lines
}
