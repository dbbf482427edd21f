package bench

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-rlock/rlock/rlock"
)

// The two bounds of [rlock.WithHandoff], each tried by itself: for the defaults,
// which are to be read off the curve of throughput against the longest wait.
var (
	budgetTimes  = []time.Duration{500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond, 8 * time.Millisecond}
	budgetCounts = []int{128, 256, 512, 1024, 2048, 4096}
)

// budgetTime and budgetCount name the variants.
func budgetTime(longest time.Duration) string {
	return "handoff-" + strings.Replace(longest.String(), "µ", "u", 1)
}

func budgetCount(most int) string { return fmt.Sprintf("handoff-%d", most) }

// budgets are the default lock with other budgets.
func budgets() (all []Contender) {
	add := func(name, about string, most int, longest time.Duration) {
		all = append(all, Contender{
			Name: name, About: "the default lock, with hand-offs " + about,
			New: newKind(func(c *rlock.Client, name string) *rlock.Lock {
				return c.NewLock(name, rlock.WithHandoff(most, longest))
			}),
			Redisson: true, Variant: true, Kinds: []Kind{Contend, Foreign},
		})
	}
	for _, longest := range budgetTimes {
		add(budgetTime(longest), fmt.Sprintf("for at most %v, up to a million", longest), 1<<20, longest)
	}
	for _, most := range budgetCounts {
		add(budgetCount(most), fmt.Sprintf("at most %d in a row, however long", most), most, time.Hour)
	}
	return all
}

// budgetPanels draw the curve for each scenario in which there is one.
func (r *Report) budgetPanels() (panels []panel) {
	var times, counts []string
	for _, longest := range budgetTimes {
		times = append(times, budgetTime(longest))
	}
	for _, most := range budgetCounts {
		counts = append(counts, budgetCount(most))
	}
	for _, result := range r.Results {
		p := panel{
			title: result.Scenario.Name + ": cycles per floor cycle, against the longest wait elsewhere",
			xText: duration, yText: factor,
		}
		for _, line := range []struct {
			name string
			rows []string
		}{{"bound in time", times}, {"in number", counts}, {"default", []string{rlockName}}} {
			l := line2d{name: line.name}
			for _, name := range line.rows {
				if row := result.row(name); row != nil {
					l.points = append(l.points, dot{
						x: row.Values["longest"].Value.Max, y: row.Values["ops/s"].Ratios[scriptsName].Median,
						label: strings.TrimPrefix(name, "handoff-"),
					})
				}
			}
			if len(l.points) > 0 {
				p.lines = append(p.lines, l)
			}
		}
		if len(p.lines) > 1 { // not the default alone
			panels = append(panels, p)
		}
	}
	return panels
}

// row returns that of a contender, nil if it was not played.
func (r Result) row(contender string) *Row {
	for i, row := range r.Rows {
		if row.Contender == contender && row.Skipped == "" {
			return &r.Rows[i]
		}
	}
	return nil
}
