package bench

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Sizes of a picture, which has two columns of panels.
const (
	panelWidth, panelHeight = 760.0, 300.0
	left, right             = 70.0, 190.0 // margins of a panel; the right one has the legend
	top, bottom             = 36.0, 44.0
)

// mostPanels can still be read on a page. The latencies of the scenarios in shown come first.
const mostPanels = 6

var shown = []string{"uncontended-1", "uncontended-64", "hot-8x8", "hot-8x8-200us", "wakeup-remote"}

// palette is told apart by those who confuse red and green (Okabe and Ito); greys is for floors.
var (
	palette = []string{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000", "#56B4E9"}
	greys   = []string{"#bbbbbb", "#777777"}
)

// look is how a contender is drawn.
type look struct{ color, dashes string }

// panel is a diagram of lines over a logarithmic x axis.
type panel struct {
	title string
	lines []line2d
	logY  bool
	at    []float64 // marks of the x axis, the ends with them; nil: powers of ten
	xText func(float64) string
	yText func(float64) string
}

type line2d struct {
	name   string
	look   look // of lines of that name, in all panels
	points []dot
}

// dot may have a label, and is marked then.
type dot struct {
	x, y  float64
	label string
}

// WriteSVG draws pictures of the scenarios and contenders that were run: the number of hand-offs for a growing
// number of waiters, the cost of a hand-off for a growing number of clients, and the effect of larger limits
// for hand-offs in memory on other clients. If there is room, it also draws the latencies of scenarios.
func (r *Report) WriteSVG(out io.Writer) error {
	var panels []panel
	if p := r.handoffPanel(); len(p.lines) > 0 {
		panels = append(panels, p)
	}
	panels = slices.Concat(panels, r.widePanels(), r.budgetPanels(), r.latencyPanels())
	panels = panels[:min(len(panels), mostPanels)]
	r.setLooks(panels)
	w := bufio.NewWriter(out)
	columns := min(max(len(panels), 1), 2)
	width := panelWidth * float64(columns)
	height := panelHeight*float64((len(panels)+columns-1)/columns) + 24
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="15">`+"\n", width, height)
	fmt.Fprintf(w, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for i, p := range panels {
		fmt.Fprintf(w, `<g transform="translate(%g %g)">`+"\n", panelWidth*float64(i%columns), panelHeight*float64(i/columns))
		p.draw(w)
		fmt.Fprintln(w, "</g>")
	}
	e := r.Environment
	text(w, left, height-10, "start", "#666", fmt.Sprintf("%s, %s, %d CPUs, %s, %d rounds of %v", e.Server, e.Machine, e.CPUs, e.Go, e.Rounds, e.Duration))
	fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

// setLooks gives each contender one look in all panels: this library the first colour, a peer with
// tuned settings the colour of the peer and dashes, and a floor a grey.
func (r *Report) setLooks(panels []panel) {
	looks, used := make(map[string]look), map[bool]int{}
	see := func(name string, floor bool) look {
		if l, ok := looks[name]; ok {
			return l
		}
		colors := palette
		if floor {
			colors = greys
		}
		l := look{color: colors[used[floor]%len(colors)], dashes: "none"}
		if used[floor]++; used[floor] > len(colors) {
			l.dashes = "5 3"
		}
		looks[name] = l
		return l
	}
	see(rlockName, false)
	for _, result := range r.Results {
		for _, row := range result.Rows {
			peer, tuned := strings.CutSuffix(row.Contender, "-tuned")
			if l := see(peer, row.Floor); tuned {
				looks[row.Contender] = look{l.color, "5 3"}
			}
		}
	}
	for _, p := range panels {
		for i := range p.lines {
			p.lines[i].look = see(p.lines[i].name, false)
		}
	}
}

func (r *Report) latencyPanels() (panels []panel) {
	rank := func(result Result) int { // a scenario that is not shown is last
		if n := slices.Index(shown, result.Scenario.Name); n >= 0 {
			return n
		}
		return len(shown)
	}
	results := slices.Clone(r.Results)
	slices.SortStableFunc(results, func(a, b Result) int { return rank(a) - rank(b) })
	for _, result := range results {
		if k := result.Scenario.Kind; k == Idle || k == Wide || k == Kill {
			continue // there are none, or the picture is of something else
		}
		p := panel{
			title: result.Scenario.Name + ": share of latencies below",
			xText: func(v float64) string { return duration(v) },
			yText: func(v float64) string { return strconv.Itoa(int(math.Round(100*v))) + " %" },
		}
		for _, row := range result.Rows {
			l := line2d{name: row.Contender}
			for _, at := range row.Curve {
				l.points = append(l.points, dot{x: float64(at.At), y: at.Share})
			}
			if len(l.points) > 0 {
				p.lines = append(p.lines, l)
			}
		}
		if len(p.lines) > 0 {
			panels = append(panels, p)
		}
	}
	return panels
}

// handoffPanel takes the scenarios with one lock in one process.
func (r *Report) handoffPanel() panel {
	p := panel{
		title: "hand-offs per second, against goroutines that want the lock", logY: true,
		xText: count, yText: count,
	}
	lines := make(map[string]int)
	for _, result := range r.Results {
		s := result.Scenario
		if s.Kind != Contend || s.Processes != 1 || s.RTT != 0 {
			continue
		}
		for _, row := range result.Rows {
			if row.Floor || len(row.Samples) == 0 {
				continue
			}
			n, ok := lines[row.Contender]
			if !ok {
				n = len(p.lines)
				lines[row.Contender] = n
				p.lines = append(p.lines, line2d{name: row.Contender})
			}
			p.lines[n].points = append(p.lines[n].points, dot{x: float64(s.Goroutines), y: max(row.Values["handoffs/s"].Value.Median, 1)})
		}
	}
	return p
}

// bounds leaves out what has no place on a logarithmic axis, as a window in which nothing
// happened, and returns those of the rest; minX is infinite if there is none.
func (p panel) bounds() (minX, maxX, minY, maxY float64) {
	minX, minY = math.Inf(1), math.Inf(1)
	for i, l := range p.lines {
		p.lines[i].points = slices.DeleteFunc(l.points, func(d dot) bool {
			return !(d.x > 0 && d.y >= 0) || math.IsInf(d.x, 0) || math.IsInf(d.y, 0)
		})
		for _, point := range p.lines[i].points {
			minX, maxX = min(minX, point.x), max(maxX, point.x)
			minY, maxY = min(minY, point.y), max(maxY, point.y)
		}
	}
	return minX, maxX, minY, maxY
}

func (p panel) draw(w io.Writer) {
	minX, maxX, minY, maxY := p.bounds()
	if math.IsInf(minX, 1) {
		text(w, left, 20, "start", "#000", p.title+": nothing was measured")
		return
	}
	marks := p.at
	if marks == nil {
		marks = decades(minX, maxX)
	}
	minX, maxX = marks[0], marks[len(marks)-1]
	levels := []float64{0, maxY / 4, maxY / 2, 3 * maxY / 4, maxY}
	if p.logY {
		levels = decades(max(minY, 1), maxY)
		minY, maxY = levels[0], levels[len(levels)-1]
	}
	x := func(v float64) float64 {
		return left + (panelWidth-left-right)*math.Log(v/minX)/math.Log(maxX/minX)
	}
	y := func(v float64) float64 {
		share := v / maxY
		if p.logY {
			share = math.Log(v/minY) / math.Log(maxY/minY)
		}
		return panelHeight - bottom - (panelHeight-top-bottom)*share
	}
	text(w, left, 20, "start", "#000", p.title)
	for _, v := range marks {
		rule(w, x(v), top, x(v), panelHeight-bottom)
		text(w, x(v), panelHeight-bottom+16, "middle", "#333", p.xText(v))
	}
	for _, v := range levels {
		rule(w, left, y(v), panelWidth-right, y(v))
		text(w, left-6, y(v)+4, "end", "#333", p.yText(v))
	}
	for i, l := range p.lines {
		var path strings.Builder
		for _, point := range l.points {
			fmt.Fprintf(&path, "%.1f,%.1f ", x(point.x), y(point.y))
		}
		color := l.look.color
		fmt.Fprintf(w, `<polyline fill="none" stroke="%s" stroke-width="1.6" stroke-dasharray="%s" points="%s"/>`+"\n", color, l.look.dashes, strings.TrimSpace(path.String()))
		for _, point := range l.points {
			if point.label != "" {
				fmt.Fprintf(w, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x(point.x), y(point.y), color)
				text(w, x(point.x)+5, y(point.y)-5, "start", color, point.label)
			}
		}
		legend := top + 10 + 18*float64(i)
		fmt.Fprintf(w, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="1.6" stroke-dasharray="%s"/>`+"\n",
			panelWidth-right+8, legend-5, panelWidth-right+26, legend-5, color, l.look.dashes)
		text(w, panelWidth-right+30, legend, "start", color, l.name)
	}
}

// decades returns the powers of ten from the last one below least to the first one above most: two or more.
func decades(least, most float64) (marks []float64) {
	first := math.Floor(math.Log10(least))
	for i := first; i < first+2 || i <= math.Ceil(math.Log10(most)); i++ {
		marks = append(marks, math.Pow(10, i))
	}
	return marks
}

func rule(w io.Writer, x1, y1, x2, y2 float64) {
	fmt.Fprintf(w, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n", x1, y1, x2, y2)
}

func text(w io.Writer, x, y float64, anchor, color, s string) {
	s = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
	fmt.Fprintf(w, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, color, s)
}
