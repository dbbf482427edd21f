package rlock_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// logBuffer keeps what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// recorder is a trace that sends what it is told to channels.
type recorder struct {
	waiting  chan time.Duration
	acquired chan time.Duration
	renewed  chan time.Time
	lost     chan *rlock.LostError
	released chan time.Duration
}

func newRecorder() *recorder {
	const enough = 1000
	return &recorder{
		waiting:  make(chan time.Duration, enough),
		acquired: make(chan time.Duration, enough),
		renewed:  make(chan time.Time, enough),
		lost:     make(chan *rlock.LostError, enough),
		released: make(chan time.Duration, enough),
	}
}

func (r *recorder) trace(t *testing.T, name string) rlock.Trace {
	same := func(got string) {
		if got != name {
			t.Errorf("trace of lock %q", got)
		}
	}
	return rlock.Trace{
		Waiting:  func(name string, ttl time.Duration) { same(name); r.waiting <- ttl },
		Acquired: func(name string, waited time.Duration) { same(name); r.acquired <- waited },
		Renewed:  func(name string, until time.Time) { same(name); r.renewed <- until },
		Lost:     func(err *rlock.LostError) { same(err.Name); r.lost <- err },
		Released: func(name string, held time.Duration) { same(name); r.released <- held },
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	_, theirs := lock(t, ctx, newClient(t, srv, nil).NewLock("p:a"))
	r := newRecorder()
	c := newClient(t, srv, &rlock.Options{Prefix: "p:", LeaseTime: 3 * time.Second, Trace: r.trace(t, "a")})
	mu := c.NewLock("a")

	type result struct {
		ctx  context.Context
		hold *rlock.Hold
	}
	acquired := make(chan result)
	called := time.Now()
	go func() {
		ctx, hold, _ := mu.Lock(ctx)
		acquired <- result{ctx, hold}
	}()
	require.InDelta(t, 30*time.Second, within(t, 10*time.Second, r.waiting), float64(10*time.Second))
	awaitListener(t, rdb, "p:a")
	waited := time.Since(called)
	require.Empty(t, r.acquired)
	require.NoError(t, theirs.Unlock(ctx))
	got := within(t, 10*time.Second, acquired)
	require.NotNil(t, got.hold)
	require.GreaterOrEqual(t, within(t, 10*time.Second, r.acquired), waited)

	// A nested hold is no grant of its own.
	_, nested := lock(t, got.ctx, mu)
	require.NoError(t, nested.Unlock(ctx))
	require.Empty(t, r.acquired)
	require.Empty(t, r.released)

	until := within(t, 10*time.Second, r.renewed)
	require.True(t, until.After(time.Now()))
	redistest.Eventually(t, "Until agrees", func() bool { return !got.hold.Until().Before(until) })

	held := time.Since(called) - waited
	require.NoError(t, got.hold.Unlock(ctx))
	require.GreaterOrEqual(t, within(t, 10*time.Second, r.released), held/2)
	require.Empty(t, r.lost)

	// What TryLock is refused is reported by its error.
	_, theirs = lock(t, ctx, newClient(t, srv, nil).NewLock("p:a"))
	_, _, err := mu.TryLock(ctx)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	require.Empty(t, r.acquired)
	require.NoError(t, theirs.Unlock(ctx))
}

// A lost lease is traced and logged once, and is not a release.
func TestTraceLost(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	log, r := &logBuffer{}, newRecorder()
	c := newClient(t, srv, &rlock.Options{LeaseTime: 3 * time.Second, Logger: log.logger(), Trace: r.trace(t, "a")})
	held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithFencing()))
	require.NoError(t, srv.Client(t).Del(t.Context(), "a").Err())
	<-held.Done()
	lost := within(t, 10*time.Second, r.lost)
	require.Equal(t, "a", lost.Name)
	require.Equal(t, hold.Token(), lost.Token)
	require.Positive(t, lost.Token)
	require.Error(t, lost.Err)
	require.Same(t, lost, context.Cause(held))

	require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrLeaseLost)
	require.Empty(t, r.lost)
	require.Empty(t, r.released)
	require.Equal(t, 1, strings.Count(log.String(), "lease lost"), log.String())
	require.Contains(t, log.String(), "lock=a")
	require.Contains(t, log.String(), "level=WARN")
}

// What Renewed is told is what Until says, also when the window is longer than
// the renewal would make it.
func TestTraceRenewedTellsUntil(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	r := newRecorder()
	c := newClient(t, srv, &rlock.Options{LeaseTime: 3 * time.Second, Trace: r.trace(t, "a")})
	held, hold := lock(t, t.Context(), c.NewLock("a"))
	_, long := lock(t, held, c.NewLock("a", rlock.WithLeaseTime(time.Hour)))
	require.NoError(t, long.Unlock(held))
	for len(r.renewed) > 0 {
		<-r.renewed
	}
	require.WithinDuration(t, hold.Until(), within(t, 10*time.Second, r.renewed), time.Minute)
	require.NoError(t, hold.Unlock(held))
}

// An observer that panics, or that uses the library, does no harm.
func TestTraceMisbehaves(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(mu *rlock.Lock){
		"panics": func(*rlock.Lock) { panic("observer") },
		"uses the library": func(mu *rlock.Lock) {
			_ = mu.HoldCount(context.Background())
			if _, hold, err := mu.TryLock(context.Background()); err == nil {
				_ = hold.Unlock(context.Background())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			rdb := srv.Client(t)
			ctx := t.Context()
			log := &logBuffer{}
			quiet := newClient(t, srv, nil)
			theirs, ours := quiet.NewLock("a"), quiet.NewLock("other")
			c := newClient(t, srv, &rlock.Options{
				LeaseTime: 3 * time.Second,
				Logger:    log.logger(),
				Trace: rlock.Trace{
					Waiting:  func(string, time.Duration) { act(ours) },
					Acquired: func(string, time.Duration) { act(ours) },
					Renewed:  func(string, time.Time) { act(ours) },
					Lost:     func(*rlock.LostError) { act(ours) },
					Released: func(string, time.Duration) { act(ours) },
				},
			})
			mu := c.NewLock("a")
			_, first := lock(t, ctx, theirs)
			done := async(func() error { return mu.Do(ctx, func(context.Context) error { return nil }) })
			awaitListener(t, rdb, "a")
			require.NoError(t, first.Unlock(ctx))
			require.NoError(t, within(t, 10*time.Second, done))

			held, hold := lock(t, ctx, mu)
			inOther, otherHold := lock(t, ctx, c.NewLock("b"))
			awaitUntil(t, srv, "a", hold, 4*time.Second)
			require.NoError(t, rdb.Del(ctx, "a").Err())
			<-held.Done()
			require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrLeaseLost)
			awaitUntil(t, srv, "b", otherHold, 4*time.Second)
			require.NoError(t, inOther.Err())
			require.NoError(t, otherHold.Unlock(ctx))
			if name == "panics" {
				redistest.Eventually(t, "the panics are logged", func() bool {
					return strings.Count(log.String(), "panic=observer") >= 5
				})
			}
		})
	}
}
