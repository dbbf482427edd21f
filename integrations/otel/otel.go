// Package rlockotel exports to OpenTelemetry what the locks of package rlock do: metrics, and one span for each
// wait for a lock, in the trace of the caller.
//
//	telemetry, err := rlockotel.New()
//	rdb.AddHook(telemetry.Hook())
//	client, err := rlock.New(rdb, &rlock.Options{Trace: telemetry.Trace()})
//	stop, err := telemetry.Observe(client)
//
// Spans have the name of the lock in the attribute `rlock.name`. Metrics do not have this attribute by default,
// because a program can use any number of names. [WithLockNames] adds a shortened name to metrics, and can hide
// names in spans. If a call fails because of Redis, or with an unexpected error, the event `exception` of its
// span has the text of the error, which contains the full name of the lock. The package imports only the API of
// OpenTelemetry, so your program must set up the SDK.
//
// If the client has a function Group in its [rlock.Options], the metrics of calls, waits and holds have the
// attribute `rlock.group`, except those of locks without a group.
package rlockotel

import (
	"fmt"
	"strings"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/go-rlock/rlock/integrations/otel"

// Names of attributes.
const (
	keyKind    = attribute.Key("rlock.kind")
	keyOutcome = attribute.Key("rlock.outcome")
	keyCause   = attribute.Key("rlock.cause")
	keySource  = attribute.Key("rlock.source")
	keyName    = attribute.Key("rlock.name")
	keyGroup   = attribute.Key("rlock.group")
	keyHolder  = attribute.Key("rlock.holder")
	keyTTL     = attribute.Key("rlock.ttl")
	keyTries   = attribute.Key("rlock.tries")
	keyCallers = attribute.Key("rlock.callers")
)

// Option is a setting for [New].
type Option func(*Telemetry)

// WithTracerProvider sets the provider for spans. The default, also for nil, is the global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(t *Telemetry) {
		if p != nil {
			t.traces = p
		}
	}
}

// WithMeterProvider sets the provider for metrics. The default, also for nil, is the global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(t *Telemetry) {
		if p != nil {
			t.meters = p
		}
	}
}

// WithLockNames sets the attribute `rlock.name` of spans and of the histograms of waits and holds. The
// attribute is the text that the function returns for the name of a lock. If the function returns "" or panics,
// there is no attribute. Without this option, spans have the full name, and metrics have no name. The function
// should return few different texts, such as "invoice" for "invoice:42". If the function panics, the first
// panic is reported to the error handler of OpenTelemetry.
func WithLockNames(of func(lock string) string) Option {
	return func(t *Telemetry) { t.nameOf = of }
}

// WithoutSpans disables spans. Use it in programs that only need metrics, because creating a span takes longer
// than passing a lock on in memory, even if no exporter receives the span.
func WithoutSpans() Option {
	return func(t *Telemetry) { t.spanless = true }
}

// Telemetry observes one or more clients.
type Telemetry struct {
	traces   trace.TracerProvider
	meters   metric.MeterProvider
	nameOf   func(string) string // nil: no names
	spanless bool
	panicked sync.Once // nameOf

	tracer trace.Tracer
	meter  metric.Meter
	histograms
}

// New returns a Telemetry. A nil option is ignored.
func New(opts ...Option) (*Telemetry, error) {
	t := &Telemetry{traces: otel.GetTracerProvider(), meters: otel.GetMeterProvider()}
	for _, opt := range opts {
		if opt != nil {
			opt(t)
		}
	}
	t.tracer, t.meter = t.traces.Tracer(scope), t.meters.Meter(scope)
	return t, t.histograms.create(t.meter)
}

// attributes are those that spans and histograms have in common.
func (t *Telemetry) attributes(lock string, more ...attribute.KeyValue) []attribute.KeyValue {
	if t.nameOf != nil {
		if name := t.name(lock); name != "" {
			more = append(more, keyName.String(name))
		}
	}
	return more
}

// name is what nameOf returns; "" if it panics: a call whose span has begun must end it.
func (t *Telemetry) name(lock string) (name string) {
	defer func() {
		if p := recover(); p != nil {
			t.panicked.Do(func() {
				otel.Handle(fmt.Errorf("rlockotel: the function of WithLockNames panicked with lock %q: %v", lock, p))
			})
		}
	}()
	return exportable(t.nameOf(lock))
}

// exportable is a text without what is no UTF-8: exporters refuse all that they have collected
// because of it.
func exportable(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
