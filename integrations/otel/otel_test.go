package rlockotel_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	rlockotel "github.com/go-rlock/rlock/integrations/otel"
	"github.com/go-rlock/rlock/rlock"
)

// world is a client with telemetry that the test reads.
type world struct {
	spans   *tracetest.SpanRecorder
	tracer  trace.Tracer
	metrics *sdkmetric.ManualReader
	client  *rlock.Client
	server  *miniredis.Miniredis
}

func newWorld(t *testing.T, opts ...rlockotel.Option) *world {
	t.Helper()
	return newWorldOf(t, rlock.Options{}, opts...)
}

// newWorldOf is newWorld with options of the client.
func newWorldOf(t *testing.T, options rlock.Options, opts ...rlockotel.Option) *world {
	t.Helper()
	w := &world{spans: tracetest.NewSpanRecorder(), metrics: sdkmetric.NewManualReader(), server: miniredis.NewMiniRedis()}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(w.spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.metrics))
	w.tracer = traces.Tracer("test")
	w.server.ClockTTL(true)
	require.NoError(t, w.server.Start())
	telemetry, err := rlockotel.New(append(opts, rlockotel.WithTracerProvider(traces), rlockotel.WithMeterProvider(meters))...)
	require.NoError(t, err)
	rdb := redis.NewClient(&redis.Options{Addr: w.server.Addr()})
	rdb.AddHook(telemetry.Hook())
	options.Trace = telemetry.Trace()
	w.client, err = rlock.New(rdb, &options)
	require.NoError(t, err)
	stop, err := telemetry.Observe(w.client)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, stop())
		require.NoError(t, w.client.Close(context.Background()))
		require.NoError(t, rdb.Close())
		w.server.Close()
	})
	return w
}

// ended returns the spans of a name, by trace.
func (w *world) ended(name string) map[trace.TraceID][]sdktrace.ReadOnlySpan {
	all := make(map[trace.TraceID][]sdktrace.ReadOnlySpan)
	for _, s := range w.spans.Ended() {
		if s.Name() == name {
			all[s.SpanContext().TraceID()] = append(all[s.SpanContext().TraceID()], s)
		}
	}
	return all
}

func attributes(s sdktrace.ReadOnlySpan) map[attribute.Key]string {
	all := make(map[attribute.Key]string)
	for _, kv := range s.Attributes() {
		all[kv.Key] = kv.Value.String()
	}
	return all
}

func nothing(context.Context) error { return nil }

func TestNilOptions(t *testing.T) {
	for _, opt := range []rlockotel.Option{nil, rlockotel.WithTracerProvider(nil), rlockotel.WithMeterProvider(nil), rlockotel.WithLockNames(nil)} {
		telemetry, err := rlockotel.New(opt)
		require.NoError(t, err)
		require.NotNil(t, telemetry)
	}
}

// Collecting would panic later, in a goroutine of the SDK.
func TestNilClient(t *testing.T) {
	telemetry, err := rlockotel.New()
	require.NoError(t, err)
	_, err = telemetry.Observe(nil)
	require.ErrorContains(t, err, "nil")
}

// Each call has exactly one span, below that of its caller; and each request that
// several calls share has links to the spans of all of them.
func TestSpansOfACrowd(t *testing.T) {
	const crowd = 64
	w := newWorld(t)
	roots := make(chan trace.SpanContext, crowd)
	var all sync.WaitGroup
	for i := range crowd {
		all.Go(func() {
			ctx, root := w.tracer.Start(t.Context(), "root")
			defer root.End()
			roots <- root.SpanContext()
			assert.NoError(t, w.client.NewLock(fmt.Sprint("lock", i)).Do(ctx, nothing))
		})
	}
	all.Wait()
	close(roots)
	spans := w.ended("rlock.acquire")
	require.Len(t, spans, crowd)
	known := make(map[trace.SpanID]bool)
	for root := range roots {
		own := spans[root.TraceID()]
		require.Len(t, own, 1)
		require.Equal(t, root.SpanID(), own[0].Parent().SpanID())
		require.Equal(t, "acquired", attributes(own[0])["rlock.outcome"])
		known[own[0].SpanContext().SpanID()] = true
	}
	linked := 0
	for _, requests := range w.ended("rlock.request") {
		for _, s := range requests {
			if n := len(s.Links()); n > 0 {
				linked++
				require.Equal(t, fmt.Sprint(n), attributes(s)["rlock.callers"], "of each call")
			}
		}
	}
	require.Positive(t, linked, "requests that several calls share")
}

// A span names its lock, unless names are mapped; a metric does not.
func TestSpanNamesTheLock(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.client.NewLock("order:7").Do(t.Context(), nothing))
	for _, own := range w.ended("rlock.acquire") {
		for _, s := range own {
			require.Equal(t, "order:7", attributes(s)["rlock.name"])
		}
	}
}

// A wait shows whom it was for.
func TestSpanOfAWait(t *testing.T) {
	w := newWorld(t, rlockotel.WithLockNames(func(string) string { return "a lock" }))
	mu := w.client.NewLock("a")
	held, hold, err := mu.Lock(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, mu.TryDo(t.Context(), nothing), rlock.ErrNotAcquired)
	require.NoError(t, mu.Do(held, nothing))
	require.NoError(t, hold.Unlock(held))
	w.server.SetError("NOAUTH nobody is let in")
	require.Error(t, mu.TryDo(t.Context(), nothing))
	w.server.SetError("")

	seen := make(map[string]map[attribute.Key]string)
	for _, own := range w.ended("rlock.acquire") {
		for _, s := range own {
			seen[attributes(s)["rlock.outcome"]] = attributes(s)
		}
	}
	require.Contains(t, seen, "acquired")
	require.Contains(t, seen, "nested")
	require.Contains(t, seen, "unavailable")
	require.Equal(t, hold.Owner(), seen["busy"]["rlock.holder"])
	require.Equal(t, "a lock", seen["busy"]["rlock.name"])
	require.Equal(t, "plain", seen["busy"]["rlock.kind"])
}

// The refusals of a wait are events of its span.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	w.server.HSet("a", "somebody:1", "1")
	w.server.SetTTL("a", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() {
		_, _, err := w.client.NewLock("a").Lock(ctx)
		done <- err
	}()
	require.Eventually(t, func() bool {
		started := w.spans.Started()
		return len(started) > 0 && len(started[0].Events()) > 0
	}, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, rlock.ErrNotAcquired)
	for _, own := range w.ended("rlock.acquire") {
		require.Equal(t, "rlock.refused", own[0].Events()[0].Name)
		require.Equal(t, "canceled", attributes(own[0])["rlock.outcome"])
		require.Equal(t, "somebody:1", attributes(own[0])["rlock.holder"])
	}
}

// A holder that hangs shows in the oldest hold and the oldest wait, before either is over; without
// a hold or a wait they are 0.
func TestOldest(t *testing.T) {
	w := newWorld(t)
	gauges := func() (oldest [2]float64) {
		t.Helper()
		var got metricdata.ResourceMetrics
		require.NoError(t, w.metrics.Collect(t.Context(), &got))
		found := 0
		for _, m := range got.ScopeMetrics[0].Metrics {
			for i, name := range []string{"rlock.oldest.wait", "rlock.oldest.hold"} {
				if m.Name == name {
					require.Equal(t, "s", m.Unit)
					oldest[i] = m.Data.(metricdata.Gauge[float64]).DataPoints[0].Value
					found++
				}
			}
		}
		require.Equal(t, 2, found)
		return oldest
	}
	require.Zero(t, gauges())

	mu := w.client.NewLock("a")
	held, hold, err := mu.Lock(t.Context())
	require.NoError(t, err)
	defer func() { _ = hold.Unlock(held) }() // if the test fails
	time.Sleep(50 * time.Millisecond)        // so that the two ages differ
	waiter, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	done := make(chan error, 1)
	go func() { done <- mu.Do(waiter, nothing) }()
	require.Eventually(t, func() bool { return w.client.Stats().OldestWait > 0 }, time.Minute, time.Millisecond)
	before, oldest, after := w.client.Stats(), gauges(), w.client.Stats()
	for i, d := range [2][2]time.Duration{{before.OldestWait, after.OldestWait}, {before.OldestHold, after.OldestHold}} {
		require.Positive(t, oldest[i])
		require.GreaterOrEqual(t, oldest[i], d[0].Seconds())
		require.LessOrEqual(t, oldest[i], d[1].Seconds())
	}
	giveUp()
	require.ErrorIs(t, <-done, rlock.ErrNotAcquired)
	require.NoError(t, hold.Unlock(held))
	require.Zero(t, gauges())
}

// The number of series does not depend on that of the locks.
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	for i := range 1000 {
		require.NoError(t, w.client.NewLock(fmt.Sprint("lock", i)).Do(t.Context(), nothing))
	}
	var got metricdata.ResourceMetrics
	require.NoError(t, w.metrics.Collect(t.Context(), &got))
	points, found := 0, make(map[string]bool)
	for _, m := range got.ScopeMetrics[0].Metrics {
		found[m.Name] = true
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			points += len(d.DataPoints)
		case metricdata.Histogram[float64]:
			points += len(d.DataPoints) * (len(rlock.HistogramBounds()) + 3)
			require.EqualValues(t, 1000, d.DataPoints[0].Count, m.Name)
		}
	}
	for _, name := range []string{"rlock.calls", "rlock.held", "rlock.waiting", "rlock.losses", "rlock.wakeups", "rlock.deadlocks", "rlock.acquire.duration", "rlock.hold.duration"} {
		require.Contains(t, found, name)
	}
	require.LessOrEqual(t, points, 60)
}

// With groups, the metrics of calls, waits and holds have them, and the others have not.
func TestGroups(t *testing.T) {
	w := newWorldOf(t, rlock.Options{Group: func(name string) string { group, _, _ := strings.Cut(name, ":"); return group }})
	use := func(mu rlock.Locker, times int) {
		for range times {
			require.NoError(t, mu.Do(t.Context(), nothing))
		}
	}
	for i := range 50 {
		use(w.client.NewLock(fmt.Sprint("order:", i)), 2)
	}
	use(w.client.NewLock(":without"), 3)
	use(rlock.NewMultiLock(w.client.NewLock("user:1"), w.client.NewLock("user:2")), 4)
	held, hold, err := w.client.NewLock("user:1").Lock(t.Context())
	require.NoError(t, err)
	w.server.Del("user:1")
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
	require.NoError(t, w.client.Close(t.Context()), "everything is told")

	var got metricdata.ResourceMetrics
	require.NoError(t, w.metrics.Collect(t.Context(), &got))
	counts := make(map[string]map[string]int64)
	count := func(metric string, attributes attribute.Set, n int64) {
		if counts[metric] == nil {
			counts[metric] = make(map[string]int64)
		}
		group, _ := attributes.Value("rlock.group")
		counts[metric][group.AsString()] += n
		_, has := attributes.Value("rlock.group")
		require.True(t, !has || group.AsString() != "", "%s: no group, no attribute", metric)
	}
	for _, m := range got.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				count(m.Name, p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				count(m.Name, p.Attributes, int64(p.Count))
			}
		}
	}
	want := map[string]int64{"order": 100, "": 3, "user": 5}
	for _, metric := range []string{"rlock.calls", "rlock.acquire.duration", "rlock.hold.duration"} {
		require.Equal(t, want, counts[metric], metric)
	}
	for _, metric := range []string{"rlock.held", "rlock.waiting"} {
		require.Equal(t, map[string]int64{"order": 0, "": 0, "user": 0}, counts[metric], metric)
	}
	require.Equal(t, map[string]int64{"": 1}, counts["rlock.losses"])
}

// The margin of a renewal is recorded in seconds and as a share of the lease.
func TestMargins(t *testing.T) {
	w := newWorldOf(t, rlock.Options{LeaseTime: 60 * time.Millisecond})
	held, hold, err := w.client.NewLock("a").Lock(t.Context())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return w.client.Stats().Renewals > 0 }, time.Minute, time.Millisecond)
	_ = hold.Unlock(held) // lost, if this machine is busy
	require.NoError(t, w.client.Close(t.Context()), "everything is told")
	renewals := w.client.Stats().Renewals
	var got metricdata.ResourceMetrics
	require.NoError(t, w.metrics.Collect(t.Context(), &got))
	found := make(map[string]metricdata.HistogramDataPoint[float64])
	for _, m := range got.ScopeMetrics[0].Metrics {
		if d, ok := m.Data.(metricdata.Histogram[float64]); ok {
			found[m.Name] = d.DataPoints[0]
		}
	}
	require.EqualValues(t, renewals, found["rlock.renewal.margin"].Count)
	require.EqualValues(t, renewals, found["rlock.renewal.margin.ratio"].Count)
	require.Equal(t, rlock.ShareBounds(), found["rlock.renewal.margin.ratio"].Bounds)
	require.InDelta(t, w.client.Stats().MarginShares.Sum, found["rlock.renewal.margin.ratio"].Sum, 1e-3)
}

// A hold that was lost is one of the holds, once.
func TestHoldOfALoss(t *testing.T) {
	for name, opts := range map[string][]rlockotel.Option{"spans": nil, "no spans": {rlockotel.WithoutSpans()}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, opts...)
			held, hold, err := w.client.NewLock("a").Lock(t.Context())
			require.NoError(t, err)
			w.server.Del("a")
			require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
			require.NoError(t, w.client.NewLock("b").Do(t.Context(), nothing))
			require.NoError(t, w.client.Close(t.Context()), "everything is told")
			require.Equal(t, map[string]uint64{"lost": 1, "released": 1}, w.holds(t))
		})
	}
}

// holds returns how many holds have ended, by outcome.
func (w *world) holds(t *testing.T) map[string]uint64 {
	t.Helper()
	var got metricdata.ResourceMetrics
	require.NoError(t, w.metrics.Collect(t.Context(), &got))
	all := make(map[string]uint64)
	for _, m := range got.ScopeMetrics[0].Metrics {
		if m.Name != "rlock.hold.duration" {
			continue
		}
		for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
			outcome, _ := p.Attributes.Value("rlock.outcome")
			all[outcome.AsString()] += p.Count
		}
	}
	return all
}

// Without spans, the span of the caller is left alone.
func TestWithoutSpans(t *testing.T) {
	w := newWorld(t, rlockotel.WithoutSpans())
	ctx, root := w.tracer.Start(t.Context(), "root")
	require.NoError(t, w.client.NewLock("a").Do(ctx, nothing))
	require.True(t, root.IsRecording())
	root.End()
	require.Len(t, w.spans.Ended(), 1)
}

// A call whose span came to nothing leaves that of its caller alone.
func TestSpanOfTheCaller(t *testing.T) {
	w := newWorld(t)
	telemetry, err := rlockotel.New(rlockotel.WithTracerProvider(&rude{name: "rlock.acquire"}))
	require.NoError(t, err)
	rdb := redis.NewClient(&redis.Options{Addr: w.server.Addr()})
	defer rdb.Close()
	client, err := rlock.New(rdb, &rlock.Options{Trace: telemetry.Trace()})
	require.NoError(t, err)
	ctx, root := w.tracer.Start(t.Context(), "root")
	mu := client.NewLock("a")
	require.NoError(t, mu.Do(ctx, nothing))
	require.True(t, root.IsRecording(), "after a lock that was free")

	w.server.HSet("a", "somebody:1", "1")
	w.server.SetTTL("a", time.Hour)
	require.ErrorIs(t, mu.DoFor(ctx, 50*time.Millisecond, nothing), rlock.ErrNotAcquired)
	require.NoError(t, client.Close(t.Context()), "everything is told")
	require.True(t, root.IsRecording(), "after a refusal")
	root.End()
	require.Len(t, w.spans.Ended(), 1)
	require.Empty(t, w.spans.Ended()[0].Attributes())
	require.Empty(t, w.spans.Ended()[0].Events())
}

// One operation is a Lock and an Unlock of a lock that 64 goroutines want: in memory but
// for one in a thousand.
func BenchmarkHot(b *testing.B) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	require.NoError(b, server.Start())
	defer server.Close()
	telemetry, err := rlockotel.New(
		rlockotel.WithoutSpans(),
		rlockotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))))
	require.NoError(b, err)
	for name, opts := range map[string]*rlock.Options{"none": nil, "metrics": {Trace: telemetry.Trace()}} {
		b.Run(name, func(b *testing.B) {
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer rdb.Close()
			client, err := rlock.New(rdb, opts)
			require.NoError(b, err)
			defer func() { require.NoError(b, client.Close(b.Context())) }()
			mu := client.NewLock(name)
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := mu.Do(b.Context(), nothing); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// One operation is a Lock and an Unlock of a lock that its client keeps, without a round
// trip: the difference is what telemetry adds to any uncontended pair.
func BenchmarkPair(b *testing.B) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	require.NoError(b, server.Start())
	defer server.Close()
	meters := rlockotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
	for _, test := range []struct {
		name string
		opts []rlockotel.Option // nil: no telemetry
	}{
		{"none", nil},
		{"metrics", []rlockotel.Option{meters, rlockotel.WithoutSpans()}},
		{"metrics and spans", []rlockotel.Option{meters, rlockotel.WithTracerProvider(sdktrace.NewTracerProvider())}},
	} {
		b.Run(test.name, func(b *testing.B) {
			var opts *rlock.Options
			if test.opts != nil {
				telemetry, err := rlockotel.New(test.opts...)
				require.NoError(b, err)
				opts = &rlock.Options{Trace: telemetry.Trace()}
			}
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer rdb.Close()
			client, err := rlock.New(rdb, opts)
			require.NoError(b, err)
			defer func() { require.NoError(b, client.Close(b.Context())) }()
			mu := client.NewLock(test.name, rlock.WithRetention(time.Hour))
			b.ReportAllocs()
			for b.Loop() {
				if err := mu.Do(b.Context(), nothing); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
