package bench

import (
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies are kept to two digits, in nanoseconds up to two minutes: then a
// histogram per goroutine is small enough not to disturb what it measures.
const (
	longestLatency = int64(2 * time.Minute)
	digits         = 2
)

func newHistogram() *hdr.Histogram { return hdr.New(1, longestLatency, digits) }

func record(h *hdr.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(int64(d), 1), longestLatency)) // cannot be out of range
}

// corrected adds what was omitted: a latency longer than the interval at which
// operations should have begun has kept others from beginning, whose latencies
// would have been shorter by one interval each.
func corrected(raw *hdr.Histogram, interval time.Duration) *hdr.Histogram {
	h := newHistogram()
	for _, bar := range raw.Distribution() {
		if bar.Count == 0 {
			continue
		}
		for v := min(bar.To, longestLatency); v > 0; v -= int64(interval) {
			_ = h.RecordValues(v, bar.Count)
			if interval <= 0 || v < 2*int64(interval) {
				break
			}
		}
	}
	return h
}

// Percentiles are percentiles of latencies.
type Percentiles struct {
	P50  time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
	P999 time.Duration `json:"p999_ns"`
	Max  time.Duration `json:"max_ns"`
}

func percentiles(h *hdr.Histogram) Percentiles {
	v := func(p float64) time.Duration { return time.Duration(h.ValueAtPercentile(p)) }
	return Percentiles{v(50), v(90), v(99), v(99.9), time.Duration(h.Max())}
}

// Point is a point of a distribution: Share is the fraction of the latencies that are not longer than At.
type Point struct {
	At    time.Duration `json:"at_ns"`
	Share float64       `json:"share"`
}

// curve is the cumulative distribution, in steps of half a per cent up to the
// slowest hundredth, of which nothing is left out.
func curve(h *hdr.Histogram) (points []Point) {
	var seen int64
	last := 0.0
	for _, bar := range h.Distribution() {
		seen += bar.Count
		share := float64(seen) / float64(max(h.TotalCount(), 1))
		if share >= last+0.005 || share >= 0.99 && share > last {
			points = append(points, Point{time.Duration(bar.To), share})
			last = share
		}
	}
	return points
}
