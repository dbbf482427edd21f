package rlock

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/watchdog"
)

// fake is a protocol whose answers a test chooses, on the clock of a bubble. It
// grants, counts and releases at once, unless told otherwise.
type fake struct {
	client *Client
	start  time.Time

	onAcquire func(ctx context.Context, n int) (lua.Reply, error) // n counts the calls from 1
	onCount   func(ctx context.Context, n int) error
	onRelease func(ctx context.Context, n int) (lua.Released, error)

	mu  sync.Mutex // guards log
	log []call
}

type call struct {
	at    time.Duration
	name  string
	owner string
	holds int
}

// newFake returns a client without a server, and a lock with a fake protocol
// whose lease is 30 s.
func newFake(t *testing.T) (*Client, *Lock, *fake) {
	rdb := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:1",
		Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") },
	})
	c, err := New(rdb, nil)
	require.NoError(t, err)
	c.dog = watchdog.New(func(_ context.Context, due []watchdog.Renewal[*grant]) []error {
		return make([]error, len(due))
	}, watchdog.Options{})
	f := &fake{client: c, start: time.Now()}
	l := c.NewLock("a")
	l.protocol = f
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, c.Close(ctx))
		assert.NoError(t, rdb.Close())
	})
	return c, l, f
}

// note records a call and returns how many of its name there were.
func (f *fake) note(name, owner string, holds int) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, call{time.Since(f.start), name, owner, holds})
	for _, c := range f.log {
		if c.name == name {
			n++
		}
	}
	return n
}

// calls returns the recorded calls of a name.
func (f *fake) calls(name string) (all []call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.log {
		if c.name == name {
			all = append(all, c)
		}
	}
	return all
}

// times returns when the calls of a name were made.
func (f *fake) times(name string) (at []time.Duration) {
	for _, c := range f.calls(name) {
		at = append(at, c.at)
	}
	return at
}

func (f *fake) key() string       { return "a" }
func (f *fake) listen(string) ear { return f.client.hub.Join("channel") }

func (f *fake) acquire(ctx context.Context, owner string, _ time.Duration, _ terms) (reply, error) {
	n := f.note("acquire", owner, 1)
	if f.onAcquire != nil {
		r, err := f.onAcquire(ctx, n)
		return reply{Reply: r}, err
	}
	return reply{Reply: lua.Reply{Acquired: true}}, nil
}

func (f *fake) count(ctx context.Context, owner string, _ time.Duration, holds tally) error {
	n := f.note("count", owner, holds.exclusive)
	if f.onCount != nil {
		return f.onCount(ctx, n)
	}
	return nil
}

func (f *fake) release(ctx context.Context, owner string, _ []string) (lua.Released, error) {
	n := f.note("release", owner, 0)
	if f.onRelease != nil {
		return f.onRelease(ctx, n)
	}
	return lua.Released{}, nil
}

func (f *fake) renewals(string, time.Duration) []renewal { return nil } // the fake client's watchdog needs none

func (f *fake) force(context.Context) (bool, error)        { return true, nil }
func (f *fake) inspect(context.Context) (lua.State, error) { return lua.State{}, nil }
func hang(ctx context.Context) error                       { <-ctx.Done(); return ctx.Err() }
func sleepLong(d time.Duration)                            { time.Sleep(d); synctest.Wait() }
func within(t *testing.T, d time.Duration) context.Context { return deadline(t, d, nil) }
func deadline(t *testing.T, d time.Duration, cause error) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), d, cause)
	t.Cleanup(cancel)
	return ctx
}

// A later attempt may overtake a hanging one, and the window counts from the
// attempt that was answered.
func TestFakeTimeWindowCountsFromTheAnsweredAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onAcquire = func(ctx context.Context, n int) (lua.Reply, error) {
			if n == 1 {
				return lua.Reply{}, hang(ctx)
			}
			time.Sleep(700 * time.Millisecond)
			return lua.Reply{Acquired: true}, nil
		}
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		sent := f.start.Add(f.times("acquire")[1])
		require.Equal(t, sent.Add(700*time.Millisecond), time.Now())
		require.Equal(t, sent.Add(30*time.Second-302*time.Millisecond), hold.Until())
		calls := f.calls("acquire")
		require.Equal(t, calls[0].owner, calls[1].owner, "one grant, one owner")
		require.NoError(t, hold.Unlock(held))

		sleepLong(time.Minute)
		at := f.times("release")
		require.Len(t, at, 2, "the first attempt may still arrive")
		require.Equal(t, 10*time.Second, at[1]-at[0])
	})
}

func TestFakeTimeAbandonedAcquireIsReleasedTwice(t *testing.T) {
	for name, tt := range map[string]struct {
		answer time.Duration // when the acquire is answered after all; 0: never
		want   []time.Duration
	}{
		"no answer":   {0, []time.Duration{100 * time.Millisecond, 10*time.Second + 100*time.Millisecond}},
		"late answer": {3 * time.Second, []time.Duration{100 * time.Millisecond, 3 * time.Second, 10*time.Second + 100*time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, l, f := newFake(t)
				f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) {
					if tt.answer == 0 {
						return lua.Reply{}, hang(ctx)
					}
					time.Sleep(tt.answer) // go-redis heeds no context
					return lua.Reply{Acquired: true}, nil
				}
				cause := errors.New("enough")
				ctx := deadline(t, 100*time.Millisecond, cause)
				got, hold, err := l.Lock(ctx)
				require.Equal(t, 100*time.Millisecond, time.Since(f.start))
				require.Nil(t, hold)
				require.Equal(t, ctx, got)
				require.ErrorIs(t, err, ErrUnavailable)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, cause)

				sleepLong(time.Minute)
				want := tt.want
				if tt.answer == 0 { // the attempt ends with its own bound, and says nothing
					want = append([]time.Duration{want[0], 2 * time.Second}, want[1:]...)
				}
				require.Equal(t, want, f.times("release"))
				for _, r := range f.calls("release") {
					require.Equal(t, f.calls("acquire")[0].owner, r.owner)
				}
				require.False(t, c.janitor.running)
				require.Zero(t, c.active.Load())
			})
		})
	}
}

func TestFakeTimeRefusedAttemptNeedsNoCleanUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onAcquire = func(context.Context, int) (lua.Reply, error) { return lua.Reply{TTL: time.Hour}, nil }
		_, _, err := l.TryLock(t.Context())
		require.ErrorIs(t, err, ErrNotAcquired)
		_, _, err = l.Lock(within(t, 10*time.Second))
		require.ErrorIs(t, err, ErrNotAcquired)
		require.NotErrorIs(t, err, ErrUnavailable)
		sleepLong(time.Hour)
		require.Empty(t, f.calls("release"))
	})
}

func TestFakeTimeCloseSendsCleanUpsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, f := newFake(t)
		f.onAcquire = func(context.Context, int) (lua.Reply, error) { return lua.Reply{}, errors.New("EOF") }
		_, _, err := l.Lock(within(t, 100*time.Millisecond))
		require.ErrorIs(t, err, ErrUnavailable)
		sleepLong(time.Second)
		require.Equal(t, []time.Duration{100 * time.Millisecond}, f.times("release"))
		require.NoError(t, c.Close(t.Context()))
		require.Equal(t, []time.Duration{100 * time.Millisecond, 1100 * time.Millisecond}, f.times("release"))
	})
}

// The client closes while a waiter asks once more.
func TestFakeTimeCloseDuringARepeatedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, f := newFake(t)
		f.onAcquire = func(ctx context.Context, n int) (lua.Reply, error) {
			if n > 1 {
				return lua.Reply{}, hang(ctx)
			}
			return lua.Reply{TTL: time.Hour}, nil
		}
		errs := make(chan error, 1)
		go func() {
			_, _, err := l.Lock(t.Context())
			errs <- err
		}()
		sleepLong(100 * time.Millisecond)
		require.Len(t, f.calls("acquire"), 2)
		closed := make(chan error, 1)
		go func() { closed <- c.Close(t.Context()) }()
		synctest.Wait()
		require.Len(t, errs, 1)
		require.ErrorIs(t, <-errs, ErrClosed)
		require.NoError(t, <-closed)
	})
}

func TestFakeTimeReleaseGoesOnUntilTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, f := newFake(t)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		f.onRelease = func(ctx context.Context, _ int) (lua.Released, error) { return lua.Released{}, hang(ctx) }
		require.ErrorIs(t, hold.Unlock(held), ErrUnavailable)
		require.Equal(t, DefaultUnlockTimeout, time.Since(f.start))
		sleepLong(time.Hour)
		at := f.times("release")
		last := at[len(at)-1]
		require.Greater(t, last, 25*time.Second)
		require.Less(t, last, DefaultUnlockTimeout+30*time.Second+time.Second)
		require.False(t, c.janitor.running, "then it ends")
	})
}

// While Redis is silent, the goroutines of the clean-up do not grow with the
// number of callers that left something behind.
func TestFakeTimeCleanUpOfManyCallersIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, f := newFake(t)
		f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) { return lua.Reply{}, hang(ctx) }
		f.onRelease = func(ctx context.Context, _ int) (lua.Released, error) { return lua.Released{}, hang(ctx) }
		before := runtime.NumGoroutine()
		var all sync.WaitGroup
		for range 1000 {
			l := c.NewLock("a")
			l.protocol = f
			all.Go(func() {
				_, _, err := l.TryLock(within(t, 100*time.Millisecond))
				assert.ErrorIs(t, err, ErrUnavailable)
			})
		}
		all.Wait()
		sleepLong(3 * time.Second) // the attempts to acquire have ended
		require.Less(t, runtime.NumGoroutine()-before, 3*maxSweeps)
		f.mu.Lock()
		f.onRelease = nil
		f.mu.Unlock()
		sleepLong(time.Minute)
		require.False(t, c.janitor.running)
	})
}

func TestFakeTimeCancelledNestedLockIsCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, f := newFake(t)
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		f.onCount = func(_ context.Context, n int) error {
			if n == 1 {
				time.Sleep(3 * time.Second) // go-redis heeds no context
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(held, 100*time.Millisecond)
		defer cancel()
		_, inner, err := l.Lock(ctx)
		require.Equal(t, 100*time.Millisecond, time.Since(f.start))
		require.Nil(t, inner)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, l.HoldCount(held))
		sleepLong(5 * time.Second)

		counts := f.calls("count")
		require.Equal(t, 2, counts[0].holds)
		require.Equal(t, []time.Duration{0, 100 * time.Millisecond, 3 * time.Second}, f.times("count"), "once at once, once after the late answer")
		require.Equal(t, 1, counts[1].holds)
		require.Equal(t, 1, counts[2].holds)
		require.NoError(t, hold.Unlock(held))
	})
}

// Under a context that does not end with the grant, the loss still ends the call.
func TestFakeTimeNestedLockDoesNotOutwaitTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, f := newFake(t)
		c.dog = watchdog.New(func(ctx context.Context, due []watchdog.Renewal[*grant]) []error {
			errs := make([]error, len(due))
			for i := range errs {
				errs[i] = hang(ctx)
			}
			return errs
		}, watchdog.Options{})
		held, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		f.onCount = func(ctx context.Context, _ int) error { return hang(ctx) }
		_, _, err = l.Lock(context.WithoutCancel(held))
		require.ErrorIs(t, err, ErrLeaseLost)
		require.LessOrEqual(t, time.Since(f.start), 30*time.Second-302*time.Millisecond, "the end of the window")
		require.ErrorIs(t, hold.Unlock(held), ErrLeaseLost)
	})
}

// The context of a whole queue ends. Whoever becomes the head by that must
// neither ask the server any more nor take a busy lock for a silent server.
func TestFakeTimeQueueLeavesAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		acquire func(ctx context.Context) (lua.Reply, error)
		want    error
	}{
		"busy": {func(context.Context) (lua.Reply, error) {
			time.Sleep(time.Millisecond)
			return lua.Reply{TTL: time.Hour}, nil
		}, ErrNotAcquired},
		"silent": {func(ctx context.Context) (lua.Reply, error) { return lua.Reply{}, hang(ctx) }, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l, f := newFake(t)
				f.onAcquire = func(ctx context.Context, _ int) (lua.Reply, error) { return tt.acquire(ctx) }
				leave := errors.New("leave")
				ctx, cancel := context.WithCancelCause(t.Context())
				errs := make(chan error, 1000)
				for range cap(errs) {
					go func() {
						_, _, err := l.Lock(ctx)
						errs <- err
					}()
				}
				sleepLong(2500 * time.Millisecond) // the head has seen how it stands
				require.Empty(t, errs)
				before := f.times("acquire")
				cancel(leave)
				synctest.Wait()
				require.Len(t, errs, cap(errs), "all leave at the same instant")
				other := make(map[string]int)
				for range cap(errs) {
					err := <-errs
					assert.ErrorIs(t, err, context.Canceled)
					assert.ErrorIs(t, err, leave)
					if !errors.Is(err, tt.want) {
						other[err.Error()]++
					}
				}
				assert.Empty(t, other, "all should be: %v", tt.want)
				assert.Equal(t, before, f.times("acquire"), "attempts for callers that have left")
			})
		})
	}
}

// The waiters of a busy lock end one after another, faster than the server
// answers: each becomes the head, asks, and is gone before it is refused. The
// server is well, and none of them may say otherwise.
func TestFakeTimeBusyIsNotUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, f := newFake(t)
		f.onAcquire = func(context.Context, int) (lua.Reply, error) {
			time.Sleep(time.Millisecond)
			return lua.Reply{TTL: time.Hour}, nil
		}
		errs := make(chan error, 100)
		for i := range cap(errs) {
			ctx := within(t, time.Second+time.Duration(i)*100*time.Microsecond)
			go func() {
				_, _, err := l.Lock(ctx)
				errs <- err
			}()
		}
		wrong := make(map[string]int)
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				wrong[err.Error()]++
			}
		}
		require.Empty(t, wrong)
	})
}

// A correction that comes between a hand-off and the moment in which the heir takes
// it has nothing to count, and leaves the lease to be renewed.
func TestFakeTimeCorrectionBeforeTheHeir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, f := newFake(t)
		l.handoff = handoff{}.withDefaults(false)
		_, hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		s := &seat{gates: l.gates, gate: l.gates.of("a"), lock: l, open: true, wake: make(chan struct{}, 1)}
		s.gate.queue = append(s.gate.queue, s)
		require.NoError(t, hold.Unlock(t.Context()))
		heir := s.take()
		require.NotNil(t, heir, "it was passed on")
		require.Empty(t, f.calls("release"))

		require.NoError(t, heir.setCount(t.Context(), heir.patience(time.Second)))
		require.Empty(t, f.calls("count"))
		held, next, err := heir.adopt(t.Context())
		require.NoError(t, err)
		s.got = heir
		s.leave()
		time.Sleep(5 * l.lease)
		require.NoError(t, held.Err(), "it is renewed")
		require.NoError(t, next.Unlock(t.Context()))
	})
}
