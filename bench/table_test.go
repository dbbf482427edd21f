package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestColumnsNameMetrics(t *testing.T) {
	known := make(map[string]bool)
	for _, m := range metrics {
		require.False(t, known[m.name], m.name)
		known[m.name] = true
		require.NotEmpty(t, m.head, m.name)
		require.NotNil(t, m.format, m.name)
	}
	for kind, columns := range columns {
		for _, c := range columns {
			require.True(t, known[c.metric], "%s: %s", kind, c.metric)
		}
	}
}

func TestSummary(t *testing.T) {
	r := &Report{Results: []Result{{
		Scenario: Scenario{About: "one lock", Kind: Contend},
		Rows:     []Row{row(scriptsName, true, 0, 100, 100), row("x", false, 200, 200, 200), row("y", false, 0), row("z", false, 300, 7, 7)},
	}}}
	rows := r.Results[0].Rows
	rows[2].Skipped = unsuited
	rows[1].Samples[0].Longest, rows[1].Samples[1].Longest = time.Millisecond, 5*time.Millisecond
	rows[3].Samples[1].Violations = 1
	summarizeRows(rows)
	var out strings.Builder
	require.NoError(t, r.WriteSummary(&out))
	require.Equal(t, `|                                      | x      | z     |
| ---                                  | ---:   | ---:  |
| one lock: hand-offs, × floor         | 2      | 3     |
| the same: Jain's index, longest wait | 0, 5ms | 0, 0s |

414 critical sections, 1 violations of mutual exclusion.
`, out.String(), "of the rounds, the longest wait is the longest")
}

func TestCountersAreScaledToTheWindow(t *testing.T) {
	s := &Sample{Elapsed: time.Second, Counted: 800 * time.Millisecond, Ops: 10, Scripts: 16}
	require.InDelta(t, 2, metricOf("scripts/op").value(s), 1e-9)
	require.InDelta(t, 20, metricOf("scripts/s").value(s), 1e-9)
	s.Counted = 0 // an old report
	require.InDelta(t, 1.6, metricOf("scripts/op").value(s), 1e-9)
}
