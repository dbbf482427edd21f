// Package rlockprom exports the statistics of an rlock client as Prometheus metrics.
//
//	prometheus.MustRegister(rlockprom.NewCollector(client))
//
// No series contains the name of a lock. The number of series depends on the kinds of lock that the client
// uses, and is about 50 for one kind. The collector does no work when a lock is acquired or released, because
// each scrape reads [rlock.Client.Stats].
package rlockprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-rlock/rlock/rlock"
)

// Collector is a [prometheus.Collector] for one client. If a process has several clients, register the
// collector of each client, including the first, with [prometheus.WrapRegistererWith]. Use the same label names
// for all collectors, because a registry refuses series of one name whose label names differ.
type Collector struct {
	client *rlock.Client
	bounds []float64

	calls, held, waiting, losses, wakeups *prometheus.Desc
	waits, holds, margins                 *prometheus.Desc
	oldestWait, oldestHold                *prometheus.Desc
}

// NewCollector returns the collector of a client. The client may be closed before or after this call.
// NewCollector panics if the client is nil, because otherwise the first scrape would panic.
func NewCollector(client *rlock.Client) *Collector {
	if client == nil {
		panic("rlockprom: NewCollector: the client is nil")
	}
	c := &Collector{
		client:  client,
		calls:   describe("calls_total", "Calls that wanted a lock and have ended.", "kind", "outcome"),
		held:    describe("held", "Locks that are held.", "kind"),
		waiting: describe("waiting", "Calls that want a lock and have not ended.", "kind"),
		losses:  describe("losses_total", "Locks that were lost while they were held.", "cause"),
		wakeups: describe("wakeups_total", "What waiting calls were woken by.", "source"),
		waits:   describe("acquire_duration_seconds", "How long calls took that wanted a lock."),
		holds:   describe("hold_duration_seconds", "How long locks were held."),
		margins: describe("renewal_margin_seconds", "What was left of the trusted window when a lease was renewed."),

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
	for _, d := range []*prometheus.Desc{c.calls, c.held, c.waiting, c.losses, c.wakeups, c.waits, c.holds, c.margins, c.oldestWait, c.oldestHold} {
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
	for _, k := range s.Kinds {
		for outcome, n := range k.Calls {
			counter(c.calls, n, string(k.Kind), string(outcome))
		}
		gauge(c.held, float64(k.Held), string(k.Kind))
		gauge(c.waiting, float64(k.Waiting), string(k.Kind))
	}
	for cause, n := range s.Losses {
		counter(c.losses, n, string(cause))
	}
	counter(c.wakeups, s.Wakeups.Message, "message")
	counter(c.wakeups, s.Wakeups.TTL, "ttl")
	counter(c.wakeups, s.Wakeups.Reconnect, "reconnect")
	to <- c.histogram(c.waits, s.Waits)
	to <- c.histogram(c.holds, s.Holds)
	to <- c.histogram(c.margins, s.Margins)
	gauge(c.oldestWait, s.OldestWait.Seconds())
	gauge(c.oldestHold, s.OldestHold.Seconds())
}

func (c *Collector) histogram(d *prometheus.Desc, h rlock.Histogram) prometheus.Metric {
	upTo, below := make(map[float64]uint64, len(c.bounds)), int64(0)
	for i, b := range c.bounds {
		below += h.Counts[i]
		upTo[b] = uint64(below)
	}
	return prometheus.MustNewConstHistogram(d, uint64(h.Count()), h.Sum.Seconds(), upTo)
}
