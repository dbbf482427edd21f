package bench

import (
	"fmt"
	"slices"
	"time"
)

// cost is what a hand-over costs, as a picture shows it.
type cost struct {
	title  string
	metric string
	scale  float64 // of the value, to be 1 or more
	format func(float64) string
}

var costs = []cost{
	{"requests per hand-over", "requests/handoff", 1, count}, // of this library, scripts
	{"server CPU per hand-over", "server CPU/handoff", 1 / float64(time.Microsecond), func(us float64) string { return duration(us * float64(time.Microsecond)) }},
	{"longest wait", "longest", 1 / float64(time.Millisecond), func(ms float64) string { return duration(ms * float64(time.Millisecond)) }},
}

// widePanels draw what a hand-over costs with more and more clients: for each
// length of the critical section a panel per cost.
func (r *Report) widePanels() (panels []panel) {
	var sections []time.Duration
	for _, result := range r.Results {
		if s := result.Scenario; s.Kind == Wide && s.RTT == 0 && !slices.Contains(sections, s.Section) {
			sections = append(sections, s.Section)
		}
	}
	slices.Sort(sections)
	slices.Reverse(sections) // a lock that is held is what is usual
	for _, section := range sections {
		for _, c := range costs {
			if p := r.widePanel(section, c); len(p.lines) > 0 {
				panels = append(panels, p)
			}
		}
	}
	return panels
}

func (r *Report) widePanel(section time.Duration, c cost) panel {
	held := "no section"
	if section > 0 {
		held = fmt.Sprintf("held for %v", section)
	}
	p := panel{title: fmt.Sprintf("%s, against clients that want the lock; %s", c.title, held), logY: true, xText: count, yText: c.format}
	lines := make(map[string]int)
	for _, result := range r.Results {
		s := result.Scenario
		if s.Kind != Wide || s.RTT != 0 || s.Section != section {
			continue
		}
		for _, row := range result.Rows {
			if row.Floor || row.Skipped != "" || row.Values["handoffs/s"].Value.Max == 0 { // nothing has a cost
				continue
			}
			n, ok := lines[row.Contender]
			if !ok {
				n = len(p.lines)
				lines[row.Contender] = n
				p.lines = append(p.lines, line2d{name: row.Contender})
			}
			spread := row.Values[c.metric].Value
			value := spread.Median
			if metricOf(c.metric).worst {
				value = spread.Max
			}
			p.lines[n].points = append(p.lines[n].points, dot{x: float64(s.clients()), y: max(value*c.scale, 1)})
		}
	}
	return p
}
