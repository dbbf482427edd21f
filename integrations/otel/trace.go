package rlockotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/redis/go-redis/v9"

	"github.com/go-rlock/rlock/rlock"
)

// Trace returns the functions for the Trace field of [rlock.Options]. Each lock call makes a span
// `rlock.acquire`, which ends when the call returns, so the span does not include the work under the lock. Each
// time that the lock is refused, an event `rlock.refused` of the span names the holder.
func (t *Telemetry) Trace() rlock.Trace {
	if t.spanless {
		return rlock.Trace{Acquired: t.observeAcquisition, Renewed: t.renewed, Released: t.released, Lost: t.lost}
	}
	return rlock.Trace{
		Start:    t.start,
		Waiting:  waiting,
		Acquired: t.acquired,
		Renewed:  t.renewed,
		Released: t.released,
		Lost:     t.lost,
	}
}

func (t *Telemetry) start(ctx context.Context, a rlock.Attempt) context.Context {
	ctx, span := t.tracer.Start(ctx, "rlock.acquire")
	if span.IsRecording() {
		span.SetAttributes(t.attributes(a.Lock, keyKind.String(string(a.Kind)))...)
		if t.nameOf == nil { // no metric has that many values of an attribute, but a span may
			span.SetAttributes(keyName.String(exportable(a.Lock)))
		}
	}
	return context.WithValue(ctx, ownSpan{}, span)
}

// ownSpan is the key of the span of a call in its context. The newest span there may be
// that of the caller, if start has panicked or what it returned was dropped.
type ownSpan struct{}

func waiting(ctx context.Context, r rlock.Refusal) {
	span, ok := ctx.Value(ownSpan{}).(trace.Span)
	if !ok || !span.IsRecording() {
		return
	}
	span.AddEvent("rlock.refused", trace.WithTimestamp(r.At), trace.WithAttributes(
		keyHolder.String(exportable(r.Holder)), keyTTL.Float64(r.TTL.Seconds()),
	))
}

func (t *Telemetry) acquired(ctx context.Context, a rlock.Acquisition) {
	if span, ok := ctx.Value(ownSpan{}).(trace.Span); ok {
		end(span, a)
	}
	t.observeAcquisition(ctx, a)
}

// end ends the span of a call, which says how the call has ended.
func end(span trace.Span, a rlock.Acquisition) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(keyOutcome.String(string(a.Outcome)), keyTries.Int(a.Tries))
	if busy, ok := errors.AsType[*rlock.NotAcquiredError](a.Err); ok && busy.Holder != "" {
		span.SetAttributes(keyHolder.String(exportable(busy.Holder)))
	}
	switch a.Outcome {
	case rlock.OutcomeUnavailable, rlock.OutcomeError:
		span.RecordError(a.Err)
		span.SetStatus(codes.Error, string(a.Outcome)) // few texts: some backends group by them
	}
}

// Hook returns a hook for the go-redis client that your locks use. For a cluster client, add the hook to the
// clients that OnNewNode receives. A request of a single call is already part of the trace of that call.
// Requests of several calls can travel together, and then belong to no single trace. For such a request, the
// hook makes a span `rlock.request` with a link to the span of each call. Add this hook before the hook of
// redisotel, so that the spans of redisotel are children of its spans.
func (t *Telemetry) Hook() redis.Hook { return hook{t} }

type hook struct{ t *Telemetry }

// inRequest is the key in the context of a request that has its span.
type inRequest struct{}

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, end := h.t.shared(ctx)
		defer end()
		return next(ctx, cmd)
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, end := h.t.shared(ctx)
		defer end()
		return next(ctx, cmds)
	}
}

// shared begins the span of a request that several calls share, if one of them is sampled. While
// go-redis sets up a connection for that request, it calls the hooks again, with the context of
// the request: that gets no span of its own.
//
// It runs in a goroutine of the library, where a panic would end the program. So what the tracer
// panics with is dropped, and the request goes on without a span.
func (t *Telemetry) shared(ctx context.Context) (request context.Context, end func()) {
	request, end = ctx, func() {}
	defer func() { _ = recover() }()
	if ctx.Value(inRequest{}) != nil {
		return ctx, end
	}
	callers := rlock.Callers(ctx)
	var links []trace.Link
	sampled := false
	for _, c := range callers {
		if s := trace.SpanContextFromContext(c); s.IsValid() {
			links = append(links, trace.Link{SpanContext: s})
			sampled = sampled || s.IsSampled()
		}
	}
	if !sampled {
		return ctx, end
	}
	within, span := t.tracer.Start(ctx, "rlock.request", trace.WithLinks(links...), trace.WithAttributes(keyCallers.Int(len(callers))))
	return context.WithValue(within, inRequest{}, true), func() {
		defer func() { _ = recover() }() // of End; a panic of the request itself goes on
		span.End()
	}
}
