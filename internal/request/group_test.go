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

	"github.com/alicebob/miniredis/v2"
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
	moved   bool // its slots are another's
}

func (l *line) serve(ctx context.Context, cmds ...redis.Cmder) error {
	l.mu.Lock()
	takes, full := l.takes, l.full
	l.mu.Unlock()
	select {
	case <-time.After(full):
	case <-ctx.Done(): // as go-redis does while it waits for a connection
		for _, cmd := range cmds {
			cmd.SetErr(ctx.Err())
		}
		return nil
	}
	l.mu.Lock()
	l.sizes = append(l.sizes, len(cmds))
	for _, cmd := range cmds {
		l.started[cmd.Name()] = true
		cmd.Args()
	}
	l.mu.Unlock()
	time.Sleep(takes)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cmd := range cmds {
		switch {
		case l.moved:
			cmd.SetErr(errMoved)
		case cmd.Name() == "bad":
			cmd.SetErr(errBad)
		}
	}
	return nil
}

func (l *line) take(takes, full time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.takes, l.full = takes, full
}

var errBad, errMoved = errors.New("bad"), errors.New("MOVED 3300 10.0.0.4:1")

// asked reports whether the server was sent a command of that name.
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
	rdb.AddHook(redistest.Answers(l.serve))
	t.Cleanup(func() { _ = rdb.Close() })
	return l, groupOn(rdb)
}

func groupOn(rdb *redis.Client) *Group {
	return NewGroup(Config{Client: rdb, Senders: senders, Begin: func() {}, End: func() {}, Send: pipeline})
}

// pipeline sends commands in a pipeline and joins none.
func pipeline(ctx context.Context, r redis.UniversalClient, cmds []redis.Cmder, _ bool) bool {
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
	c := g.Call(Options{Bound: bound, Late: late, Leaves: late != nil})
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
		l, g := newLine(t, near/2)
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
		require.Equal(t, near, time.Since(start))
		idle(t, g)
	})
}

// A server that has become near gets no more batches at once than such a one is to have,
// although there always is a queue.
func TestFakeTimeNearAgain(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, 10*near)
		ctx, cancel := context.WithCancel(t.Context())
		caller := func() {
			for ctx.Err() == nil {
				_ = ask(ctx, g, "good")
			}
		}
		for range senders { // no two of them come back at the same time: the second would find the first starting
			go caller()
			time.Sleep(near / 8)
		}
		for range 2 * senders * maxBatch {
			go caller()
		}
		underWay := func() int {
			synctest.Wait()
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.open)
		}
		time.Sleep(55 * near)
		require.Equal(t, senders, underWay())
		l.take(near/2, 0)
		time.Sleep(15*near + near/16)
		require.Equal(t, nearSenders, underWay())
		cancel()
		time.Sleep(time.Minute)
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

// A caller that is about to leave does not wait in go-redis, which cannot be interrupted.
func TestFakeTimeAloneUntilSoon(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, time.Millisecond, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
		require.NoError(t, ask(t.Context(), g, "good"))
		idle(t, g) // or the next goes with a sender in any case
		l.take(time.Second, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, ask(ctx, g, "good"), ErrAbandoned)
		require.Equal(t, 5*time.Millisecond, time.Since(began))
		time.Sleep(time.Second)
		idle(t, g)
	})
}

// unlimited is a limiter that allows everything.
type unlimited struct{}

func (unlimited) Allow() error       { return nil }
func (unlimited) ReportResult(error) {}

// Where go-redis obeys a deadline, a caller that is alone sends his request himself,
// if the server has just shown that it will not take long.
func TestFakeTimeAlone(t *testing.T) {
	for name, edit := range map[string]func(*redis.Options){
		"ContextTimeoutEnabled": func(*redis.Options) {},
		"default":               func(o *redis.Options) { o.ContextTimeoutEnabled = false },
		"Limiter":               func(o *redis.Options) { o.Limiter = unlimited{} },
		"OnConnect":             func(o *redis.Options) { o.OnConnect = func(context.Context, *redis.Conn) error { return nil } },
		"CredentialsProvider":   func(o *redis.Options) { o.CredentialsProvider = func() (string, string) { return "", "" } },
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				obeys := name == "ContextTimeoutEnabled"
				l, g := newLine(t, fastAnswer-1, func(o *redis.Options) { o.ContextTimeoutEnabled = true }, edit)
				var goroutines atomic.Int32
				g.Begin = func() { goroutines.Add(1) }
				for _, takes := range []time.Duration{fastAnswer - 1, fastAnswer, 0, 0} {
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

// panics is a context of the application's that panics.
type panics struct{ context.Context }

func (panics) Done() <-chan struct{} { panic("Done") }

// A call whose context panics was not sent, and others go on.
func TestFakeTimePanicOfAContext(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		l, g := newLine(t, near/2)
		for range 3 {
			c := g.Call(Options{Bound: time.Second})
			require.Panics(t, func() {
				defer c.Put()
				_ = c.Process(panics{t.Context()}, redis.NewCmd(t.Context(), "lost"))
			})
			c = g.Call(Options{Bound: time.Second})
			require.NoError(t, c.Process(t.Context(), redis.NewCmd(t.Context(), "good")))
			c.Put()
		}
		require.False(t, l.asked("lost"))
		idle(t, g)
	})
}

// A connection may take far longer to be made than an answer of the server: it is made
// all the same, as long as somebody asks.
func TestFakeTimeSlowConnection(t *testing.T) {
	for _, obeys := range []bool{false, true} {
		for _, takes := range []time.Duration{loneBound + 1, least + 1, most / 2} {
			t.Run(takes.String(), func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					server := miniredis.NewMiniRedis()
					rdb := redis.NewClient(&redis.Options{
						Addr: "127.0.0.1:1", ContextTimeoutEnabled: obeys, ConnMaxIdleTime: time.Second,
						Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
						OnConnect: func(ctx context.Context, _ *redis.Conn) error {
							select {
							case <-time.After(takes):
								return nil
							case <-ctx.Done():
								return ctx.Err()
							}
						},
					})
					g := groupOn(rdb)
					require.NoError(t, ask(t.Context(), g, "ping"))
					time.Sleep(time.Minute) // the connection is too old by then
					for start := time.Now(); ask(t.Context(), g, "ping") != nil; idle(t, g) {
						require.Less(t, time.Since(start), 2*most)
					}
					require.NoError(t, rdb.Close())
					server.Close()
					idle(t, g)
				})
			})
		}
	}
}

// costly is a server on the clock of a bubble, to which each pipeline costs something,
// and each command in it. It serves one at a time.
type costly struct {
	free  chan struct{} // capacity 1
	each  time.Duration // what a command costs
	done  atomic.Int64  // commands
	stall atomic.Int64  // how long the next pipeline takes beside that
}

func (s *costly) work(_ context.Context, cmds ...redis.Cmder) error {
	for _, cmd := range cmds {
		cmd.Args()
	}
	s.free <- struct{}{}
	time.Sleep(50*time.Microsecond + time.Duration(len(cmds))*s.each + time.Duration(s.stall.Swap(0)))
	s.done.Add(int64(len(cmds)))
	<-s.free
	return nil
}

func newCostly(t *testing.T, each time.Duration) (*costly, *Group) {
	s := &costly{free: make(chan struct{}, 1), each: each}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	rdb.AddHook(redistest.Answers(s.work))
	t.Cleanup(func() { _ = rdb.Close() })
	return s, groupOn(rdb)
}

const window = 200 * time.Millisecond

// rates returns how many requests so many goroutines make in a while, and how many
// in the one after a server's stall.
func rates(t *testing.T, goroutines int, stall time.Duration) (before, after int64) {
	redistest.Bubble(t, func(t *testing.T) {
		s, g := newCostly(t, 5*time.Microsecond)
		ctx, cancel := context.WithCancel(t.Context())
		var n atomic.Int64
		for range goroutines {
			go func() {
				for ctx.Err() == nil {
					if ask(ctx, g, "good") == nil {
						n.Add(1)
					}
				}
			}()
		}
		count := func() int64 {
			was := n.Load()
			time.Sleep(window)
			return n.Load() - was
		}
		time.Sleep(100 * time.Millisecond)
		before = count()
		s.stall.Store(int64(stall))
		time.Sleep(stall + 100*time.Millisecond)
		after = count()
		cancel()
		time.Sleep(10 * time.Second)
		idle(t, g)
	})
	return before, after
}

// A stall does not end group commit, and more goroutines are never less.
func TestFakeTimeThroughputAfterAStall(t *testing.T) {
	redistest.Long(t, "10 s of computing")
	best := int64(0)
	for _, n := range []int{1, 64, 512, 768, 1024, 4096} {
		for _, stall := range []time.Duration{100 * time.Millisecond, 3 * time.Second} {
			before, after := rates(t, n, stall)
			t.Logf("%d goroutines: %d, %d after %v", n, before, after, stall)
			require.GreaterOrEqual(t, float64(after), 0.95*float64(before))
			require.GreaterOrEqual(t, float64(before), 0.9*float64(best))
			best = max(best, before)
		}
	}
}

// A server that cannot serve all who ask at once within the bound of an attempt is not
// made to work for those that are asking again by then.
func TestFakeTimeOverload(t *testing.T) {
	for each, bound := range map[time.Duration]time.Duration{
		time.Millisecond:       2 * time.Second,
		5 * time.Millisecond:   2 * time.Second,
		200 * time.Microsecond: 100 * time.Millisecond, // a batch is answered in time for it, and not for its calls
	} {
		if testing.Short() && bound > time.Second {
			continue // 5 s of computing
		}
		redistest.Bubble(t, func(t *testing.T) {
			const callers = 2048
			s, g := newCostly(t, each)
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					p := Policy{Attempt: bound, Total: time.Minute, Classify: Classify}
					a := Do(t.Context(), p, func(ctx context.Context, opts Options, _ func(bool, error)) (bool, bool, error) {
						return true, false, askOrLate(ctx, g, "good", opts.Bound, nil)
					}, nil)
					assert.Equal(t, Done, a.End)
				})
			}
			began := time.Now()
			all.Wait()
			t.Logf("%v each: %v, %d executed for %d callers", each, time.Since(began), s.done.Load(), callers)
			require.Less(t, s.done.Load(), int64(4*callers))
			time.Sleep(5 * time.Minute) // until the server has done what was given up
			idle(t, g)
		})
	}
}
