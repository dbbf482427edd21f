package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// recorder is a trace that sends what it is told to channels.
type recorder struct {
	waiting  chan time.Duration
	acquired chan rlock.Acquisition
	renewed  chan time.Time
	lost     chan rlock.Loss
	released chan rlock.Release
}

func newRecorder() *recorder {
	const enough = 1000
	return &recorder{
		waiting:  make(chan time.Duration, enough),
		acquired: make(chan rlock.Acquisition, enough),
		renewed:  make(chan time.Time, enough),
		lost:     make(chan rlock.Loss, enough),
		released: make(chan rlock.Release, enough),
	}
}

func (r *recorder) trace(t *testing.T, name string) rlock.Trace {
	same := func(got string) {
		if got != name {
			t.Errorf("trace of lock %q", got)
		}
	}
	return rlock.Trace{
		Waiting:  func(_ context.Context, e rlock.Refusal) { same(e.Lock); r.waiting <- e.TTL },
		Acquired: func(_ context.Context, e rlock.Acquisition) { same(e.Lock); r.acquired <- e },
		Renewed: func(e rlock.Renewal) {
			same(e.Lock)
			assert.NotEmpty(t, e.Owner)
			r.renewed <- e.Until
		},
		Lost:     func(e rlock.Loss) { same(e.Lock); r.lost <- e },
		Released: func(_ context.Context, e rlock.Release) { same(e.Lock); r.released <- e },
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	_, theirs := lock(t, ctx, newClient(t, srv, nil).NewLock("p:a"))
	r := newRecorder()
	c := newClient(t, srv, &rlock.Options{Prefix: "p:", LeaseTime: 10 * time.Second, Trace: r.trace(t, "a")})
	mu := c.NewLock("a")

	type result struct {
		ctx  context.Context
		hold *rlock.Hold
	}
	acquired := make(chan result)
	go func() {
		ctx, hold, _ := mu.Lock(ctx)
		acquired <- result{ctx, hold}
	}()
	require.InDelta(t, 30*time.Second, within(t, 10*time.Second, r.waiting), float64(10*time.Second))
	refused := time.Now() // and so it was called before that
	awaitListener(t, rdb, "p:a")
	waited := time.Since(refused)
	require.Empty(t, r.acquired)
	require.NoError(t, theirs.Unlock(ctx))
	got := within(t, 10*time.Second, acquired)
	require.NotNil(t, got.hold)
	first := within(t, 10*time.Second, r.acquired)
	require.GreaterOrEqual(t, first.Waited, waited)
	require.Equal(t, rlock.KindPlain, first.Kind)
	require.Equal(t, rlock.OutcomeAcquired, first.Outcome)
	require.True(t, first.Contended)
	require.GreaterOrEqual(t, first.Tries, 2)
	require.Positive(t, first.Wakeups.Message)
	require.NoError(t, first.Err)
	require.Equal(t, got.hold.Owner(), first.Owner)

	// A nested hold is no grant of its own.
	_, nested := lock(t, got.ctx, mu)
	require.NoError(t, nested.Unlock(ctx))
	require.Equal(t, rlock.OutcomeNested, within(t, 10*time.Second, r.acquired).Outcome)
	require.Empty(t, r.released)

	until := within(t, 10*time.Second, r.renewed)
	require.True(t, until.After(time.Now()))
	redistest.Eventually(t, "Until agrees", func() bool { return !got.hold.Until().Before(until) })

	held := time.Since(refused) - waited
	require.NoError(t, got.hold.Unlock(ctx))
	release := within(t, 10*time.Second, r.released)
	require.GreaterOrEqual(t, release.Held, held/2)
	require.Equal(t, rlock.OutcomeReleased, release.Outcome)
	require.Equal(t, first.Owner, release.Owner)
	require.Empty(t, r.lost)

	_, theirs = lock(t, ctx, newClient(t, srv, nil).NewLock("p:a"))
	_, _, err := mu.TryLock(ctx)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	busy := within(t, 10*time.Second, r.acquired)
	require.Equal(t, rlock.OutcomeBusy, busy.Outcome)
	require.Equal(t, err, busy.Err)
	require.Empty(t, busy.Owner)
	require.NoError(t, theirs.Unlock(ctx))
}

// A lost lease is traced and logged once, and is not a release.
func TestTraceLost(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	log, r := &logBuffer{}, newRecorder()
	c := newClient(t, srv, &rlock.Options{LeaseTime: 10 * time.Second, Logger: log.logger(), Trace: r.trace(t, "a")})
	held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithFencing()))
	require.NoError(t, srv.Client(t).Del(t.Context(), "a").Err())
	<-held.Done()
	loss := within(t, 10*time.Second, r.lost)
	require.Equal(t, rlock.LossGone, loss.Cause)
	require.Positive(t, loss.Held)
	lost := loss.Err
	require.Equal(t, "a", lost.Name)
	require.Equal(t, hold.Owner(), lost.Owner)
	require.Equal(t, hold.Token(), lost.Token)
	require.Positive(t, lost.Token)
	acquired := within(t, 10*time.Second, r.acquired)
	require.Equal(t, hold.Token(), acquired.Token)
	require.Error(t, lost.Err)
	require.Same(t, lost, context.Cause(held))

	require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrLeaseLost)
	require.Empty(t, r.lost)
	require.Empty(t, r.released)
	require.Equal(t, 1, strings.Count(log.String(), "lease lost"), log.String())
	require.Contains(t, log.String(), "lock=a owner="+hold.Owner())
	require.Contains(t, log.String(), "level=WARN")
}

// What Renewed is told is what Until says, also when the window is longer than
// the renewal would make it.
func TestTraceRenewedTellsUntil(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	r := newRecorder()
	c := newClient(t, srv, &rlock.Options{LeaseTime: 10 * time.Second, Trace: r.trace(t, "a")})
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
				LeaseTime: 10 * time.Second,
				Logger:    log.logger(),
				Trace: rlock.Trace{
					Start:    func(context.Context, rlock.Attempt) context.Context { act(ours); return nil },
					Waiting:  func(context.Context, rlock.Refusal) { act(ours) },
					Acquired: func(context.Context, rlock.Acquisition) { act(ours) },
					Renewed:  func(rlock.Renewal) { act(ours) },
					Lost:     func(rlock.Loss) { act(ours) },
					Released: func(context.Context, rlock.Release) { act(ours) },
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
			awaitUntil(t, srv, "a", hold, 11*time.Second)
			require.NoError(t, rdb.Del(ctx, "a").Err())
			<-held.Done()
			require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrLeaseLost)
			awaitUntil(t, srv, "b", otherHold, 11*time.Second)
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

// What Start put into the context has everything that the call does, also for a multi lock
// whose first member is held.
func TestTraceOfAMultiLock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	type startKey struct{}
	told := make(chan any, 100)
	c := newClient(t, srv, &rlock.Options{Trace: rlock.Trace{
		Start: func(ctx context.Context, _ rlock.Attempt) context.Context {
			return context.WithValue(ctx, startKey{}, true)
		},
		Waiting: func(ctx context.Context, _ rlock.Refusal) { told <- ctx.Value(startKey{}) },
	}})
	_, theirs := lock(t, t.Context(), newClient(t, srv, nil).NewLock("a"))
	mine := make(chan error, 1)
	go func() { mine <- rlock.NewMultiLock(c.NewLock("a"), c.NewLock("b")).Do(t.Context(), nothing) }()
	require.Equal(t, true, within(t, 30*time.Second, told))
	require.NoError(t, theirs.Unlock(t.Context()))
	require.NoError(t, within(t, 30*time.Second, mine))
}

// obstacle is a place at which functions wait, from stop to clear.
type obstacle struct{ gate atomic.Pointer[chan struct{}] }

func (o *obstacle) stop()  { o.gate.Store(new(make(chan struct{}))) }
func (o *obstacle) clear() { close(*o.gate.Swap(nil)) }
func (o *obstacle) pass() {
	if gate := o.gate.Load(); gate != nil {
		<-*gate
	}
}

// logTo is a handler that calls a function before each line.
type logTo struct {
	slog.Handler
	before func()
}

func (l logTo) Handle(ctx context.Context, r slog.Record) error {
	l.before()
	return l.Handler.Handle(ctx, r)
}

// slowly returns options whose Logger and Trace call a function first.
func slowly(text *logBuffer, before func()) *rlock.Options {
	return &rlock.Options{
		LeaseTime: 3 * time.Second,
		Logger:    slog.New(logTo{slog.NewTextHandler(text, nil), before}),
		Trace: rlock.Trace{
			Renewed: func(rlock.Renewal) { before() },
			Lost:    func(rlock.Loss) { before() },
		},
	}
}

// Logger and Trace do not return for a minute. Leases are renewed meanwhile, and
// losses told in time.
func TestFakeTimeBlockedLogger(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, text := newFakeRedis(t), &logBuffer{}
		var o obstacle
		c := f.client(t, slowly(text, o.pass))
		held := make(map[string]context.Context)
		holds := make(map[string]*rlock.Hold)
		for i := range 20 {
			name := fmt.Sprint(i)
			held[name], holds[name] = lock(t, t.Context(), c.NewLock(name))
		}
		o.stop()
		for i := range 10 {
			name := fmt.Sprint(i)
			f.Del(name)
			time.Sleep(6 * time.Second)
			synctest.Wait()
			require.ErrorIs(t, context.Cause(held[name]), rlock.ErrLeaseLost, "the next renewal has found out")
			delete(held, name)
			for name, ctx := range held {
				require.NoError(t, ctx.Err(), name)
				require.Greater(t, time.Until(holds[name].Until()), time.Second, name)
			}
		}
		f.deafDown.Store(true) // renewals get no answer
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for name, ctx := range held {
			require.ErrorIs(t, context.Cause(ctx), rlock.ErrLeaseLost, name)
		}
		require.Empty(t, text.String())
		f.deafDown.Store(false)
		o.clear()
		synctest.Wait()
		require.Equal(t, 20, strings.Count(text.String(), "lease lost"))
		require.NotContains(t, text.String(), "token=")
		for _, hold := range holds {
			require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrLeaseLost)
		}
	})
}

// Three thousand leases lapse at once, and each line takes 1.3 ms.
func TestFakeTimeManyLossesAtOnce(t *testing.T) {
	redistest.Long(t, "3,000 locks")
	redistest.Bubble(t, func(t *testing.T) {
		f, text := newFakeRedis(t), &logBuffer{}
		opts := slowly(text, func() { time.Sleep(1300 * time.Microsecond) })
		opts.Trace = rlock.Trace{}
		c := f.client(t, opts)
		const n = 3000
		var late atomic.Int64
		var ended sync.WaitGroup
		for i := range n {
			ctx, hold := lock(t, t.Context(), c.NewLock(fmt.Sprint(i)))
			ended.Add(1)
			context.AfterFunc(ctx, func() {
				defer ended.Done()
				if time.Now().After(hold.Until()) {
					late.Add(1)
				}
			})
		}
		f.deafDown.Store(true)
		ended.Wait()
		require.Zero(t, late.Load(), "contexts that ended after their window")
		f.deafDown.Store(false)
		time.Sleep(10 * time.Second)
		require.Equal(t, n, strings.Count(text.String(), "lease lost"))
	})
}

// What is too much is dropped, and the log says how much.
func TestFakeTimeDroppedReports(t *testing.T) {
	redistest.Long(t, "200 locks for a minute of fake time take 10 s")
	redistest.Bubble(t, func(t *testing.T) {
		f, text := newFakeRedis(t), &logBuffer{}
		var o obstacle
		c := f.client(t, slowly(text, o.pass))
		var holds []*rlock.Hold
		for i := range 200 {
			_, hold := lock(t, t.Context(), c.NewLock(fmt.Sprint(i)))
			holds = append(holds, hold)
		}
		o.stop()
		time.Sleep(time.Minute) // 200 in a second
		o.clear()
		for _, hold := range holds {
			require.NoError(t, hold.Unlock(t.Context()))
		}
		synctest.Wait()
		require.Equal(t, 1, strings.Count(text.String(), "dropped="), text.String())
	})
}

// Close waits for a report, but not for longer than its context.
func TestFakeTimeCloseWithABlockedLogger(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f, text := newFakeRedis(t), &logBuffer{}
		var o obstacle
		c := f.client(t, slowly(text, o.pass))
		_, hold := lock(t, t.Context(), c.NewLock("a"))
		o.stop()
		f.Del("a")
		time.Sleep(3 * time.Second)
		require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrLeaseLost)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, c.Close(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		time.AfterFunc(time.Second, o.clear)
		require.NoError(t, c.Close(t.Context()))
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Contains(t, text.String(), "lease lost")
	})
}

// A caller whose own trace function does not return keeps nobody else waiting.
func TestFakeTimeBlockedCaller(t *testing.T) {
	for _, name := range []string{"Acquired", "Released"} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				var o obstacle
				var first atomic.Bool
				block := func() {
					if first.CompareAndSwap(false, true) {
						o.pass()
					}
				}
				opts := &rlock.Options{LeaseTime: 3 * time.Second}
				if name == "Acquired" {
					opts.Trace.Acquired = func(context.Context, rlock.Acquisition) { block() }
				} else {
					opts.Trace.Released = func(context.Context, rlock.Release) { block() }
				}
				c := f.client(t, opts)
				mu := c.NewLock("a", rlock.WithoutHandoff(), rlock.WithoutRenewal())
				o.stop()
				var all sync.WaitGroup
				took := make(chan time.Duration, 2)
				for range 2 {
					all.Go(func() {
						start := time.Now()
						err := mu.Do(t.Context(), func(context.Context) error {
							time.Sleep(time.Second)
							return nil
						})
						took <- time.Since(start)
						assert.True(t, err == nil || errors.Is(err, rlock.ErrLeaseLost), "%v", err)
					})
				}
				require.Less(t, <-took, 6*time.Second)
				o.clear()
				all.Wait()
			})
		})
	}
}

// A call that locks a held lock again, under a context that does not own it, waits for
// its own caller. That is logged once.
func TestFakeTimeWaitingForOneself(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		log := new(logBuffer)
		mu := f.client(t, &rlock.Options{Logger: log.logger()}).NewLock("a")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		err := mu.Do(ctx, func(held context.Context) error {
			const patience = 20 * time.Second
			_, _, err := mu.TryLockFor(ctx, patience)
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			require.NotContains(t, log.String(), "waits for itself", "less than a lease is no sign of it")
			for range 2 {
				_, _, err = mu.TryLockFor(ctx, 45*time.Second)
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
			}
			require.Equal(t, 1, strings.Count(log.String(), "waits for itself"))
			require.Contains(t, log.String(), mu.Owner(held))
			return mu.Do(held, func(context.Context) error { return nil })
		})
		require.NoError(t, err)
	})
}

// If waits for many locks become long at the same time, the client logs one in a second, and the rest later.
func TestFakeTimeLongWaitsAreLoggedOneByOne(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		log := new(logBuffer)
		c := f.client(t, &rlock.Options{Logger: log.logger()})
		const locks = 50
		ctx, cancel := context.WithCancel(t.Context())
		var waiters []*waiting
		for i := range locks {
			name := "lock" + strconv.Itoa(i)
			f.holder(name, time.Hour)
			waiters = append(waiters, begin(ctx, c.NewLock(name)))
		}
		time.Sleep(45 * time.Second) // the waits are long after 30 s
		synctest.Wait()
		lines := strings.Count(log.String(), "has waited for longer than a lease")
		require.GreaterOrEqual(t, lines, 5)
		require.LessOrEqual(t, lines, 16)
		cancel()
		for _, w := range waiters {
			<-w.done
		}
	})
}

// A call that waits for longer than its lease for somebody else's lock says so, again whenever the
// wait is twice as long, with what the holder's client tells of itself.
func TestFakeTimeLongWaitIsLogged(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		log := new(logBuffer)
		holder := f.recordedClient(t, &rlock.Options{Identity: rlock.Identity{Host: "web-7"}}).NewLock("a", rlock.WithPurpose("nightly invoices"))
		held, hold := lock(t, t.Context(), holder)
		time.Sleep(20 * time.Second) // there is a record by now
		mu := f.client(t, &rlock.Options{Logger: log.logger()}).NewLock("a")
		const line = "has waited for longer than a lease"
		require.ErrorIs(t, mu.DoFor(t.Context(), 29*time.Second, nothing), rlock.ErrNotAcquired)
		require.NotContains(t, log.String(), line)
		// The waiter looks about every 5 s, so the four lines come after 30 to 35, 60 to 75, 120 to 155 and 240 to 315 s.
		require.ErrorIs(t, mu.DoFor(t.Context(), 6*time.Minute, nothing), rlock.ErrNotAcquired)
		require.Equal(t, 4, strings.Count(log.String(), line), log.String())
		for _, part := range []string{"level=WARN", "lock=a", "owner=" + hold.Owner(), "host=web-7", `purpose="nightly invoices"`} {
			require.Equal(t, 4, strings.Count(log.String(), part), part)
		}
		require.NoError(t, hold.Unlock(held))
	})
}
