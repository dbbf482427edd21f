package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func ExampleGuard() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()

	type order struct{ id, city string }
	lockFor := func(o order) *rlock.Lock { return client.NewLock("order:" + o.id) }
	ship := rlock.Guard(lockFor, func(ctx context.Context, o order) (label string, err error) {
		return fmt.Sprintf("%s to %s, holds: %d", o.id, o.city, lockFor(o).HoldCount(ctx)), nil
	})

	fmt.Println(ship(context.Background(), order{"42", "Delft"}))
	// Output:
	// 42 to Delft, holds: 1 <nil>
}

func ExampleWithWait() {
	rdb, disconnect := connect()
	defer disconnect()
	client, closeClient := newExample(rdb)
	defer closeClient()

	lockFor := func(id int) *rlock.Lock { return client.NewLock(fmt.Sprintf("order:%d", id)) }
	ship := rlock.Guard(lockFor, func(context.Context, int) (string, error) {
		return "label", nil
	}, rlock.WithWait(0))

	err := lockFor(42).Do(context.Background(), func(ctx context.Context) error {
		_, err := ship(rlock.Detach(ctx), 42)
		fmt.Println("42 is busy:", errors.Is(err, rlock.ErrNotAcquired))
		label, err := ship(ctx, 43)
		fmt.Println("43:", label, err)
		return nil
	})
	fmt.Println(err)
	// Output:
	// 42 is busy: true
	// 43: label <nil>
	// <nil>
}

// guarded returns a guarded function that counts its runs.
func guarded(c *rlock.Client, runs *int, opts ...rlock.GuardOption) func(context.Context, string) (int, error) {
	return rlock.Guard(
		func(name string) *rlock.Lock { return c.NewLock(name) },
		func(context.Context, string) (int, error) { *runs++; return *runs, nil },
		opts...)
}

// However the function ends, it held the lock of its argument and no longer does.
func TestGuardHoldsTheLock(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	lockFor := func(name string) *rlock.Lock { return c.NewLock(name) }
	for name, end := range map[string]func() error{
		"return": func() error { return context.Canceled },
		"panic":  func() error { panic("work") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			fn := rlock.Guard(lockFor, func(ctx context.Context, arg string) (string, error) {
				assert.Equal(t, 1, holds(t, rdb, arg))
				held, hold, err := lockFor(arg).TryLock(ctx)
				assert.NoError(t, err, "it re-enters")
				assert.Equal(t, 2, holds(t, rdb, arg))
				assert.NoError(t, hold.Unlock(held))
				return "done " + arg, end()
			})
			over := make(chan struct{})
			go func() {
				defer close(over)
				defer func() {
					if v := recover(); name == "panic" {
						assert.Equal(t, "work", v)
					}
				}()
				result, err := fn(t.Context(), "a")
				assert.Equal(t, "done a", result)
				assert.Equal(t, context.Canceled, err)
			}()
			within(t, 10*time.Second, over)
			require.Zero(t, holds(t, rdb, "a"))
		})
	}
}

// A result that was made without protection is handed over with the loss.
func TestGuardReportsTheLoss(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	errWork := errors.New("work")
	lockFor := func(name string) *rlock.Lock { return c.NewLock(name, rlock.WithLeaseTime(3*time.Second)) }
	fn := rlock.Guard(lockFor, func(ctx context.Context, name string) (int, error) {
		_, err := lockFor(name).ForceUnlock(ctx)
		require.NoError(t, err)
		<-ctx.Done()
		return 7, errWork
	})
	result, err := fn(t.Context(), "a")
	require.Equal(t, 7, result)
	require.ErrorIs(t, err, errWork)
	var lost *rlock.LostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, "a", lost.Name)
}

func TestGuardWait(t *testing.T) {
	const minute = time.Minute
	for name, test := range map[string]struct {
		opts    []rlock.GuardOption
		free    time.Duration // when the lock is
		took    time.Duration
		timeout bool // the error tells it
	}{
		"default, acquired": {free: 2 * minute, took: 2 * minute},
		"default, ctx ends": {free: time.Hour, took: 10 * minute, timeout: true},
		"limit, acquired":   {opts: []rlock.GuardOption{rlock.WithWait(3 * minute)}, free: 2 * minute, took: 2 * minute},
		"limit, over":       {opts: []rlock.GuardOption{rlock.WithWait(3 * minute)}, free: time.Hour, took: 3 * minute, timeout: true},
		"none":              {opts: []rlock.GuardOption{rlock.WithWait(0)}, free: time.Hour},
		"none, last option": {opts: []rlock.GuardOption{rlock.WithWait(minute), rlock.WithWait(0)}, free: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				_, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
				released := async(func() error { time.Sleep(test.free); return hold.Unlock(context.Background()) })

				ctx, cancel := context.WithTimeout(t.Context(), 10*minute)
				defer cancel()
				runs := 0
				result, err := guarded(f.client(t, nil), &runs, test.opts...)(ctx, "a")
				require.Equal(t, test.took, f.now())
				if test.took == test.free {
					require.NoError(t, err)
					require.Equal(t, 1, result)
				} else {
					require.ErrorIs(t, err, rlock.ErrNotAcquired)
					require.Equal(t, test.timeout, errors.Is(err, context.DeadlineExceeded))
					require.Zero(t, result)
					require.Zero(t, runs)
				}
				require.NoError(t, <-released)
			})
		})
	}
}

func TestGuardRetry(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
		before := len(f.asked())
		c, runs := f.client(t, nil), 0
		fn := guarded(c, &runs, rlock.WithRetry(3, time.Minute))

		result, err := fn(t.Context(), "a")
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.Zero(t, result)
		tries := f.asked()[before:]
		require.Len(t, tries, 4)
		for _, pause := range pauses(tries) {
			require.GreaterOrEqual(t, pause, time.Minute/2)
			require.LessOrEqual(t, pause, time.Minute)
		}

		released := async(func() error { time.Sleep(time.Minute); return hold.Unlock(held) })
		result, err = fn(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, 1, result)
		require.NoError(t, <-released)
		require.LessOrEqual(t, f.now(), 5*time.Minute)
	})
}

// The order of the options does not matter.
func TestGuardRetryWithWait(t *testing.T) {
	retry, wait := rlock.WithRetry(3, time.Minute), rlock.WithWait(5*time.Minute)
	for name, opts := range map[string][]rlock.GuardOption{"retry first": {retry, wait}, "wait first": {wait, retry}} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
				runs := 0
				_, err := guarded(f.client(t, nil), &runs, opts...)(t.Context(), "a")
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Zero(t, runs)
				require.InDelta(t, (4*5*time.Minute + 3*45*time.Second).Seconds(), f.now().Seconds(), 3*15)
				require.NoError(t, hold.Unlock(held))
			})
		})
	}
}

// What ends the pause between two tries is what the error tells.
func TestGuardRetryEndsEarly(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		other := f.client(t, nil)
		_, hold := lock(t, t.Context(), other.NewLock("a"))
		c, runs := f.client(t, nil), 0
		fn := guarded(c, &runs, rlock.WithRetry(3, time.Hour))

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := fn(ctx, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var busy *rlock.NotAcquiredError
		require.ErrorAs(t, err, &busy)
		require.Equal(t, rlock.DefaultLeaseTime, busy.TTL)
		require.Equal(t, time.Minute, f.now())

		closed := async(func() error { _, err := fn(t.Context(), "a"); return err })
		synctest.Wait()
		require.NoError(t, closeSoon(c))
		require.ErrorIs(t, <-closed, rlock.ErrClosed)
		require.Equal(t, time.Minute, f.now())

		require.Zero(t, runs)
		require.NoError(t, hold.Unlock(t.Context()))
	})
}

// Neither an error of the function nor one of Redis is a busy lock.
func TestGuardRetriesBusyLocksOnly(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c, runs := f.client(t, nil), 0
		fn := rlock.Guard(func(name string) *rlock.Lock { return c.NewLock(name) },
			func(context.Context, string) (int, error) { runs++; return runs, rlock.ErrNotAcquired },
			rlock.WithRetry(3, time.Hour))
		result, err := fn(t.Context(), "a")
		require.Equal(t, rlock.ErrNotAcquired, err)
		require.Equal(t, 1, result)

		f.SetError("LOADING Redis is loading the dataset in memory")
		_, err = fn(t.Context(), "a")
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.Equal(t, 1, runs)
		require.Less(t, f.now(), time.Minute)
	})
}

func TestGuardOptionsThatCannotWork(t *testing.T) {
	f := newFakeRedis(t)
	for name, opt := range map[string]rlock.GuardOption{
		"WithWait":     rlock.WithWait(-1),
		"WithRetry: 0": rlock.WithRetry(0, time.Second),
		"WithRetry: 1": rlock.WithRetry(1, 0),
	} {
		runs := 0
		result, err := guarded(f.client(t, nil), &runs, opt, rlock.WithWait(time.Second))(t.Context(), "a")
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		require.ErrorContains(t, err, name)
		require.Zero(t, result)
		require.Zero(t, runs)
	}
	require.Empty(t, f.asked())

	runs := 0
	_, err := guarded(f.client(t, nil), &runs, rlock.WithRetry(1, time.Hour))(t.Context(), "")
	require.ErrorIs(t, err, rlock.ErrInvalidOption, "of a lock with an invalid name")
	require.Zero(t, runs)
}

func TestGuardDo(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv, nil)
	errWork := errors.New("work")
	lockFor := func(name string) *rlock.Lock { return c.NewLock(name) }
	ship := rlock.GuardDo(lockFor, func(ctx context.Context, name string) error {
		require.Equal(t, 1, c.NewLock(name).HoldCount(ctx))
		return errWork
	}, rlock.WithWait(0))
	require.Equal(t, errWork, ship(t.Context(), "a"))
	held, hold := lock(t, t.Context(), c.NewLock("a"))
	require.ErrorIs(t, ship(t.Context(), "a"), rlock.ErrNotAcquired)
	require.NoError(t, hold.Unlock(held))
}
