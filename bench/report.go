package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Report contains everything that was measured.
type Report struct {
	Environment Environment `json:"environment"`
	Results     []Result    `json:"results"`
}

// Environment describes the machine, the servers and the versions on which the numbers depend.
type Environment struct {
	Time     time.Time         `json:"time"`
	Server   string            `json:"server"`
	Machine  string            `json:"machine"`
	CPUs     int               `json:"cpus"`
	Go       string            `json:"go"`
	Versions map[string]string `json:"versions"` // versions of modules
	Others   int64             `json:"others"`   // connections of other programs to the servers, whose commands are counted as well
	Servers  int               `json:"servers"`  // number of servers, or of masters of the cluster
	Cluster  bool              `json:"cluster"`
	Rest     float64           `json:"rest"` // part of a core that all servers together need without requests; 0 means not measured
	Rounds   int               `json:"rounds"`
	Duration time.Duration     `json:"duration_ns"`
}

// Result contains the rows of one scenario, one for each contender.
type Result struct {
	Scenario Scenario `json:"scenario"`
	Rows     []Row    `json:"rows"` // the first is the floor
}

// Row is one contender in one scenario.
type Row struct {
	Contender string             `json:"contender"`
	Floor     bool               `json:"floor"`
	Quorum    bool               `json:"quorum"`            // locks on all servers
	Skipped   string             `json:"skipped,omitempty"` // why the contender was not run, or not to the end; otherwise ""
	Samples   []*Sample          `json:"samples"`           // one for each round
	Values    map[string]Summary `json:"values"`            // by the name of the metric
	Curve     []Point            `json:"curve"`             // latencies of all rounds, as in Sample.Latency
}

// Summary is one metric over all rounds. Ratios are its ratios to other rows in the same round: to the floors,
// and to the contenders with which it is compared.
type Summary struct {
	Value  Spread            `json:"value"`
	Ratios map[string]Spread `json:"ratios,omitempty"` // by the name of the contender
}

// Spread is the median, the smallest and the greatest of several values.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// references are the rows that others are put in ratio to, where they are.
var references = []string{pingName, pacedName, scriptsName, everywhereName, rlockName, plainName}

func summarizeRows(rows []Row) {
	var against []*Row
	for i := range rows {
		if rows[i].Skipped == "" && slices.Contains(references, rows[i].Contender) {
			against = append(against, &rows[i])
		}
	}
	for i := range rows {
		if rows[i].Skipped == "" {
			rows[i].summarize(against)
		}
	}
}

func (r *Row) summarize(against []*Row) {
	r.Values = make(map[string]Summary)
	for _, m := range metrics {
		sum := Summary{Ratios: make(map[string]Spread)}
		values := make([]float64, len(r.Samples))
		for i, s := range r.Samples {
			values[i] = m.value(s)
		}
		sum.Value = spread(values)
		for _, other := range against {
			if ratios := m.ratios(values, other); len(ratios) > 0 {
				sum.Ratios[other.Contender] = spread(ratios)
			}
		}
		r.Values[m.name] = sum
	}
	all := hdr.New(1, longestLatency, digits)
	for _, s := range r.Samples {
		all.Merge(s.latencies)
	}
	r.Curve = curve(all)
}

// ratios are those of a row's values, one a round, to another row's.
func (m metric) ratios(values []float64, other *Row) (ratios []float64) {
	if m.floor == nil {
		return nil
	}
	reference := m.value
	if other.Floor {
		reference = m.floor
	}
	for i, v := range values {
		if base := reference(other.Samples[i]); base > 0 {
			ratios = append(ratios, v/base)
		}
	}
	return ratios
}

func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return Spread{(values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]}
}

// Problems lists everything that makes a result useless for comparison: violations of mutual exclusion, lost
// locks and errors.
func (r *Report) Problems() (problems []string) {
	for _, result := range r.Results {
		for _, row := range result.Rows {
			if strings.HasPrefix(row.Skipped, "failed") {
				problems = append(problems, fmt.Sprintf("%s, %s %s", result.Scenario.Name, row.Contender, row.Skipped))
			}
			for _, s := range row.Samples {
				if s.Violations+s.Lost+s.Errors > 0 {
					problems = append(problems, fmt.Sprintf("%s, %s, round %d: %d violations of mutual exclusion, %d locks lost, %d errors %s",
						result.Scenario.Name, row.Contender, s.Round, s.Violations, s.Lost, s.Errors, s.FirstErr))
				}
			}
		}
	}
	return problems
}

// sections counts the critical sections in which exclusion was checked, and its
// violations.
func (r *Report) sections() (all, violations int64) {
	for _, result := range r.Results {
		if result.Scenario.Shared {
			continue
		}
		for _, row := range result.Rows {
			if row.Floor {
				continue
			}
			for _, s := range row.Samples {
				all, violations = all+s.Ops, violations+s.Violations
			}
		}
	}
	return all, violations
}

// WriteJSON writes the whole report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(r)
}
