package rlockotel_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	rlockotel "github.com/go-rlock/rlock/integrations/otel"
	"github.com/go-rlock/rlock/rlock"
)

// beside is a client with redisotel beside this package, as docs/monitoring.md has it.
type beside struct {
	spans   *tracetest.SpanRecorder
	tracer  trace.Tracer
	client  *rlock.Client
	general atomic.Int64 // scripts that a hook of a cluster client has seen
	read    int          // spans
}

func newBeside(t *testing.T, cluster bool, opts ...redisotel.TracingOption) *beside {
	t.Helper()
	b := &beside{spans: tracetest.NewSpanRecorder()}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b.spans))
	b.tracer = traces.Tracer("test")
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	telemetry, err := rlockotel.New(rlockotel.WithTracerProvider(traces))
	require.NoError(t, err)
	var rdb redis.UniversalClient
	if cluster {
		nodes := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
		nodes.OnNewNode(func(node *redis.Client) { node.AddHook(telemetry.Hook()) })
		nodes.AddHook(counter{&b.general})
		rdb = nodes
	} else {
		single := redis.NewClient(&redis.Options{Addr: server.Addr()})
		single.AddHook(telemetry.Hook())
		rdb = single
	}
	opts = append(opts, redisotel.WithTracerProvider(traces), redisotel.WithDialFilter(true))
	require.NoError(t, redisotel.InstrumentTracing(rdb, opts...))
	b.client, err = rlock.New(rdb, &rlock.Options{Trace: telemetry.Trace(), Identity: rlock.Anonymous()})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.client.Close(context.Background()))
		require.NoError(t, rdb.Close())
	})
	return b
}

// counter is a hook that counts scripts. The client also asks, in the background, whether the
// cluster has sharded channels: that may come at any time.
type counter struct{ n *atomic.Int64 }

func (c counter) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		if strings.HasPrefix(cmd.Name(), "eval") {
			c.n.Add(1)
		}
	}
}

func (c counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds...)
		return next(ctx, cmds)
	}
}

// scripts returns redisotel's spans of scripts since it was called before. What has begun
// ends soon.
func (b *beside) scripts() (spans []sdktrace.ReadOnlySpan) {
	all := b.spans.Ended()
	for _, s := range all[b.read:] {
		if strings.Contains(s.Name(), "eval") {
			spans = append(spans, s)
		}
	}
	b.read = len(all)
	return spans
}

// pair locks and unlocks, in a trace of its own.
func (b *beside) pair(t assert.TestingT, name string) trace.SpanContext {
	ctx, root := b.tracer.Start(context.Background(), "root")
	defer root.End()
	assert.NoError(t, b.client.NewLock(name).Do(ctx, nothing))
	return root.SpanContext()
}

// parents returns the spans that end, by their id.
func (b *beside) parents() map[trace.SpanID]sdktrace.ReadOnlySpan {
	all := make(map[trace.SpanID]sdktrace.ReadOnlySpan)
	for _, s := range b.spans.Ended() {
		all[s.SpanContext().SpanID()] = s
	}
	return all
}

// What docs/monitoring.md says of the spans of redisotel. On a busy machine a request may be
// made twice, and what it has left is cleaned up.
func TestRedisotel(t *testing.T) {
	for name, cluster := range map[string]bool{"server": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			b := newBeside(t, cluster, redisotel.WithDBStatement(false))

			// The scripts are sent in full once, after an error that is none.
			b.pair(t, "a")
			refused := 0
			for _, s := range b.scripts() {
				if strings.Contains(s.Status().Description, "NOSCRIPT") {
					refused++
				}
			}
			require.GreaterOrEqual(t, refused, 2, "to lock, and to unlock")

			// The requests of one call are in its trace.
			root := b.pair(t, "a")
			require.Zero(t, b.general.Load(), "a hook of the cluster client does not see them")
			own := make(map[string]int)
			spans, parents := b.scripts(), b.parents()
			for _, s := range spans {
				require.NotContains(t, s.Status().Description, "NOSCRIPT")
				if s.SpanContext().TraceID() == root.TraceID() {
					own[parents[s.Parent().SpanID()].Name()]++
				}
			}
			require.Positive(t, own["rlock.acquire"])
			require.Positive(t, own["root"], "the Unlock belongs to the context that is passed to it")
			require.Len(t, own, 2)

			// Those of several are in none of theirs: they are below a span with links to all.
			shared := 0
			for range 10 {
				var wg sync.WaitGroup
				for i := range 32 {
					wg.Go(func() { b.pair(t, fmt.Sprint(i)) })
				}
				wg.Wait()
				spans, parents = b.scripts(), b.parents()
				for _, s := range spans {
					parent, ok := parents[s.Parent().SpanID()]
					if !ok { // of what is cleaned up, or has not ended
						continue
					}
					require.Contains(t, []string{"rlock.acquire", "root", "rlock.request"}, parent.Name())
					if parent.Name() == "rlock.request" {
						shared++
						require.False(t, parent.Parent().IsValid())
						require.GreaterOrEqual(t, len(parent.Links()), 2)
					}
				}
				if shared > 0 {
					break
				}
			}
			require.Positive(t, shared)

			// A renewal is nobody's request.
			ctx, span := b.tracer.Start(t.Context(), "root")
			held, hold, err := b.client.NewLock("a", rlock.WithLeaseTime(5*time.Second)).Lock(ctx)
			require.NoError(t, err)
			b.scripts()
			for until := hold.Until(); !hold.Until().After(until); time.Sleep(time.Millisecond) {
				require.NoError(t, held.Err())
			}
			roots := 0
			for _, s := range b.scripts() {
				if !s.Parent().IsValid() {
					roots++
				}
			}
			require.Positive(t, roots)
			require.NoError(t, hold.Unlock(held))
			span.End()

			for _, s := range b.spans.Ended() {
				require.NotContains(t, attributes(s), "db.statement")
			}
		})
	}
}

// Without that option, a statement is a script.
func TestRedisotelWithStatements(t *testing.T) {
	b := newBeside(t, false)
	b.pair(t, "a")
	longest := 0
	for _, s := range b.scripts() {
		longest = max(longest, len(attributes(s)["db.statement"]))
	}
	t.Log(longest)
	require.Greater(t, longest, 1000)
	require.Less(t, longest, 64<<10)
}

// Two filters drop the spans of scripts, and leave the others.
func TestRedisotelFilters(t *testing.T) {
	isScript := func(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") }
	b := newBeside(t, false, redisotel.WithCommandFilter(isScript), redisotel.WithCommandsFilter(func(cmds []redis.Cmder) bool {
		for _, cmd := range cmds {
			if isScript(cmd) {
				return true
			}
		}
		return false
	}))
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() { b.pair(t, fmt.Sprint(i)) })
	}
	wg.Wait()
	require.Empty(t, b.scripts())
	require.NotEmpty(t, b.spans.Ended())
}

// While go-redis sets up a connection for a shared request it calls the hooks again, with the context
// of that request. These are no requests of their own.
func TestSharedRequestsWhileConnecting(t *testing.T) {
	b := newBeside(t, false)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			assert.NoError(t, b.client.NewLock(fmt.Sprint("lock", i)).Do(t.Context(), func(context.Context) error { return nil }))
		})
	}
	all.Wait()
	shared := 0
	for _, span := range b.spans.Ended() {
		if span.Name() == "rlock.request" {
			shared++
			assert.False(t, span.Parent().IsValid(), "it stands for several calls")
			assert.NotEmpty(t, span.Links())
		}
	}
	require.Positive(t, shared)
}
