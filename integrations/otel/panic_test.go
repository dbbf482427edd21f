package rlockotel_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	rlockotel "github.com/go-rlock/rlock/integrations/otel"
	"github.com/go-rlock/rlock/rlock"
	"github.com/go-rlock/rlock/rlocktest"
)

// rude is a tracer that panics with the spans of a name: as they start, or as they end.
type rude struct {
	noop.TracerProvider
	name   string
	inEnd  bool
	panics atomic.Int64
}

func (r *rude) Tracer(string, ...trace.TracerOption) trace.Tracer { return rudeTracer{rude: r} }

type rudeTracer struct {
	noop.Tracer
	rude *rude
}

func (t rudeTracer) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	if name == t.rude.name {
		if t.rude.inEnd {
			return ctx, rudeSpan{rude: t.rude}
		}
		t.rude.panics.Add(1)
		panic("tracer")
	}
	ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	}))
	return ctx, trace.SpanFromContext(ctx)
}

type rudeSpan struct {
	noop.Span
	rude *rude
}

func (s rudeSpan) End(...trace.SpanEndOption) {
	s.rude.panics.Add(1)
	panic("span")
}

// The hook runs in goroutines of the library: a tracer that panics there must not end the
// program. The request goes on without a span.
func TestTracerPanicsInTheHook(t *testing.T) {
	for _, inEnd := range []bool{false, true} {
		t.Run(fmt.Sprint("in End: ", inEnd), func(t *testing.T) {
			tracer := &rude{name: "rlock.request", inEnd: inEnd}
			telemetry, err := rlockotel.New(rlockotel.WithTracerProvider(tracer))
			require.NoError(t, err)
			rdb := rlocktest.NewServer(t).Client()
			rdb.AddHook(telemetry.Hook())
			client, err := rlock.New(rdb, &rlock.Options{Trace: telemetry.Trace()})
			require.NoError(t, err)
			var all sync.WaitGroup
			for i := range 64 {
				all.Go(func() {
					assert.NoError(t, client.NewLock(fmt.Sprint("lock", i)).Do(t.Context(), nothing))
				})
			}
			all.Wait()
			require.NoError(t, client.Close(context.Background()))
			require.Positive(t, tracer.panics.Load())
		})
	}
}
