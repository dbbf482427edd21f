package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// column is one of a table. Those without a width share what is left.
type column struct {
	title string
	width int // of the terminal; negative: at the right
	share int // of 100
}

// topColumns are the columns of the tables, by the value of --by.
var topColumns = map[string][]column{
	byLock: {
		{"LOCK", 0, 38}, {"KIND", 6, 0}, {"HOLDER", 0, 36}, {"PURPOSE", 0, 26}, {"HELD", -6, 0}, {"TTL", -6, 0}, {"WAIT", -4, 0}, {"ACQ/S", -6, 0},
	},
	byName:  {{"LOCK", 0, 55}, {"GROUP", 0, 45}, {"WAITING", -8, 0}, {"WAITS/S", -8, 0}, {"MOST", -6, 0}, {"CLIENTS", -7, 0}},
	byGroup: {{"GROUP", 0, 100}, {"WAITING", -8, 0}, {"WAITS/S", -8, 0}, {"MOST", -6, 0}, {"NAMES", -7, 0}},
}

// sortTop puts the locks into the order of a column; where that is the same, and by
// default, the most waited for come first, then those held for the longest time.
func sortTop(v *topView, by string) {
	rest := func(l *topLock) int64 {
		if l.TTL == nil {
			return 1 << 62
		}
		return *l.TTL
	}
	compare := map[string]func(a, b *topLock) int{
		"lock":   func(a, b *topLock) int { return cmp.Compare(a.Name, b.Name) },
		"holder": func(a, b *topLock) int { return cmp.Compare(a.holder(), b.holder()) },
		"held":   func(a, b *topLock) int { return cmp.Compare(b.held(), a.held()) },
		"ttl":    func(a, b *topLock) int { return cmp.Compare(rest(a), rest(b)) },
		"wait":   func(a, b *topLock) int { return cmp.Compare(b.Waiters, a.Waiters) },
		"rate":   func(a, b *topLock) int { return cmp.Compare(v.rate(b), v.rate(a)) },
	}
	first, wait, held, name := compare[by], compare["wait"], compare["held"], compare["lock"]
	slices.SortFunc(v.Locks, func(a, b *topLock) int {
		for _, f := range [...]func(a, b *topLock) int{first, wait, held, name} {
			if n := f(a, b); n != 0 {
				return n
			}
		}
		return 0
	})
}

// topOrders are the names of the orders, in that of the columns.
func topOrders() []string { return []string{"lock", "holder", "held", "ttl", "wait", "rate"} }

// holder says who holds the lock: where that is or, if it is not known, which owner.
func (l *topLock) holder() string {
	if len(l.Holders) == 0 {
		return "-"
	}
	first := l.Holders[0]
	text := cmp.Or(first.String(), printable(first.Owner))
	if more := len(l.Holders) - 1; more > 0 {
		text += " +" + strconv.Itoa(more)
	}
	return text
}

// purpose says what for the first holder that tells it holds the lock.
func (l *topLock) purpose() string {
	for _, h := range l.Holders {
		if h.Purpose != "" {
			return printable(h.Purpose)
		}
	}
	return "-"
}

// row returns the texts of the columns. None has anything that a terminal would obey.
func (v *topView) row(l *topLock) []string {
	rate, wait := "-", "-"
	if r := v.rate(l); r >= 0 {
		rate = strconv.FormatFloat(r, 'f', 1, 64)
	}
	if l.Waiters > 0 {
		wait = strconv.Itoa(l.Waiters)
	}
	held := short(l.held())
	if l.kept() {
		held = "kept"
	}
	return []string{printable(l.Name), cmp.Or(printable(l.Kind), "-"), l.holder(), l.purpose(), held, short(l.rest()), wait, rate}
}

// String is a line about the loss.
func (l lossView) String() string {
	text := fmt.Sprintf("lost %s ago: %s, by %s", short(time.Duration(l.AgoMS)*time.Millisecond), printable(l.Name), cmp.Or(l.hostView.String(), printable(l.Owner)))
	if l.Purpose != "" {
		text += ": " + printable(l.Purpose)
	}
	return text + " (" + printable(l.Cause) + ")"
}

// String is a line about the deadlock.
func (d deadlock) String() string {
	cycle := strings.ReplaceAll(d.Cycle, `"`, "'") // printable would quote the quotes
	return fmt.Sprintf("deadlock for %s: %s (in the log of %s)", short(time.Duration(d.WaitMS)*time.Millisecond), printable(cycle), cmp.Or(d.hostView.String(), printable(d.Client)))
}

// events are the lines below the locks: deadlocks and losses.
func (v *topView) events() (lines []string) {
	for _, d := range v.Dead {
		lines = append(lines, d.String())
	}
	for _, l := range v.Lost {
		lines = append(lines, l.String())
	}
	return lines
}

// summary is the first line. What it says of all clients is of all names.
func (v *topView) summary() string {
	held, waiters, rate, leftOut := 0, 0, 0.0, 0
	for i := range v.Locks {
		if len(v.Locks[i].Holders) > 0 && !v.Locks[i].kept() {
			held++
		}
		waiters += v.Locks[i].Waiters
	}
	for i := range v.Clients {
		rate += v.Clients[i].PerSecond
		leftOut += v.Clients[i].LeftOut
	}
	text := fmt.Sprintf("long holds %d, calls waiting %d, lost %d; all clients: %d, acquired/s %.1f", held, waiters, len(v.Lost), len(v.Clients), rate)
	if leftOut > 0 {
		text += fmt.Sprintf(", locks left out %d", leftOut)
	}
	return text
}

// printTop prints plain lines, of any width.
func printTop(w io.Writer, v *topView) error {
	fmt.Fprintln(w, v.summary())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(v.Locks) > 0 {
		fmt.Fprintln(t, strings.Join(titles(byLock), "\t"))
	}
	for i := range v.Locks {
		fmt.Fprintln(t, strings.Join(v.row(v.Locks[i]), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, line := range v.events() {
		fmt.Fprintln(w, line)
	}
	return nil
}

// colours are how a terminal shows what; all empty if it should not.
type colours struct{ head, waited, lost, dim, off string }

func newColours(on bool) colours {
	if !on {
		return colours{}
	}
	return colours{"\x1b[7m", "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"}
}

// mostEvents is how many events a picture has below the locks: deadlocks, and then the newest losses.
const mostEvents = 3

// room is how many locks a picture of so many rows has room for.
func (v *topView) room(rows int) int {
	const others = 3 // summary, titles, status
	return max(rows-others-min(len(v.Dead)+len(v.Lost), mostEvents), 1)
}

// frame returns the lines of a picture of so many columns and rows. status is the last.
func (v *topView) frame(columns, rows, skip int, status string, c colours) []string {
	lines := []string{c.head + table(byLock, columns, titles(byLock)) + c.off}
	skip = min(skip, max(len(v.Locks)-1, 0))
	for _, l := range v.Locks[skip:min(skip+v.room(rows), len(v.Locks))] {
		line := table(byLock, columns, v.row(l))
		if l.Waiters > 0 {
			line = c.waited + line + c.off
		}
		lines = append(lines, line)
	}
	events := v.events()
	for _, line := range events[:min(len(events), mostEvents)] {
		lines = append(lines, c.lost+cut(line, columns)+c.off)
	}
	return v.picture(columns, rows, lines, status, c)
}

// picture puts the summary before lines, and status behind them.
func (v *topView) picture(columns, rows int, lines []string, status string, c colours) []string {
	all := []string{fit(v.summary(), columns)}
	all = append(all, lines[:min(len(lines), max(rows-2, 0))]...)
	for len(all) < rows-1 {
		all = append(all, "")
	}
	return append(all, c.dim+fit(status, columns)+c.off)
}

func titles(by string) (all []string) {
	for _, c := range topColumns[by] {
		all = append(all, c.title)
	}
	return all
}

// table returns a line of the table that --by has chosen, in so many columns.
func table(by string, columns int, texts []string) string {
	all := topColumns[by]
	left, last := columns-len(all)+1, 0 // of those that share
	for i, c := range all {
		left -= max(c.width, -c.width)
		if c.share > 0 {
			last = i
		}
	}
	left = max(left, 0)
	words, spent := make([]string, len(texts)), 0
	for i, c := range all {
		width := left * c.share / 100
		spent += width
		if i == last {
			width += left - spent
		}
		switch {
		case c.width < 0:
			words[i] = atRight(texts[i], -c.width)
		default:
			words[i] = fit(texts[i], max(c.width, width))
		}
	}
	return strings.TrimRight(fit(strings.Join(words, " "), columns), " ")
}
