package main

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// level is how a check came out.
type level string

const (
	fine      level = "ok"
	unchecked level = "not checked" // why is in the text; nothing is known
	warning   level = "warning"     // locks work, but not always as they should
	broken    level = "broken"      // locks do not work
)

// of names the level of n findings.
func (l level) of(n int) string {
	if l == warning && n > 1 {
		return "warnings"
	}
	return string(l)
}

// finding is the result of a check.
type finding struct {
	Check  string         `json:"check"`           // what was checked, a name that stays
	Nodes  []string       `json:"nodes,omitempty"` // of several, which
	Level  level          `json:"level"`
	Text   string         `json:"text"`             // what is the case, and what it means for locks
	Advice string         `json:"advice,omitempty"` // what to do
	Values map[string]any `json:"values,omitempty"` // what was measured; names end in the unit
}

// report is what `rlock doctor` prints.
type report struct {
	Server   string    `json:"server"`
	Topology string    `json:"topology"` // standalone, cluster or sentinel
	Level    level     `json:"level"`    // the worst: ok, warning or broken
	Findings []finding `json:"findings"`
	ACL      struct {
		Locks    string `json:"locks"`     // makes a user who may take plain locks and nothing else
		ReadOnly string `json:"read_only"` // one who may look only
	} `json:"acl"`
}

// add merges what is the same on several nodes.
func (r *report) add(findings ...finding) {
	for _, f := range findings {
		same := slices.IndexFunc(r.Findings, func(g finding) bool {
			return g.Check == f.Check && g.Level == f.Level && g.Text == f.Text && reflect.DeepEqual(g.Values, f.Values)
		})
		if same >= 0 {
			r.Findings[same].Nodes = append(r.Findings[same].Nodes, f.Nodes...)
			continue
		}
		r.Findings = append(r.Findings, f)
	}
}

// worst returns the level of all findings together.
func (r *report) worst() level {
	worst := fine
	for _, f := range r.Findings {
		switch {
		case f.Level == broken:
			return broken
		case f.Level == warning:
			worst = warning
		}
	}
	return worst
}

// exit is the error that carries the exit code; the report says all.
func (r *report) exit() error {
	switch r.worst() {
	case broken:
		return &exitError{code: exitBroken}
	case warning:
		return &exitError{code: exitWarnings}
	}
	return nil
}

// write prints the report, for a terminal in lines that fit.
func (r *report) write(out *output, asJSON bool) error {
	r.Level = r.worst()
	if asJSON {
		return printJSON(out, r)
	}
	return r.print(out, out.columns())
}

// print writes lines of at most so many columns, of any length if that is 0.
func (r *report) print(w io.Writer, columns int) error {
	first, second := 0, 0 // columns of checks and of levels
	for _, f := range r.Findings {
		first, second = max(first, len(f.Check)), max(second, len(f.Level))
	}
	left := columns - first - second - 2*len("  ")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "server\t\t%s, %s\n", r.Server, r.Topology)
	for _, f := range r.Findings {
		text := f.Text
		if len(f.Nodes) > 0 {
			text = strings.Join(f.Nodes, ", ") + ": " + text
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Check, f.Level, strings.Join(fold(legible(text), left), "\n\t\t"))
		if f.Advice != "" {
			fmt.Fprintf(t, "\t\t-> %s\n", strings.Join(fold(legible(f.Advice), left-len("-> ")), "\n\t\t   "))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if r.ACL.Locks != "" { // the server was reached
		const locks = "A user who may do what plain locks need, and nothing else (fair and read/write locks: docs/acl.md):"
		_, err := fmt.Fprintf(w, "\n%s\n  %s\nOne who may look at them only:\n  %s\n", strings.Join(fold(locks, columns), "\n"), r.ACL.Locks, r.ACL.ReadOnly)
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", r.summary())
	return err
}

// legible returns a sentence as it is, or quoted if a terminal would obey it.
func legible(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return text
	}
	return printable(text)
}

// fold cuts a text between words into lines of so many columns, unless there is no room for
// words, or the text is a command that is copied.
func fold(text string, columns int) (lines []string) {
	const narrow = 20
	if columns < narrow || strings.HasPrefix(text, "ACL SETUSER ") {
		return []string{text}
	}
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && display.StringWidth(line+" "+word) > columns {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

func (r *report) summary() string {
	count := make(map[level]int)
	for _, f := range r.Findings {
		count[f.Level]++
	}
	var parts []string
	for _, l := range []level{broken, warning, unchecked} {
		if count[l] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[l], l.of(count[l])))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "all is well")
}
