package interop

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// report collects what the cases measured, for a table with a column for each
// version and topology.
type report struct {
	title, corner string
	columns       []string

	mu         sync.Mutex // guards what follows
	rows       []string   // in the order of the first measurement
	cells      map[[2]string]string
	acquired   int
	violations int
}

func newReport(title, corner string, columns ...string) *report {
	return &report{title: title, corner: corner, columns: columns, cells: make(map[[2]string]string)}
}

// set fills in a cell.
func (r *report) set(row, column, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.rows, row) {
		r.rows = append(r.rows, row)
	}
	r.cells[[2]string{row, column}] = text
}

// count adds checked critical sections.
func (r *report) count(acquired, violations int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acquired += acquired
	r.violations += violations
}

// write prints the table, and appends it to the file that RLOCK_INTEROP_TABLE names.
func (r *report) write(t *testing.T, notes ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.rows)
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s\n\n| %s | %s |\n|---%s|\n", r.title, r.corner, strings.Join(r.columns, " | "), strings.Repeat("|---", len(r.columns)))
	for _, row := range r.rows {
		_, name, _ := strings.Cut(row, " ") // without its place in the order
		fmt.Fprintf(&b, "| %s |", name)
		for _, column := range r.columns {
			text, ok := r.cells[[2]string{row, column}]
			if !ok {
				text = "not run"
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\n%s\n", strings.Join(notes, "\n"))
	_, _ = io.WriteString(os.Stdout, b.String())
	if name := os.Getenv("RLOCK_INTEROP_TABLE"); name != "" {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		require.NoError(t, err)
		_, err = io.WriteString(f, b.String())
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}

// sample is a set of latencies.
type sample []time.Duration

// at returns the quantile q, 0 of an empty sample.
func (s sample) at(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[int(q*float64(len(s)-1))]
}

func (s sample) median() time.Duration { return s.at(0.5) }
func (s sample) worst() time.Duration  { return s.at(1) }

// String is how a sample stands in the table.
func (s sample) String() string {
	switch len(s) {
	case 0:
		return "none"
	case 1:
		return ms(s[0]) + " ms"
	}
	return fmt.Sprintf("%s / %s ms (%d)", ms(s.median()), ms(s.worst()), len(s))
}

// ms writes milliseconds with about three digits.
func ms(d time.Duration) string {
	v := float64(d.Microseconds()) / 1000
	switch {
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
