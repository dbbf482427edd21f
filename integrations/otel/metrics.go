package rlockotel

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/go-rlock/rlock/rlock"
)

// Sampled says that the histograms record one of this many hand-offs in memory, because
// recording takes a good part of the time of such a hand-off. The counters count all
// hand-offs.
const Sampled = 16

// histograms are fed by what happens; everything else is read from [rlock.Client.Stats].
type histograms struct {
	acquire, hold, margin, share metric.Float64Histogram

	handedOff, released atomic.Uint32
	sets                sync.Map // metric.MeasurementOption by ended
}

func (h *histograms) create(m metric.Meter) error {
	buckets := make([]float64, 0, 16)
	for _, b := range rlock.HistogramBounds() {
		buckets = append(buckets, b.Seconds())
	}
	bounds := metric.WithExplicitBucketBoundaries(buckets...)
	var errs [4]error
	h.acquire, errs[0] = m.Float64Histogram("rlock.acquire.duration", metric.WithUnit("s"), bounds,
		metric.WithDescription("How long calls took that wanted a lock."))
	h.hold, errs[1] = m.Float64Histogram("rlock.hold.duration", metric.WithUnit("s"), bounds,
		metric.WithDescription("How long locks were held."))
	h.margin, errs[2] = m.Float64Histogram("rlock.renewal.margin", metric.WithUnit("s"), bounds,
		metric.WithDescription("What was left of the trusted window when a lease was renewed."))
	h.share, errs[3] = m.Float64Histogram("rlock.renewal.margin.ratio", metric.WithUnit("1"), metric.WithExplicitBucketBoundaries(rlock.ShareBounds()...),
		metric.WithDescription("What was left of the trusted window when a lease was renewed, as a share of the lease."))
	return errors.Join(errs[:]...)
}

func (t *Telemetry) observeAcquisition(ctx context.Context, a rlock.Acquisition) {
	if a.Outcome == rlock.OutcomeHandedOff && t.handedOff.Add(1)%Sampled != 1 {
		return
	}
	t.acquire.Record(ctx, a.Waited.Seconds(), t.set(a.Lock, a.Group, a.Kind, a.Outcome))
}

func (t *Telemetry) released(ctx context.Context, r rlock.Release) {
	if r.HandedOff && t.histograms.released.Add(1)%Sampled != 1 {
		return
	}
	t.hold.Record(ctx, r.Held.Seconds(), t.set(r.Lock, r.Group, r.Kind, r.Outcome))
}

// lost records a hold that no Unlock has ended, once for each grant: also that of a member
// of a multi lock, whose own end is told to released. A lock that was only kept was not held.
func (t *Telemetry) lost(l rlock.Loss) {
	if l.Held == 0 {
		return
	}
	t.hold.Record(context.Background(), l.Held.Seconds(), t.set(l.Lock, l.Group, l.Kind, rlock.OutcomeLost))
}

func (t *Telemetry) renewed(r rlock.Renewal) {
	t.margin.Record(context.Background(), r.Margin.Seconds())
	t.share.Record(context.Background(), min(r.Margin.Seconds()/r.Lease.Seconds(), 1)) // as in Stats
}

func (t *Telemetry) set(lock, group string, k rlock.Kind, o rlock.Outcome) metric.MeasurementOption {
	if t.nameOf != nil {
		return t.newSet(lock, group, k, o)
	}
	set, ok := t.sets.Load(ended{group, k, o})
	if !ok {
		set, _ = t.sets.LoadOrStore(ended{group, k, o}, t.newSet(lock, group, k, o))
	}
	return set.(metric.MeasurementOption)
}

// ended is what histograms have attributes of.
type ended struct {
	group   string
	kind    rlock.Kind
	outcome rlock.Outcome
}

func (t *Telemetry) newSet(lock, group string, k rlock.Kind, o rlock.Outcome) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(t.attributes(lock, inGroup(group, keyKind.String(string(k)), keyOutcome.String(string(o)))...)...))
}

// inGroup adds the group, if there is one.
func inGroup(group string, all ...attribute.KeyValue) []attribute.KeyValue {
	if group != "" {
		all = append(all, keyGroup.String(group))
	}
	return all
}

// Observe exports the counters of the client, the numbers of locks that are held and waited for, and the ages of
// the oldest wait and the oldest hold in progress. The SDK reads these numbers from the client whenever it
// collects metrics, until you call stop. Call Observe only once for each client, because a second call would
// count everything twice. If you observe several clients, give each a meter provider with a different resource.
// If they have the same resource, the SDK adds up the numbers of the clients, or keeps only one of them. A nil
// client is an error.
func (t *Telemetry) Observe(c *rlock.Client) (stop func() error, err error) {
	if c == nil {
		return nil, errors.New("rlockotel: Observe: the client is nil")
	}
	var errs [8]error
	var o observed
	o.calls, errs[0] = t.meter.Int64ObservableCounter("rlock.calls", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that wanted a lock and have ended."))
	o.held, errs[1] = t.meter.Int64ObservableUpDownCounter("rlock.held", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that are held."))
	o.waiting, errs[2] = t.meter.Int64ObservableUpDownCounter("rlock.waiting", metric.WithUnit("{waiter}"),
		metric.WithDescription("Calls that want a lock and have not ended."))
	o.losses, errs[3] = t.meter.Int64ObservableCounter("rlock.losses", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that were lost while they were held."))
	o.wakeups, errs[4] = t.meter.Int64ObservableCounter("rlock.wakeups", metric.WithUnit("{wakeup}"),
		metric.WithDescription("What waiting calls were woken by."))
	o.oldestWait, errs[5] = t.meter.Float64ObservableGauge("rlock.oldest.wait", metric.WithUnit("s"),
		metric.WithDescription("How long the call has waited that waits longest now."))
	o.oldestHold, errs[6] = t.meter.Float64ObservableGauge("rlock.oldest.hold", metric.WithUnit("s"),
		metric.WithDescription("How long the lock has been held that is held longest now."))
	o.deadlocks, errs[7] = t.meter.Int64ObservableCounter("rlock.deadlocks", metric.WithUnit("{deadlock}"),
		metric.WithDescription("Deadlocks that the client has found."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	r, err := t.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		o.observe(to, c.Stats())
		return nil
	}, o.calls, o.held, o.waiting, o.losses, o.wakeups, o.deadlocks, o.oldestWait, o.oldestHold)
	if err != nil {
		return nil, err
	}
	return r.Unregister, nil
}

// observed are the instruments that are read from a client.
type observed struct {
	calls, losses, wakeups, deadlocks metric.Int64ObservableCounter
	held, waiting                     metric.Int64ObservableUpDownCounter
	oldestWait, oldestHold            metric.Float64ObservableGauge
}

func (o *observed) observe(to metric.Observer, s rlock.Stats) {
	groups := s.Groups
	if groups == nil {
		groups = map[string]rlock.GroupStats{"": {Kinds: s.Kinds}}
	}
	for group, g := range groups {
		for _, k := range g.Kinds {
			kind := keyKind.String(string(k.Kind))
			for outcome, n := range k.Calls {
				to.ObserveInt64(o.calls, n, metric.WithAttributes(inGroup(group, kind, keyOutcome.String(string(outcome)))...))
			}
			to.ObserveInt64(o.held, k.Held, metric.WithAttributes(inGroup(group, kind)...))
			to.ObserveInt64(o.waiting, k.Waiting, metric.WithAttributes(inGroup(group, kind)...))
		}
	}
	for cause, n := range s.Losses {
		to.ObserveInt64(o.losses, n, metric.WithAttributes(keyCause.String(string(cause))))
	}
	for source, n := range map[string]int64{"message": s.Wakeups.Message, "ttl": s.Wakeups.TTL, "reconnect": s.Wakeups.Reconnect} {
		to.ObserveInt64(o.wakeups, n, metric.WithAttributes(keySource.String(source)))
	}
	to.ObserveInt64(o.deadlocks, s.Deadlocks)
	to.ObserveFloat64(o.oldestWait, s.OldestWait.Seconds())
	to.ObserveFloat64(o.oldestHold, s.OldestHold.Seconds())
}
