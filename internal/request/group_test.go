package request

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
)

const senders = 4

// line is a server that answers every command after a while, and the line to it.
// It refuses those that are called "bad".
type line struct {
	takes time.Duration // from when it is sent
	full  time.Duration // before that, for a connection

	mu      sync.Mutex // guards what follows
	sizes   []int      // of pipelines; 1 for a command by itself
	started map[string]bool
}

func (l *line) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *line) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		l.serve(ctx, cmd)
		return cmd.Err()
	}
}

func (l *line) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		l.serve(ctx, cmds...)
		return nil
	}
}

func (l *line) serve(ctx context.Context, cmds ...redis.Cmder) {
	l.mu.Lock()
	takes, full := l.takes, l.full
	l.mu.Unlock()
	select {
	case <-time.After(full):
	case <-ctx.Done(): // as go-redis does while it waits for a connection
		for _, cmd := range cmds {
			cmd.SetErr(ctx.Err())
		}
		return
	}
	l.mu.Lock()
	l.sizes = append(l.sizes, len(cmds))
	for _, cmd := range cmds {
		l.started[cmd.Name()] = true
		cmd.Args()
	}
	l.mu.Unlock()
	time.Sleep(takes)
	for _, cmd := range cmds {
		if cmd.Name() == "bad" {
			cmd.SetErr(errBad)
		}
	}
}

func (l *line) take(takes, full time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takes, l.full = takes, full
}

var errBad = errors.New("bad")

// asked tells whether the server was sent a command of that name.
func (l *line) asked(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started[name]
}

func newLine(t *testing.T, takes time.Duration, edit ...func(*redis.Options)) (*line, *Group) {
	l := &line{takes: takes, started: make(map[string]bool)}
	o := &redis.Options{Addr: "127.0.0.1:1"}
	for _, e := range edit {
		e(o)
	}
	rdb := redis.NewClient(o)
	rdb.AddHook(l)
	t.Cleanup(func() { _ = rdb.Close() })
	return l, groupOn(rdb)
}

func groupOn(rdb *redis.Client) *Group {
	return NewGroup(Config{Client: rdb, Senders: senders, Begin: func() {}, End: func() {}, Send: pipeline})
}

// pipeline sends commands in a pipeline and joins none.
func pipeline(ctx context.Context, r Runner, cmds []redis.Cmder, _ bool) bool {
	pipe := r.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, _ = pipe.Exec(ctx)
	return false
}

func ask(ctx context.Context, g *Group, name string) error {
	return askOrLate(ctx, g, name, 10*time.Minute, nil)
}

func askOrLate(ctx context.Context, g *Group, name string, bound time.Duration, late func(error)) error {
	c := g.Call(Terms{Bound: bound, Late: late})
	defer c.Put()
	return c.Process(ctx, redis.NewCmd(ctx, name))
}

// idle fails the test unless nothing of a group is under way.
func idle(t *testing.T, g *Group) {
	t.Helper()
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	require.Zero(t, g.ready.n)
	require.Empty(t, g.open)
	require.Zero(t, g.starting)
}

// Those who come at the same time share one pipeline; those who come while it is on
// its way share the next.
func TestFakeTimeConcurrentRequestsShareAPipeline(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		require.NoError(t, ask(t.Context(), g, "first"))
		start := time.Now()
		var wg sync.WaitGroup
		for i := range nearSenders {
			wg.Go(func() { assert.NoError(t, ask(t.Context(), g, "good")) })
			synctest.Wait()
			require.Len(t, l.sizes, i+2)
		}
		for range maxBatch + 10 {
			wg.Go(func() { assert.NoError(t, ask(t.Context(), g, "good")) })
		}
		wg.Go(func() {
			assert.ErrorIs(t, ask(t.Context(), g, "bad"), errBad, "its own outcome, and nobody else's")
		})
		wg.Wait()
		require.ElementsMatch(t, []int{1, 1, 1, maxBatch, 11}, l.sizes)
		require.Equal(t, 2*time.Millisecond, time.Since(start))
		idle(t, g)
	})
}

// On a line of any length there is group commit, and it takes as many pipelines as
// there are senders, at most.
func TestFakeTimeFarServer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, 200*time.Millisecond)
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				for range 10 {
					assert.NoError(t, ask(t.Context(), g, "good"))
				}
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		require.Less(t, len(l.sizes), 100)
		idle(t, g)
	})
}

// Whoever leaves is not sent if there is time, and otherwise does not wait for the
// answer, which is told to his late function. The others do not notice.
func TestFakeTimeLeaving(t *testing.T) {
	for after, want := range map[time.Duration]error{5 * time.Millisecond: ErrNotSent, 15 * time.Millisecond: ErrAbandoned} {
		t.Run(after.String(), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				l, g := newLine(t, 10*time.Millisecond)
				start := time.Now()
				var ended time.Duration
				late := func(err error) {
					assert.Equal(t, ErrUnread, err)
					ended = time.Since(start)
				}
				var wg sync.WaitGroup
				for range senders {
					wg.Go(func() { assert.NoError(t, ask(t.Context(), g, "first")) })
					synctest.Wait()
				}
				wg.Go(func() {
					assert.NoError(t, ask(t.Context(), g, "stayer"))
					assert.Equal(t, 20*time.Millisecond, time.Since(start))
				})
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), after)
					defer cancel()
					assert.Equal(t, want, askOrLate(ctx, g, "leaver", time.Minute, late))
					assert.Equal(t, after, time.Since(start))
				})
				wg.Wait()
				idle(t, g)
				require.Equal(t, want == ErrAbandoned, l.asked("leaver"))
				require.Equal(t, want == ErrAbandoned, ended == 20*time.Millisecond, "when its answer came")
			})
		})
	}
}

// A batch whose callers have all left stops waiting for a connection, and is not sent.
func TestFakeTimeLeavingBeforeThereIsAConnection(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		l.take(time.Millisecond, time.Hour)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond+time.Millisecond)
				defer cancel()
				late := func(error) { t.Error("it was not sent") }
				err := askOrLate(ctx, g, "leaver", time.Minute, late)
				assert.Contains(t, []error{ErrAbandoned, ErrNotSent}, err) // by whether it was in a batch
			})
		}
		wg.Wait()
		idle(t, g)
		require.False(t, l.asked("leaver"))
		require.Zero(t, g.pace.took, "the wait for a connection says nothing of the server")
	})
}

// A batch waits for a connection only as long as for an answer; then its callers may
// ask again.
func TestFakeTimeNoConnection(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		require.NoError(t, ask(t.Context(), g, "first"))
		l.take(time.Millisecond, time.Hour)
		start := time.Now()
		require.Equal(t, ErrCrowded, ask(t.Context(), g, "second"))
		require.Equal(t, least, time.Since(start))
		idle(t, g)
		require.False(t, l.asked("second"))
		require.Equal(t, time.Millisecond, g.pace.took)
	})
}

// Each call has a bound of its own, wherever it is.
func TestFakeTimeBounds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, 100*time.Millisecond)
		require.NoError(t, ask(t.Context(), g, "first"))
		l.take(700*time.Millisecond, 0)
		start := time.Now()
		var wg sync.WaitGroup
		for range senders / 2 {
			wg.Go(func() { assert.NoError(t, ask(t.Context(), g, "long")) })
			synctest.Wait()
			wg.Go(func() {
				assert.Equal(t, ErrNoAnswer, askOrLate(t.Context(), g, "short", 300*time.Millisecond, nil))
				assert.Equal(t, 300*time.Millisecond, time.Since(start))
			})
			synctest.Wait()
		}
		wg.Go(func() {
			assert.Equal(t, ErrCrowded, askOrLate(t.Context(), g, "unsent", 300*time.Millisecond, nil))
			assert.Equal(t, 300*time.Millisecond, time.Since(start))
		})
		wg.Wait()
		require.Equal(t, 700*time.Millisecond, time.Since(start))
		require.False(t, l.asked("unsent"))
		idle(t, g)
	})
}

// What hangs is given up, and those behind it go out past it. Who had left hears of
// that, and of the answer if it comes after all.
func TestFakeTimeGivingUp(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		require.NoError(t, ask(t.Context(), g, "first"))
		l.take(time.Minute, 0)
		start := time.Now()
		var wg sync.WaitGroup
		told := make(chan error, 10)
		wg.Go(func() {
			assert.Equal(t, ErrNoAnswer, ask(t.Context(), g, "first"))
			assert.Equal(t, least, time.Since(start))
		})
		synctest.Wait()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			assert.Equal(t, ErrAbandoned, askOrLate(ctx, g, "first", time.Minute, func(err error) { told <- err }))
		})
		synctest.Wait()
		for range 2 {
			wg.Go(func() {
				assert.NoError(t, ask(t.Context(), g, "second"))
				assert.Equal(t, least, time.Since(start))
			})
		}
		time.Sleep(least - 1)
		l.take(0, 0)
		wg.Wait()
		require.Equal(t, []int{1, 1, 1, 2}, l.sizes)
		idle(t, g)
		require.Equal(t, ErrNoAnswer, <-told)
		require.Empty(t, told)
		time.Sleep(time.Minute)
		idle(t, g)
		require.Equal(t, ErrUnread, <-told)
		require.Empty(t, told)
	})
}

// Where go-redis obeys a deadline, a caller that is alone sends his request himself,
// if the server has just shown that it will not take long.
func TestFakeTimeAlone(t *testing.T) {
	for name, obeys := range map[string]bool{"ContextTimeoutEnabled": true, "default": false} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				l, g := newLine(t, swift-1, func(o *redis.Options) { o.ContextTimeoutEnabled = obeys })
				var goroutines atomic.Int32
				g.Begin = func() { goroutines.Add(1) }
				for _, takes := range []time.Duration{swift - 1, swift, 0, 0} {
					l.take(takes, 0)
					require.NoError(t, ask(t.Context(), g, "good"))
					synctest.Wait()
				}
				if obeys {
					require.EqualValues(t, 2, goroutines.Load(), "the first, and the one after a slow answer")
				} else {
					require.EqualValues(t, 4, goroutines.Load())
				}
				idle(t, g)
			})
		})
	}
}

// witness notes what the context of a command has.
type witness struct {
	*line
	value    any
	deadline bool
}

type witnessKey struct{}

func (w *witness) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.value = ctx.Value(witnessKey{})
		_, w.deadline = ctx.Deadline()
		return next(ctx, cmd)
	}
}

func (w *witness) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A batch that is used again has nothing of the call that it was used for before.
func TestFakeTimeBatchUsedAgain(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l := &line{started: make(map[string]bool)}
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
		defer func() { _ = rdb.Close() }()
		w := &witness{line: l}
		rdb.AddHook(w)
		rdb.AddHook(l)
		g := groupOn(rdb)
		for i, takes := range []time.Duration{time.Millisecond, swift, time.Millisecond, time.Millisecond} {
			l.take(takes, 0)
			require.NoError(t, ask(context.WithValue(t.Context(), witnessKey{}, i), g, "good"))
			idle(t, g)
			require.Equal(t, i, w.value, "that of its own caller")
			require.Equal(t, i == 1 || i == 3, w.deadline, "in the goroutine of its caller, after a fast answer")
			require.Equal(t, takes, g.pace.took, "measured from when it was sent itself")
			require.Len(t, g.used, 1)
			time.Sleep(time.Minute)
		}
	})
}

// Held calls are not sent until they may be; those that leave nothing behind are.
func TestFakeTimeHold(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond)
		g.Hold(true)
		late := func(error) { t.Error("it was not sent") }
		require.Equal(t, ErrCrowded, askOrLate(t.Context(), g, "held", time.Second, late))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, ErrNotSent, askOrLate(ctx, g, "held", time.Minute, late))
		require.False(t, l.asked("held"))
		require.NoError(t, ask(t.Context(), g, "release"))
		time.AfterFunc(time.Second, func() { g.Hold(false) })
		start := time.Now()
		require.NoError(t, askOrLate(t.Context(), g, "held", time.Minute, late))
		require.Equal(t, time.Second+time.Millisecond, time.Since(start))
		idle(t, g)
	})
}

// A server that falls silent keeps nobody for longer than the bound, whatever the
// time-outs of the client.
func TestSilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	rdb := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), ReadTimeout: -1, MaxRetries: 3, DialTimeout: time.Minute})
	defer func() { _ = rdb.Close() }()
	g := groupOn(rdb)
	start := time.Now()
	require.Error(t, askOrLate(t.Context(), g, "first", patient, nil))
	require.GreaterOrEqual(t, time.Since(start), patient)
	require.Less(t, time.Since(start), 10*time.Second)
}
