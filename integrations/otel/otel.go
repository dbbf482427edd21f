// Package rlockotel tells OpenTelemetry what the locks of package rlock do: one span
// around each wait, in the trace of the caller, and metrics.
//
//	telemetry, err := rlockotel.New()
//	rdb.AddHook(telemetry.Hook())
//	client, err := rlock.New(rdb, &rlock.Options{Trace: telemetry.Trace()})
//	stop, err := telemetry.Observe(client)
//
// Spans name the lock, in `rlock.name`. Metrics do not, as there may be any number of names: see
// [WithLockNames], which may also hide them. The text of an error has the name, in the event
// `exception` of the span of a call that has failed. Only the API of OpenTelemetry is needed; the SDK is the program's.
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
	keyHolder  = attribute.Key("rlock.holder")
	keyTTL     = attribute.Key("rlock.ttl")
	keyTries   = attribute.Key("rlock.tries")
	keyCallers = attribute.Key("rlock.callers")
)

// Option is a setting of [New].
type Option func(*Telemetry)

// WithTracerProvider names where spans go, in place of the global provider, which nil
// leaves in place.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(t *Telemetry) {
		if p != nil {
			t.traces = p
		}
	}
}

// WithMeterProvider names where metrics go, in place of the global provider, which nil
// leaves in place.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(t *Telemetry) {
		if p != nil {
			t.meters = p
		}
	}
}

// WithLockNames has spans and the histograms of waits and holds carry `rlock.name`: what of
// returns for the name of a lock, unless that is "". Without it spans have the name itself, and
// metrics none. It should return few different texts, such
// as "invoice" for "invoice:42". What it panics with goes to the error handler of
// OpenTelemetry, once, and such a lock has no name.
func WithLockNames(of func(lock string) string) Option {
	return func(t *Telemetry) { t.nameOf = of }
}

// WithoutSpans leaves spans out, for programs that only have metrics: a span takes longer
// than a hand-off in memory, also one that goes nowhere.
func WithoutSpans() Option {
	return func(t *Telemetry) { t.spanless = true }
}

// Telemetry is what one or more clients are observed by.
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

// New returns a Telemetry. An option that is nil is left out.
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
