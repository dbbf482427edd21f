// Package rlockprom exports the statistics of an rlock client as Prometheus metrics.
//
//	prometheus.MustRegister(rlockprom.NewCollector(client))
//
// No series contains the name of a lock. The number of series depends on the kinds of lock that the client
// uses, and is about 80 for one kind. The collector does no work when a lock is acquired or released, because
// each scrape reads [rlock.Client.Stats].
//
// If the client has a function Group in its [rlock.Options], the series of calls, waits and holds have the label
// group. Each group then has about 50 series for one kind of lock. Locks without a group have the label
// with an empty value, which Prometheus treats like no label.
package rlockprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-rlock/rlock/rlock"
)

// Collector is a [prometheus.Collector] for one client. If a process has several clients, register the
// collector of each client, including the first, with [prometheus.WrapRegistererWith]. Use the same label names
// for all collectors, because a registry refuses series of one name whose label names differ.
type Collector struct {
	client  *rlock.Client
	grouped bool // the client has groups
	bounds  []float64

	calls, held, waiting, losses, wakeups, deadlocks *prometheus.Desc
	waits, holds, margins, shares                    *prometheus.Desc
	oldestWait, oldestHold                           *prometheus.Desc
}

// NewCollector returns the collector of a client. The client may be closed before or after this call.
// NewCollector panics if the client is nil, because otherwise the first scrape would panic.
func NewCollector(client *rlock.Client) *Collector {
	if client == nil {
		panic("rlockprom: NewCollector: the client is nil")
	}
	grouped := client.Stats().Groups != nil
	of := func(labels ...string) []string {
		if grouped {
			return append(labels, "group")
		}
		return labels
	}
	c := &Collector{
		client:  client,
		grouped: grouped,
		calls:   describe("calls_total", "Calls that wanted a lock and have ended.", of("kind", "outcome")...),
		held:    describe("held", "Locks that are held.", of("kind")...),
		waiting: describe("waiting", "Calls that want a lock and have not ended.", of("kind")...),
		losses:  describe("losses_total", "Locks that were lost while they were held.", "cause"),
		wakeups: describe("wakeups_total", "What waiting calls were woken by.", "source"),
		waits:   describe("acquire_duration_seconds", "How long calls took that wanted a lock, and whether they acquired it.", of("acquired")...),
		holds:   describe("hold_duration_seconds", "How long locks were held.", of()...),
		margins: describe("renewal_margin_seconds", "What was left of the trusted window when a lease was renewed."),
		shares:  describe("renewal_margin_ratio", "What was left of the trusted window when a lease was renewed, as a share of the lease."),

		deadlocks:  describe("deadlocks_total", "Deadlocks that the client has found."),
		oldestWait: describe("oldest_wait_seconds", "How long the call has waited that waits longest now."),
		oldestHold: describe("oldest_hold_seconds", "How long the lock has been held that is held longest now."),
	}
	for _, b := range rlock.HistogramBounds() {
		c.bounds = append(c.bounds, b.Seconds())
	}
	return c
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("rlock_"+name, help, labels, nil)
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.calls, c.held, c.waiting, c.losses, c.wakeups, c.deadlocks, c.waits, c.holds, c.margins, c.shares, c.oldestWait, c.oldestHold} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	s := c.client.Stats()
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	groups := s.Groups
	if !c.grouped {
		groups = map[string]rlock.GroupStats{"": {Kinds: s.Kinds, Waits: s.Waits, FailedWaits: s.FailedWaits, Holds: s.Holds}}
	}
	for name, g := range groups {
		with := func(labels ...string) []string {
			if c.grouped {
				return append(labels, name)
			}
			return labels
		}
		for _, k := range g.Kinds {
			for outcome, n := range k.Calls {
				counter(c.calls, n, with(string(k.Kind), string(outcome))...)
			}
			gauge(c.held, float64(k.Held), with(string(k.Kind))...)
			gauge(c.waiting, float64(k.Waiting), with(string(k.Kind))...)
		}
		acquired := rlock.Histogram{Sum: g.Waits.Sum - g.FailedWaits.Sum}
		for i, n := range g.Waits.Counts {
			acquired.Counts = append(acquired.Counts, n-g.FailedWaits.Counts[i])
		}
		to <- c.histogram(c.waits, acquired, with("true")...)
		to <- c.histogram(c.waits, g.FailedWaits, with("false")...)
		to <- c.histogram(c.holds, g.Holds, with()...)
	}
	for cause, n := range s.Losses {
		counter(c.losses, n, string(cause))
	}
	counter(c.deadlocks, s.Deadlocks)
	counter(c.wakeups, s.Wakeups.Message, "message")
	counter(c.wakeups, s.Wakeups.TTL, "ttl")
	counter(c.wakeups, s.Wakeups.Reconnect, "reconnect")
	to <- c.histogram(c.margins, s.Margins)
	to <- histogram(c.shares, rlock.ShareBounds(), s.MarginShares.Counts, s.MarginShares.Sum)
	gauge(c.oldestWait, s.OldestWait.Seconds())
	gauge(c.oldestHold, s.OldestHold.Seconds())
}

func (c *Collector) histogram(d *prometheus.Desc, h rlock.Histogram, labels ...string) prometheus.Metric {
	return histogram(d, c.bounds, h.Counts, h.Sum.Seconds(), labels...)
}

func histogram(d *prometheus.Desc, bounds []float64, counts []int64, sum float64, labels ...string) prometheus.Metric {
	upTo, n := make(map[float64]uint64, len(bounds)), uint64(0)
	for i, b := range bounds {
		n += uint64(counts[i])
		upTo[b] = n
	}
	return prometheus.MustNewConstHistogram(d, n+uint64(counts[len(bounds)]), sum, upTo, labels...)
}
