package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
