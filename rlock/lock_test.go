package rlock_test

import (
	"context"
	"errors"
	"go/ast"
	"go/types"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// What a call costs, by the commands that reach the server.
func TestRoundTrips(t *testing.T) {
	srv := newServer(t)
	ctx := t.Context()
	c := newClient(t, srv, nil)
	mu := c.NewLock("a")
	teach(t, srv)
	held, hold := lock(t, ctx, mu)
	_, nested := lock(t, held, mu)
	require.NoError(t, nested.Unlock(ctx))
	require.NoError(t, hold.Unlock(ctx))

	require.Equal(t, []string{"evalsha", "evalsha"}, sent(t, srv, func() {
		held, hold := lock(t, ctx, mu)
		require.NoError(t, hold.Unlock(held))
	}), "Lock and Unlock")

	require.Equal(t, []string{"evalsha", "evalsha"}, sent(t, srv, func() {
		require.NoError(t, c.NewLock("fenced", rlock.WithFencing()).Do(ctx, func(context.Context) error { return nil }))
	}), "Lock and Unlock with fencing")

	held, hold = lock(t, ctx, mu)
	require.Equal(t, []string{"evalsha", "evalsha"}, sent(t, srv, func() {
		_, nested := lock(t, held, mu)
		require.NoError(t, nested.Unlock(held))
	}), "nested Lock and Unlock")
	require.Empty(t, sent(t, srv, func() {
		require.Equal(t, 1, mu.HoldCount(held))
		_ = hold.Until()
	}), "local questions")

	require.Empty(t, sent(t, srv, func() {
		back, none, err := mu.TryLock(ctx)
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.Nil(t, none)
		require.Equal(t, ctx, back)
	}), "TryLock while a goroutine of this client holds the lock")

	theirs := newClient(t, srv, nil).NewLock("a")
	require.Equal(t, []string{"evalsha"}, sent(t, srv, func() {
		_, _, err := theirs.TryLock(ctx)
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		var refused *rlock.NotAcquiredError
		require.ErrorAs(t, err, &refused)
		require.InDelta(t, 30*time.Second, refused.TTL, float64(10*time.Second))
	}), "TryLock while another client holds the lock")

	for _, wait := range []time.Duration{0, -time.Second} {
		require.Equal(t, []string{"evalsha"}, sent(t, srv, func() {
			for _, mu := range []*rlock.Lock{mu, theirs} {
				back, none, err := mu.TryLockFor(ctx, wait)
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
				require.Nil(t, none)
				require.Equal(t, ctx, back)
			}
		}), "TryLockFor(%v)", wait)
	}
	require.NoError(t, hold.Unlock(held))
}

// An answer that has come counts, however close together things happen: nothing
// is asked twice.
func TestEveryAnswerCounts(t *testing.T) {
	const n = 300
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	require.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil }))
	_, err := mu.Inspect(t.Context())
	require.NoError(t, err)
	require.Len(t, sent(t, srv, func() {
		for range n {
			_, hold, err := mu.TryLock(t.Context())
			require.NoError(t, err)
			_, err = mu.Inspect(t.Context())
			require.NoError(t, err)
			require.NoError(t, hold.Unlock(t.Context()))
		}
	}), 3*n)
}

// A context that has ended is answered before anything is sent.
func TestEndedContext(t *testing.T) {
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewLock("a")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	past, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		want error
	}{
		"cancelled": {cancelled, context.Canceled},
		"past":      {past, context.DeadlineExceeded},
	} {
		for method, call := range methods(mu) {
			t.Run(name+"/"+method, func(t *testing.T) {
				require.Empty(t, sent(t, srv, func() {
					err := call(tt.ctx)
					require.ErrorIs(t, err, tt.want)
					require.ErrorContains(t, err, `"a"`)
					switch method {
					case "Inspect", "ForceUnlock", "UnlockOwner":
						require.NotErrorIs(t, err, rlock.ErrNotAcquired, "nothing was to be acquired")
					default:
						require.ErrorIs(t, err, rlock.ErrNotAcquired)
					}
				}))
			})
		}
	}
}

// The race detector sees n; the server is asked who is inside.
func TestMutualExclusion(t *testing.T) {
	t.Run("with hand-off", func(t *testing.T) {
		total := 0
		for _, n := range excludeEachOther(t) {
			total += n
		}
		require.Equal(t, 160, total)
	})
	t.Run("without", func(t *testing.T) {
		require.Len(t, excludeEachOther(t, rlock.WithoutHandoff()), 160, "every grant has an owner of its own")
	})
}

// excludeEachOther has goroutines of two clients lock 160 times, and returns how
// often each owner was seen on the server.
func excludeEachOther(t *testing.T, opts ...rlock.LockOption) map[string]int {
	srv := newServer(t)
	rdb := srv.Client(t)
	var wg sync.WaitGroup
	inside, n := 0, make(map[string]int)
	for range 2 {
		mu := newClient(t, srv, nil).NewLock("a", opts...)
		for range 8 {
			wg.Go(func() {
				for range 10 {
					if err := mu.Do(t.Context(), func(ctx context.Context) error {
						inside++
						if inside != 1 {
							t.Errorf("%d inside", inside)
						}
						for owner := range hgetall(t, rdb, "a") {
							n[owner]++
						}
						inside--
						return ctx.Err()
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	return n
}

func BenchmarkLock(b *testing.B) { benchmarkLock(b, newClient(b, newServer(b), nil)) }

// A caller that is alone sends its request itself, if its client obeys deadlines.
func BenchmarkLockAlone(b *testing.B) {
	rdb := newServer(b).Client(b, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	benchmarkLock(b, clientOn(b, rdb, nil))
}

func benchmarkLock(b *testing.B, c *rlock.Client) {
	mu, ctx := c.NewLock("a"), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_, hold, err := mu.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := hold.Unlock(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// The bounded forms of Do bound the wait, and not the work.
func TestDoForAndTryDo(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu, other := newClient(t, srv, nil).NewLock("a"), newClient(t, srv, nil).NewLock("a")
	errWork := errors.New("work")
	work := func(ctx context.Context) error {
		_, bounded := ctx.Deadline()
		require.False(t, bounded)
		require.Equal(t, 1, mu.HoldCount(ctx))
		return errWork
	}
	require.Equal(t, errWork, mu.DoFor(t.Context(), time.Minute, work))
	require.Equal(t, errWork, mu.TryDo(t.Context(), work))
	require.Zero(t, holds(t, rdb, "a"))

	held, hold := lock(t, t.Context(), other)
	never := func(context.Context) error { t.Error("it ran"); return nil }
	require.ErrorIs(t, mu.DoFor(t.Context(), 10*time.Millisecond, never), context.DeadlineExceeded)
	require.ErrorIs(t, mu.TryDo(t.Context(), never), rlock.ErrNotAcquired)
	require.NoError(t, hold.Unlock(held))
}

// mutexStep is what a function does to a mutex, or a call of another function.
type mutexStep struct {
	op   string // Lock, Unlock, call; return and join surround a branch that does not come back
	what string // the mutex, or the function, as it is written
}

// mutexSteps lists what a function does, in the order of its text. It leaves out an Unlock that is
// deferred, so that the mutex counts as held to the end, and function literals.
func mutexSteps(n ast.Node) (steps []mutexStep) {
	top := n
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt, *ast.DeferStmt, *ast.FuncLit:
			return false
		case *ast.BlockStmt:
			if n != top && len(n.List) > 0 {
				if _, leaves := n.List[len(n.List)-1].(*ast.ReturnStmt); leaves {
					steps = append(append(append(steps, mutexStep{op: "return"}), mutexSteps(n)...), mutexStep{op: "join"})
					return false
				}
			}
		case *ast.CallExpr:
			for _, arg := range n.Args {
				steps = append(steps, mutexSteps(arg)...)
			}
			switch f := n.Fun.(type) {
			case *ast.Ident:
				steps = append(steps, mutexStep{"call", f.Name})
			case *ast.SelectorExpr:
				if on := types.ExprString(f.X); (f.Sel.Name == "Lock" || f.Sel.Name == "Unlock") && strings.HasSuffix(on, ".mu") {
					steps = append(steps, mutexStep{f.Sel.Name, on})
				} else {
					steps = append(append(steps, mutexSteps(f.X)...), mutexStep{"call", on + "." + f.Sel.Name})
				}
			}
			return false
		}
		return true
	})
	return steps
}

// ofQueues reports whether an expression is the mutex of the queues.
func ofQueues(mu string) bool { return mu == "qs.mu" || strings.HasSuffix(mu, "queues.mu") }

// The order of the mutexes is: queues.mu, grant.mu, that of the watchdog. No function that locks the
// first is called while one of the two is held, and no function unlocks the mutex of its caller. The
// test follows the calls within this package that it can tell by their text: of a receiver that has
// its usual name, or of a name that only one function has.
func TestMutexOrder(t *testing.T) {
	functions, named := make(map[string][]mutexStep), make(map[string][]string)
	for _, file := range sources(t, "rlock") {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				name := f.Name.Name
				if f.Recv != nil && len(f.Recv.List[0].Names) > 0 {
					name = f.Recv.List[0].Names[0].Name + "." + name
				}
				functions[name] = append(functions[name], mutexSteps(f.Body)...)
				named[f.Name.Name] = append(named[f.Name.Name], name)
			}
		}
	}
	for _, steps := range functions {
		for i, s := range steps {
			if s.op != "call" {
				continue
			}
			parts := strings.Split(s.what, ".")
			bare := parts[len(parts)-1]
			for field, usual := range map[string]string{"queues": "qs", "queue": "q", "lock": "l", "grant": "g"} {
				if len(parts) > 1 && parts[len(parts)-2] == field {
					steps[i].what = usual + "." + bare
				}
			}
			if len(parts) > 1 && functions[steps[i].what] == nil && len(named[bare]) == 1 && !ast.IsExported(bare) {
				steps[i].what = named[bare][0]
			}
		}
	}
	locks := make(map[string]string) // the functions that lock queues.mu, and by which call
	for known := -1; known != len(locks); {
		known = len(locks)
		for name, steps := range functions {
			for _, s := range steps {
				if by, calls := locks[s.what]; locks[name] == "" && (s.op == "Lock" && ofQueues(s.what) || s.op == "call" && calls) {
					locks[name] = s.what + " " + by
				}
			}
		}
	}
	require.Contains(t, locks, "g.check", "by lose and ended")
	under := make(map[string]bool) // functions that are called while one of the two is held
	for known := -1; known != len(under); {
		known = len(under)
		for name, steps := range functions {
			var held, before []string
			if under[name] {
				held = []string{"that of its caller"}
			}
			for i, s := range steps {
				switch s.op {
				case "return":
					before = slices.Clone(held)
				case "join":
					held = before
				case "Lock":
					held = append(held, s.what)
				case "Unlock":
					if !slices.Contains(held, s.what) && !slices.Contains(steps[:i], mutexStep{"Lock", s.what}) {
						t.Errorf("%s unlocks %s, which its caller has locked", name, s.what)
					}
					held = slices.DeleteFunc(held, func(mu string) bool { return mu == s.what })
				case "call":
					if len(held) == 0 {
						continue
					}
					under[s.what] = true
					if by, locked := locks[s.what]; locked {
						t.Errorf("%s calls %s, which locks queues.mu (by %s), and holds %v", name, s.what, by, held)
					}
				}
			}
		}
	}
}

func TestFakeTimeUnavailable(t *testing.T) {
	for _, tt := range []struct {
		name        string
		lease, want time.Duration
		fault       func(*fakeRedis)
	}{
		{"silent, short lease", time.Second, 5 * time.Second, func(f *fakeRedis) { f.deafUp.Store(true) }},
		{"silent, long lease", 30 * time.Second, 30 * time.Second, func(f *fakeRedis) { f.deafUp.Store(true) }},
		{"errors, short lease", time.Second, 5 * time.Second, func(f *fakeRedis) { f.SetError("LOADING …") }},
		{"errors, long lease", 30 * time.Second, 30 * time.Second, func(f *fakeRedis) { f.SetError("LOADING …") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, &rlock.Options{LeaseTime: tt.lease}).NewLock("a")
				tt.fault(f)
				_, _, err := mu.Lock(t.Context())
				require.ErrorIs(t, err, rlock.ErrUnavailable)
				require.NotErrorIs(t, err, rlock.ErrNotAcquired)
				require.Equal(t, tt.want, f.now())
			})
		})
	}
}

func TestFakeTimeTryLockIsBounded(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		300 * time.Millisecond: 100 * time.Millisecond,
		30 * time.Second:       2 * time.Second,
	} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, &rlock.Options{LeaseTime: lease}).NewLock("a")
			f.deafUp.Store(true)
			_, _, err := mu.TryLock(t.Context())
			require.ErrorIs(t, err, rlock.ErrUnavailable)
			require.Equal(t, want, f.now())
		})
	}
}

func TestFakeTimeLateAnswerIsNoGrant(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, &rlock.Options{LeaseTime: 6 * time.Second}).NewLock("a")
		f.late.Store(int64(2500 * time.Millisecond)) // an attempt may take 2 s
		held, hold, err := mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.Nil(t, hold)
		require.Equal(t, t.Context(), held)
		f.late.Store(0)
		time.Sleep(2600 * time.Millisecond) // a connection for the release may have been made slowly, too
		synctest.Wait()
		require.False(t, f.Exists("a"), "its owner is released")
		require.NotEmpty(t, f.scripts("release"))
		require.Empty(t, f.scripts("renew"))
	})
}

// A caller that comes while a goroutine of its client gives the lock up asks the server at once: it
// does not wait for the answer to that release, which may be lost.
func TestFakeTimeLockDuringARelease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a")
		held, hold, err := mu.Lock(t.Context())
		require.NoError(t, err)
		open := f.hold(isScript("release"))
		released := make(chan error, 1)
		go func() { released <- hold.Unlock(held) }()
		synctest.Wait()
		require.Empty(t, released, "the release is under way")
		before := len(f.asked())
		next := make(chan error, 1)
		go func() {
			held, hold, err := mu.Lock(t.Context())
			if err == nil {
				err = hold.Unlock(held)
			}
			next <- err
		}()
		synctest.Wait()
		asked := len(f.asked())
		open()
		require.NoError(t, <-released)
		require.NoError(t, <-next)
		require.Greater(t, asked, before)
	})
}
