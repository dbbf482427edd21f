package once_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/once"
	"github.com/go-rlock/rlock/rlock"
)

func TestResultIsShared(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := once.New(host(t, s.Addr()), once.Options{}), once.New(host(t, s.Addr()), once.Options{})
	for _, name := range []string{"rate:EUR", "{rate}:EUR", "with{tag}x", "{all}", "\x00"} {
		value, err := a.Do(t.Context(), name, gives("of a"))
		require.NoError(t, err)
		require.Equal(t, "of a", string(value))
		value[0] = 'X' // the next caller is given a value of its own
		for _, g := range []*once.Group{a, b} {
			value, err := g.Do(t.Context(), name, gives("another"))
			require.NoError(t, err)
			require.Equal(t, "of a", string(value), "%q", name)
		}
	}
	value, err := a.Do(t.Context(), "nothing", gives(""))
	require.NoError(t, err)
	require.Empty(t, value)
	value, err = b.Do(t.Context(), "nothing", gives("another"))
	require.NoError(t, err)
	require.Empty(t, value, "an empty result is a result")

	require.NoError(t, b.Forget(t.Context(), "rate:EUR"))
	value, err = b.Do(t.Context(), "rate:EUR", gives("newer"))
	require.NoError(t, err)
	require.Equal(t, "newer", string(value))
}

func TestResultEndsAfterItsTTL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := once.New(host(t, s.Addr()), once.Options{TTL: 500 * time.Millisecond})
	_, err := g.Do(t.Context(), "x", func(context.Context) ([]byte, error) {
		time.Sleep(700 * time.Millisecond) // the mark of the run is over by then, the result is not
		return []byte("first"), nil
	})
	require.NoError(t, err)
	value, err := g.Do(t.Context(), "x", gives("second"))
	require.NoError(t, err)
	require.Equal(t, "first", string(value))
	ttl := s.Client(t).PTTL(t.Context(), "rlock_companion:{x}").Val()
	require.Greater(t, ttl, time.Duration(0))
	require.LessOrEqual(t, ttl, 500*time.Millisecond)
	time.Sleep(ttl + 10*time.Millisecond) // Redis counts in whole milliseconds
	value, err = g.Do(t.Context(), "x", gives("second"))
	require.NoError(t, err)
	require.Equal(t, "second", string(value))
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	locks := host(t, s.Addr())
	g := once.New(locks, once.Options{})
	never := func(context.Context) ([]byte, error) { t.Error("fn was called"); return nil, nil }

	_, err := g.Do(t.Context(), "", never)
	require.ErrorIs(t, err, rlock.ErrInvalidOption)
	for _, opts := range []once.Options{{TTL: -1}, {TTL: time.Microsecond}, {Lease: -1}, {Lease: time.Millisecond}} {
		_, err = once.New(locks, opts).Do(t.Context(), "x", never)
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
	}

	// What others have stored is neither used nor overwritten.
	require.NoError(t, rdb.Set(t.Context(), "rlock_companion:{text}", "mine", 0).Err())
	require.NoError(t, rdb.HSet(t.Context(), "rlock_companion:{leader}", "is", "leader", "owner", "somebody").Err())
	require.NoError(t, rdb.HSet(t.Context(), "rlock_companion:{hash}", "result", "mine").Err())
	require.NoError(t, rdb.Set(t.Context(), "lock", "mine", 0).Err())
	for name, key := range map[string]string{
		"text": "rlock_companion:{text}", "leader": "rlock_companion:{leader}", "hash": "rlock_companion:{hash}", "lock": "lock",
	} {
		before := rdb.Dump(t.Context(), key).Val()
		_, err = g.Do(t.Context(), name, never)
		require.ErrorIs(t, err, rlock.ErrKeyConflict)
		if key != "lock" {
			require.ErrorContains(t, err, key)
			require.ErrorIs(t, g.Forget(t.Context(), name), rlock.ErrKeyConflict)
		}
		require.Equal(t, before, rdb.Dump(t.Context(), key).Val())
	}
}

func TestLongResult(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := once.New(host(t, s.Addr()), once.Options{Strict: true})
	long := strings.Repeat("x", once.MaxResult)
	value, err := g.Do(t.Context(), "long", gives(long))
	require.NoError(t, err)
	require.Len(t, value, once.MaxResult)
	_, err = g.Do(t.Context(), "too long", gives(long+"x"))
	require.ErrorIs(t, err, once.ErrTooLong)
	require.ErrorContains(t, err, `"too long": 65537 bytes`)

	_, err = g.Do(t.Context(), "too long", gives("again"))
	require.ErrorIs(t, err, once.ErrUnknown, "the function has done its work, so with Strict it does not do it again")
	tolerant := once.New(host(t, s.Addr()), once.Options{})
	_, err = tolerant.Do(t.Context(), "tolerant", gives(long+"x"))
	require.ErrorIs(t, err, once.ErrTooLong)
	value, err = tolerant.Do(t.Context(), "tolerant", gives("again"))
	require.NoError(t, err)
	require.Equal(t, "again", string(value))

	// A run that was begun by Begin is still there to be finished in another way.
	run, _, err := g.Begin(t.Context(), "begun", "")
	require.NoError(t, err)
	require.ErrorIs(t, run.Finish(t.Context(), []byte(long+"x")), once.ErrTooLong)
	require.NoError(t, run.Context().Err())
	require.NoError(t, run.Finish(t.Context(), []byte("its address")))
}

// A run whose lock was deleted stores nothing, and what others have stored stays.
func TestLockDeletedDuringARun(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := once.New(host(t, s.Addr()), once.Options{}), once.New(host(t, s.Addr()), once.Options{})
	for end, late := range map[string]func(*once.Run) error{
		"finish": func(r *once.Run) error { return r.Finish(t.Context(), []byte("of a")) },
		"fail":   func(r *once.Run) error { return r.Fail(t.Context()) },
	} {
		for _, finished := range []bool{false, true} {
			name := fmt.Sprint(end, finished)
			run, _, err := a.Begin(t.Context(), name, "")
			require.NoError(t, err)
			require.NoError(t, s.Client(t).Del(t.Context(), name).Err())
			other, _, err := b.Begin(t.Context(), name, "")
			require.NoError(t, err)
			if finished {
				require.NoError(t, other.Finish(t.Context(), []byte("of b")))
			}
			require.ErrorIs(t, late(run), rlock.ErrLeaseLost)
			require.ErrorIs(t, late(run), rlock.ErrNotHeld, "it has ended")
			if !finished {
				require.NoError(t, other.Finish(t.Context(), []byte("of b")))
			}
			_, value, err := a.Begin(t.Context(), name, "")
			require.NoError(t, err)
			require.Equal(t, "of b", string(value))
		}
	}

	// Do returns the error as well, and not the result, which nobody else has seen.
	rdb := s.Client(t)
	_, err := a.Do(t.Context(), "y", func(ctx context.Context) ([]byte, error) {
		require.NoError(t, rdb.Del(ctx, "y").Err())
		return []byte("of a"), nil
	})
	require.ErrorIs(t, err, rlock.ErrLeaseLost)
	_, err = a.Do(t.Context(), "y", func(ctx context.Context) ([]byte, error) {
		require.NoError(t, rdb.Del(ctx, "y").Err())
		<-ctx.Done() // the next renewal notices
		return nil, context.Cause(ctx)
	})
	require.ErrorIs(t, err, rlock.ErrLeaseLost)
}

func TestEndsOfARun(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	locks := host(t, s.Addr())
	for _, strict := range []bool{false, true} {
		g := once.New(locks, once.Options{Strict: strict})
		name := map[bool]string{false: "tolerant", true: "strict"}[strict]
		begin := func() *once.Run {
			run, result, err := g.Begin(t.Context(), name, "print")
			require.NoError(t, err)
			require.Nil(t, result)
			_, _, err = g.Begin(t.Context(), name, "print")
			busy, ok := errors.AsType[*once.InFlightError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, name, busy.Name)
			require.Greater(t, busy.TTL, lease/2)
			require.LessOrEqual(t, busy.TTL, lease)
			_, _, err = g.Begin(t.Context(), name, "another")
			require.ErrorIs(t, err, once.ErrMismatch)
			require.ErrorContains(t, err, name)
			return run
		}
		run := begin()
		require.NoError(t, run.Fail(t.Context()))
		require.ErrorIs(t, run.Fail(t.Context()), rlock.ErrNotHeld)
		require.ErrorIs(t, run.Abandon(t.Context()), rlock.ErrNotHeld)
		require.ErrorIs(t, run.Finish(t.Context(), nil), rlock.ErrNotHeld, "it has failed")

		run = begin()
		require.NoError(t, run.Abandon(t.Context()))
		if strict {
			_, _, err := g.Begin(t.Context(), name, "print")
			require.ErrorIs(t, err, once.ErrUnknown)
			_, _, err = g.Begin(t.Context(), name, "another")
			require.ErrorIs(t, err, once.ErrMismatch)
			require.NoError(t, g.Forget(t.Context(), name))
		}
		run = begin()
		require.NoError(t, g.Forget(t.Context(), name), "and the run goes on")
		require.NoError(t, run.Finish(t.Context(), []byte("result")))
		redistest.Eventually(t, "the lock is free", func() bool { return rdb.Exists(context.Background(), name).Val() == 0 })
		require.NoError(t, run.Finish(t.Context(), []byte("result")), "as if the first reply was lost, and then the lock")
		require.ErrorIs(t, run.Finish(t.Context(), []byte("another")), rlock.ErrNotHeld, "the first result stays")
		_, result, err := g.Begin(t.Context(), name, "print")
		require.NoError(t, err)
		require.Equal(t, "result", string(result))
		_, _, err = g.Begin(t.Context(), name, "")
		require.ErrorIs(t, err, once.ErrMismatch)
		_, err = g.Do(t.Context(), name, gives("another"))
		require.ErrorIs(t, err, once.ErrMismatch)
	}
}

// The first result of a run stays, even if the lock is not released yet.
func TestFinishTwice(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := netfault.New(t, s.Addr())
	g := once.New(host(t, proxy.Addr()), once.Options{Lease: unhurried})
	run, _, err := g.Begin(t.Context(), "x", "")
	require.NoError(t, err)
	unlock := proxy.Hold(netfault.Arg("rlock_queue:{x}"))
	require.NoError(t, run.Finish(t.Context(), []byte("first")))
	require.NoError(t, unlock.Wait(t.Context()))
	require.ErrorIs(t, run.Finish(t.Context(), []byte("second")), rlock.ErrNotHeld)
	require.NoError(t, run.Finish(t.Context(), []byte("first")))
	require.NoError(t, unlock.Deliver(t.Context()))
	_, result, err := g.Begin(t.Context(), "x", "")
	require.NoError(t, err)
	require.Equal(t, "first", string(result))
}

// The fingerprint of a run that has ended is not that of the run in progress, which has not yet told its own.
func TestFingerprintOfAnotherRun(t *testing.T) {
	t.Parallel()
	locks := host(t, redistest.Start(t).Addr())
	g := once.New(locks, once.Options{})
	run, _, err := g.Begin(t.Context(), "x", "former")
	require.NoError(t, err)
	require.NoError(t, run.Abandon(t.Context()))
	held, hold, err := locks.NewLock("x").Lock(t.Context()) // as the next run does first
	require.NoError(t, err)
	_, _, err = g.Begin(t.Context(), "x", "next")
	_, busy := errors.AsType[*once.InFlightError](err)
	require.True(t, busy, "%v", err)
	require.NoError(t, hold.Unlock(held))
	run, _, err = g.Begin(t.Context(), "x", "next")
	require.NoError(t, err)
	require.NoError(t, run.Fail(t.Context()))
}

// An end works after the end of the contexts: what a run has done does not depend on who waits for it.
func TestEndsOfARunWithoutContext(t *testing.T) {
	t.Parallel()
	g := once.New(host(t, redistest.Start(t).Addr()), once.Options{Strict: true})
	ctx, cancel := context.WithCancel(t.Context())
	run, _, err := g.Begin(ctx, "x", "")
	require.NoError(t, err)
	cancel()
	<-run.Context().Done()
	require.NoError(t, run.Finish(ctx, []byte("result")))
	_, result, err := g.Begin(t.Context(), "x", "")
	require.NoError(t, err)
	require.Equal(t, "result", string(result))
}

// What fn returns in error is for the calls that have waited for it; others run their own fn, at once.
func TestFunctionFails(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	opts := once.Options{Strict: true, Lease: time.Minute}
	a, b := once.New(host(t, s.Addr()), opts), once.New(host(t, s.Addr()), opts)
	failed := errors.New("failed")
	started, goOn := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		_, err := a.Do(t.Context(), "x", func(context.Context) ([]byte, error) {
			close(started)
			<-goOn
			return nil, failed
		})
		require.ErrorIs(t, err, failed)
	})
	<-started
	for range 10 {
		all.Go(func() {
			_, err := a.Do(t.Context(), "x", gives("never"))
			require.ErrorIs(t, err, failed)
		})
	}
	var end time.Time
	all.Go(func() {
		value, err := b.Do(t.Context(), "x", gives("of b"))
		require.NoError(t, err)
		require.Equal(t, "of b", string(value))
		require.Less(t, time.Since(end), 4*time.Second, "woken by a message, not by the timer for lost ones")
	})
	subscribed(t, s, "x", 1)
	time.Sleep(20 * time.Millisecond) // the calls of a have joined, or will get the result of b
	end = time.Now()
	close(goOn)
}

// subscribed waits until so many clients wait for a result.
func subscribed(t testing.TB, s *redistest.Server, name string, clients int64) {
	channel := "rlock_channel:{" + name + "}:companion"
	rdb := s.Client(t)
	redistest.Eventually(t, "the clients wait", func() bool {
		return rdb.PubSubNumSub(context.Background(), channel).Val()[channel] == clients
	})
}

func TestFunctionPanics(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, strict := range []bool{false, true} {
		g := once.New(host(t, s.Addr()), once.Options{Strict: strict})
		var all sync.WaitGroup
		started, goOn := make(chan struct{}), make(chan struct{})
		name := map[bool]string{false: "tolerant", true: "strict"}[strict]
		var panicked atomic.Int64
		call := func(fn func(context.Context) ([]byte, error)) {
			all.Go(func() {
				defer func() {
					require.Equal(t, "boom", recover())
					panicked.Add(1)
				}()
				_, _ = g.Do(t.Context(), name, fn)
			})
		}
		call(func(context.Context) ([]byte, error) { close(started); <-goOn; panic("boom") })
		<-started
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			defer func() { require.Equal(t, "boom", recover()) }()
			_, _ = g.Do(t.Context(), name, gives("never"))
		}()
		time.Sleep(20 * time.Millisecond)
		close(goOn)
		all.Wait()
		<-joined
		require.EqualValues(t, 1, panicked.Load())

		_, err := g.Do(t.Context(), name, gives("next"))
		if strict {
			require.ErrorIs(t, err, once.ErrUnknown)
		} else {
			require.NoError(t, err)
		}
		_, err = g.Do(t.Context(), name+" exits", func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil })
		require.ErrorContains(t, err, "ended its goroutine")
	}
}

func TestCallersLeave(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := once.New(host(t, s.Addr()), once.Options{})
	began, ended := make(chan context.Context), make(chan struct{})
	fn := func(ctx context.Context) ([]byte, error) {
		began <- ctx
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}
	type key struct{}
	first, leave := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	second, leaveToo := context.WithCancel(t.Context())
	gone := errors.New("gone")
	var all sync.WaitGroup
	all.Go(func() {
		_, err := g.Do(first, "x", fn)
		require.Equal(t, gone, err)
	})
	ctx := <-began
	require.Equal(t, "value", ctx.Value(key{}))
	all.Go(func() {
		_, err := g.Do(second, "x", fn)
		require.ErrorIs(t, err, context.Canceled)
	})
	time.Sleep(20 * time.Millisecond)
	leave(gone)
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, ctx.Err(), "somebody still waits")
	leaveToo()
	all.Wait()
	<-ended

	// The next call waits until that fn has returned, and runs its own.
	value, err := g.Do(t.Context(), "x", gives("next"))
	require.NoError(t, err)
	require.Equal(t, "next", string(value))
}

// A call for the same name under fn would wait for itself.
func TestNestedCall(t *testing.T) {
	t.Parallel()
	g := once.New(host(t, redistest.Start(t).Addr()), once.Options{})
	value, err := g.Do(t.Context(), "x", func(ctx context.Context) ([]byte, error) {
		_, err := g.Do(ctx, "x", gives("never"))
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		_, _, err = g.Begin(ctx, "x", "")
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		return g.Do(ctx, "y", gives("of y"))
	})
	require.NoError(t, err)
	require.Equal(t, "of y", string(value))
}

// Close ends the waits and the runs; who has called learns why.
func TestClose(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	other := once.New(host(t, s.Addr()), once.Options{})
	run, _, err := other.Begin(t.Context(), "held", "")
	require.NoError(t, err)
	locks := host(t, s.Addr())
	g := once.New(locks, once.Options{})
	var all sync.WaitGroup
	all.Go(func() {
		_, err := g.Do(t.Context(), "held", gives("never"))
		require.ErrorIs(t, err, rlock.ErrClosed)
	})
	started := make(chan struct{})
	all.Go(func() {
		_, err := g.Do(t.Context(), "runs", func(ctx context.Context) ([]byte, error) {
			close(started)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		require.ErrorIs(t, err, rlock.ErrClosed)
	})
	subscribed(t, s, "held", 1)
	<-started
	began := time.Now()
	require.NoError(t, locks.Close(t.Context()))
	all.Wait()
	t.Log("all calls had returned after", time.Since(began))
	require.Less(t, time.Since(began), 5*time.Second, "a waiter learns at once, or when the lease is over")
	_, err = g.Do(t.Context(), "x", gives("never"))
	require.ErrorIs(t, err, rlock.ErrClosed)
	require.NoError(t, run.Finish(t.Context(), nil))
	require.Zero(t, s.Client(t).Exists(t.Context(), "runs").Val(), "its lock is free")
}

func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := once.New(host(t, s.Addr()), once.Options{Lease: 100 * time.Millisecond})
	s.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, _, err := g.Begin(ctx, "x", "")
	require.ErrorIs(t, err, rlock.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
