package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Share is the result of one process in a run.
type Share struct {
	Ops     int64         `json:"ops"`
	Latency Percentiles   `json:"latency"` // as in Sample
	CPU     time.Duration `json:"cpu_ns"`

	latencies *hdr.Histogram
}

// shared tells that several processes do the same, so that each can be shown by
// itself.
func (s Scenario) shared() bool {
	return s.Kind == Cycle && s.Processes > 1
}

// share is the part of a process in a run of that length.
func (t *tally) share(s Scenario, span time.Duration) (Share, error) {
	raw := newHistogram()
	if err := decode(raw, t.Latencies); err != nil {
		return Share{}, err
	}
	share := Share{CPU: t.CPU, latencies: s.correct(raw, span, len(t.Taken))}
	for _, n := range t.Taken {
		share.Ops += n
	}
	share.Latency = percentiles(share.latencies)
	return share, nil
}

// correct corrects the latencies of so many goroutines, where that applies.
func (s Scenario) correct(raw *hdr.Histogram, span time.Duration, goroutines int) *hdr.Histogram {
	if !s.corrected() || raw.TotalCount() == 0 {
		return raw
	}
	return corrected(raw, span*time.Duration(goroutines)/time.Duration(raw.TotalCount()))
}

var shareColumns = append(append(show("ops/s"), ratios("ops/s", scriptsName)...), show("p50", "p99", "p99.9", "max", "client CPU/op")...)

// writeShares writes what each process has done, if there are several, in ratio to
// the same process of the floor.
func (r Result) writeShares(w io.Writer) error {
	if !r.Scenario.shared() {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "\nprocess\t")
	for _, c := range shareColumns {
		fmt.Fprintf(t, "%s\t", c.head())
	}
	fmt.Fprintln(t)
	for process := range r.Scenario.Processes {
		for _, row := range r.shareRows(process) {
			fmt.Fprintf(t, "%s %d\t", row.Contender, process+1)
			for _, c := range shareColumns {
				fmt.Fprintf(t, "%s\t", c.cell(row, r.Scenario))
			}
			fmt.Fprintln(t)
		}
	}
	return t.Flush()
}

// shareRows is the table as one process has played it.
func (r Result) shareRows(process int) (rows []Row) {
	for _, row := range r.Rows {
		own := Row{Contender: row.Contender, Floor: row.Floor}
		for _, s := range row.Samples {
			share := s.Shares[process]
			latencies := share.latencies
			if latencies == nil {
				latencies = newHistogram() // a report that was read
			}
			own.Samples = append(own.Samples, &Sample{
				Round: s.Round, Elapsed: s.Elapsed, Ops: share.Ops, Latency: share.Latency, ClientCPU: share.CPU, latencies: latencies,
			})
		}
		if row.Skipped == "" && len(own.Samples) > 0 {
			rows = append(rows, own)
		}
	}
	summarizeRows(rows)
	return rows
}
