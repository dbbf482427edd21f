package verify

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// figures are what was counted in some rounds.
type figures struct {
	faults, histories, operations, grants, losses, ordered int
	// These must be zero.
	violations, missed, goroutines, connections, keys int

	wakes []time.Duration
	slept time.Duration // the longest that a waiter slept although nobody had the lock
	notes []string      // of what must be zero
}

// add counts one history. It returns false if a wake-up was missed.
func (f *figures) add(h *history, asleep func(wait) time.Duration, healed int64, patience time.Duration) bool {
	before := f.missed
	f.operations += h.ops
	f.grants += h.grants
	f.losses += h.losses
	f.ordered += h.ordered
	f.wakes = append(f.wakes, h.wakes(healed)...)
	for _, w := range h.waits {
		slept := asleep(w)
		f.slept = max(f.slept, slept)
		if slept > patience || w.must && !w.got {
			f.missed++
			f.notes = append(f.notes, fmt.Sprintf("%s: a waiter slept %v beside a lock that nobody had, after a call %v after healing, and then got it: %v %s",
				h.lock, slept, time.Duration(w.call-healed), w.got, w.err))
		}
	}
	return f.missed == before
}

func (f *figures) sum(other figures) {
	f.faults += other.faults
	f.histories += other.histories
	f.operations += other.operations
	f.grants += other.grants
	f.losses += other.losses
	f.ordered += other.ordered
	f.violations += other.violations
	f.missed += other.missed
	f.goroutines += other.goroutines
	f.connections += other.connections
	f.keys += other.keys
	f.wakes = append(f.wakes, other.wakes...)
	f.slept = max(f.slept, other.slept)
	f.notes = append(f.notes, other.notes...)
}

// clean reports whether everything that must be zero is.
func (f *figures) clean() bool {
	return f.violations+f.missed+f.goroutines+f.connections+f.keys == 0
}

// wake returns the median and the worst wake-up.
func (f *figures) wake() (median, worst time.Duration) {
	if len(f.wakes) == 0 {
		return 0, 0
	}
	slices.Sort(f.wakes)
	return f.wakes[len(f.wakes)/2].Round(10 * time.Microsecond), f.wakes[len(f.wakes)-1].Round(ms)
}

// line is what a row says when it ends, as the nth of all.
func (f *figures) line(n, all int, name string, failed bool, took time.Duration) string {
	text := fmt.Sprintf("%3d of %d  ok    %s: %d grants, %v", n, all, name, f.grants, took.Round(ms))
	if failed || !f.clean() {
		text = fmt.Sprintf("%3d of %d  FAIL  %s: %d grants, %d violations, %d missed, %d goroutines, %d connections, %d keys, %v",
			n, all, name, f.grants, f.violations, f.missed, f.goroutines, f.connections, f.keys, took.Round(ms))
	}
	if len(f.notes) > 0 {
		text += "\n            " + f.notes[0]
	}
	return text
}

// row is a line of the table.
type row struct {
	name string
	lock variety
	figures
}

// print writes the table, and the totals.
func print(out io.Writer, rows []row) (total figures) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(n, name string, f figures) {
		median, worst := f.wake()
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%v\t%v\t%v\t\n", n, name, f.faults, f.histories, f.operations, f.grants,
			f.losses, f.violations, f.missed, f.goroutines, f.connections, f.keys, median, worst, f.slept.Round(ms))
	}
	fmt.Fprintln(t, "\tfault\tstruck\thistories\toperations\tgrants\tlosses told\tVIOLATIONS\tMISSED\tGOROUTINES\tCONNECTIONS\tKEYS\twake-up\tworst\tslept\t")
	for n, r := range rows {
		line(fmt.Sprint(n+1), r.name, r.figures)
		total.sum(r.figures)
	}
	for _, v := range varieties {
		var kind figures
		count := 0
		for _, r := range rows {
			if r.lock == v {
				kind.sum(r.figures)
				count++
			}
		}
		if count > 0 && count < len(rows) {
			line("", fmt.Sprintf("%v: %d rows", v, count), kind)
		}
	}
	line("", fmt.Sprintf("all: %d rows", len(rows)), total)
	_ = t.Flush()
	fmt.Fprintf(out, "VIOLATIONS of the models, MISSED wake-ups (a waiter slept beside a free lock for longer than the row's fault may cost), and what was left\n"+
		"after Close: GOROUTINES, CONNECTIONS, KEYS that are locks or queues or have no TTL. All must be zero. Wake-up: from an unlock\n"+
		"until a waiter has the lock, median and worst, when the fault is over. Slept: the longest that somebody waited although nobody\n"+
		"had the lock.\n")
	if total.ordered > 0 {
		fmt.Fprintf(out, "Fair locks: %d calls came after a waiter that was known to be in the queue, and were served after it.\n", total.ordered)
	}
	for _, r := range rows {
		for n, note := range r.notes {
			if n == 3 {
				fmt.Fprintf(out, "%s: %d more\n", r.name, len(r.notes)-n)
				break
			}
			fmt.Fprintln(out, note)
		}
	}
	return total
}
