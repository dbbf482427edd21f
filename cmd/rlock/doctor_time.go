package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	pings       = 20
	slowTrip    = 500 * time.Millisecond
	nodesApart  = 300 * time.Millisecond // the drift that a lease of 30 s allows for
	hostsApart  = time.Second
	clockProbes = 5
)

// checkRoundTrips measures the way to each server that takes locks.
func (d *doctor) checkRoundTrips(ctx context.Context) {
	for _, n := range d.nodes {
		if n.role == "replica" {
			continue
		}
		trips := make([]time.Duration, pings)
		for i := range trips {
			began := time.Now()
			if err := reachable(ctx, n.rdb); err != nil {
				d.report.add(n.finding("round trip", broken, "the connection failed: %v", err).advise("check the network"))
				return
			}
			trips[i] = time.Since(began)
		}
		d.report.add(n.roundTrips(trips))
	}
}

func (n *node) roundTrips(trips []time.Duration) finding {
	slices.Sort(trips)
	median, longest := trips[len(trips)/2], trips[len(trips)-1]
	f := n.finding("round trip", fine, "median %s, longest %s, of %d: Lock and Unlock take one each", exact(median), exact(longest), len(trips))
	if longest > slowTrip {
		f.Level = warning
		f = f.advise("leases well above %s, or nearer to the server", brief(10*longest))
	}
	f.Values = map[string]any{"median_ms": millis(median), "max_ms": millis(longest)}
	return f
}

// reading is a server's clock against this host's.
type reading struct {
	node   string
	offset time.Duration // positive: ahead
	within time.Duration // of the truth
}

// checkClocks: a lease is a duration to everybody but a replica, which is told
// when it ends.
func (d *doctor) checkClocks(ctx context.Context) {
	var readings []reading
	for _, n := range d.nodes {
		r, err := n.readClock(ctx)
		if err != nil {
			d.report.add(n.finding("clock", unchecked, "TIME: %v", err))
			continue
		}
		readings = append(readings, r)
		d.report.add(n.clock(r))
	}
	if len(readings) > 1 {
		d.report.add(clocksApart(readings))
	}
}

// readClock takes the answer that was fastest: it is out by half its way at most.
func (n *node) readClock(ctx context.Context) (reading, error) {
	best := reading{node: n.addr, within: time.Hour}
	for range clockProbes {
		sent := time.Now()
		at, err := n.rdb.Time(ctx).Result()
		if err != nil {
			return reading{}, err
		}
		if half := time.Since(sent) / 2; half < best.within {
			best.offset, best.within = at.Sub(sent.Add(half)), half
		}
	}
	return best, nil
}

func (n *node) clock(r reading) finding {
	f := n.finding("clock", fine, "%s this host's, to within %s; a difference would do no harm, as leases are durations", signed(r.offset), exact(r.within))
	if r.offset.Abs() <= r.within {
		f.Text = fmt.Sprintf("in step with this host's, to within %s; a difference would do no harm, as leases are durations", exact(r.within))
	}
	if r.offset.Abs() > hostsApart+r.within {
		f.Level = warning
		f.Text = fmt.Sprintf("%s this host's: leases are durations and do not suffer, but times that rlock shows, and jobs that must run once, do", signed(r.offset))
		f = f.advise("run NTP on both")
	}
	f.Values = map[string]any{"offset_ms": millis(r.offset), "within_ms": millis(r.within)}
	return f
}

func clocksApart(readings []reading) finding {
	byOffset := func(a, b reading) int { return int(a.offset - b.offset) }
	first, last := slices.MinFunc(readings, byOffset), slices.MaxFunc(readings, byOffset)
	apart, within := last.offset-first.offset, first.within+last.within
	f := finding{Check: "clocks", Level: fine, Text: fmt.Sprintf("the servers' are %s apart", exact(apart))}
	if apart > nodesApart+within {
		f.Level = warning
		f.Text = fmt.Sprintf("%s is %s ahead of %s: replicas keep the end of a lease, so that a failover ends leases early, or late, by that much", last.node, exact(apart), first.node)
		f = f.advise("run NTP on the servers")
	}
	f.Values = map[string]any{"apart_ms": millis(apart), "within_ms": millis(within)}
	return f
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// exact shows a duration that may be far below a millisecond.
func exact(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

// signed puts how far one clock is from another into words that go before the other's name.
func signed(d time.Duration) string {
	if d < 0 {
		return exact(-d) + " behind"
	}
	return exact(d) + " ahead of"
}
