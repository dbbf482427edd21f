package bench

import (
	"fmt"
	"slices"
	"time"
)

// cost is what a hand-off costs, as a picture shows it.
type cost struct {
	title  string // with what it means
	metric string
	scale  float64 // of the value, to be 1 or more
	format func(float64) string
}

var costs = []cost{
	{"hand-offs per second: higher is better", "handoffs/s", 1, count},
	{"longest wait for the lock: lower is better", "longest", 1 / float64(time.Millisecond), func(ms float64) string { return duration(ms * float64(time.Millisecond)) }},
	{"server CPU for each hand-off: lower is better", "server CPU/handoff", 1 / float64(time.Microsecond), func(us float64) string { return duration(us * float64(time.Microsecond)) }},
	{"requests for each hand-off: lower is better", "requests/handoff", 1, count}, // of this library, scripts
}

// widePanels draw what a hand-off costs with more and more clients, a panel for each cost. A lock
// that is held is what is usual: the picture is of the longest section that was played.
func (r *Report) widePanels() (panels []panel) {
	section := time.Duration(-1)
	for _, result := range r.Results {
		if s := result.Scenario; s.Kind == Wide && s.RTT == 0 {
			section = max(section, s.Section)
		}
	}
	for _, c := range costs {
		if p := r.widePanel(section, c); len(p.lines) > 0 {
			panels = append(panels, p)
		}
	}
	return panels
}

func (r *Report) widePanel(section time.Duration, c cost) panel {
	p := panel{title: fmt.Sprintf("%s (over clients with the same lock, held for %v)", c.title, section), logY: true, xText: count, yText: c.format}
	lines := make(map[string]int)
	for _, result := range r.Results {
		s := result.Scenario
		if s.Kind != Wide || s.RTT != 0 || s.Section != section {
			continue
		}
		if x := float64(s.clients()); !slices.Contains(p.at, x) {
			p.at = append(p.at, x)
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
	if slices.Sort(p.at); len(p.at) == 1 {
		p.at = nil // no axis
	}
	return p
}
