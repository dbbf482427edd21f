package rlock_test

import (
	"context"
	"fmt"
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

// Readers of a client that come together are one for the server, and each of them
// one for the application.
func TestFakeTimeReadersJoin(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewRWLock("a")
		first, hold := lock(t, t.Context(), mu.Reader())
		asked := len(f.scripts("rwask"))
		second, other := lock(t, t.Context(), mu.Reader())
		third, last, err := mu.Reader().TryLock(t.Context())
		require.NoError(t, err)
		require.Len(t, f.scripts("rwask"), asked)
		require.Equal(t, hold.Owner(), other.Owner())

		_, brief := lock(t, t.Context(), mu.Reader())
		require.NoError(t, brief.Unlock(t.Context()))
		require.Empty(t, f.scripts("rwcount"))

		nested, inner := lock(t, second, mu.Reader())
		require.Equal(t, 2, mu.Reader().HoldCount(nested))
		require.Equal(t, 1, mu.Reader().HoldCount(first), "the holds of others are not its own")
		_, _, err = mu.Writer().TryLock(third)
		require.ErrorIs(t, err, rlock.ErrUpgrade)
		require.NoError(t, inner.Unlock(nested))

		require.NoError(t, hold.Unlock(first))
		require.ErrorIs(t, context.Cause(first), rlock.ErrUnlocked)
		require.NoError(t, other.Unlock(second))
		require.Empty(t, f.scripts("rwrelease"))
		time.Sleep(time.Minute)
		require.NoError(t, third.Err(), "it is renewed")
		_, _, err = f.client(t, nil).NewRWLock("a").Writer().TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.NoError(t, last.Unlock(third))
		require.NotEmpty(t, f.scripts("rwrelease"))
		require.Empty(t, f.Keys())
		require.ErrorIs(t, last.Unlock(third), rlock.ErrNotHeld)
	})
}

// Readers wait for the answer to the request of one of them, and enter with it, also
// if that one has left by then. If it leaves before, another one asks.
func TestFakeTimeReadersWaitForOneAnswer(t *testing.T) {
	const late = 10 * time.Millisecond
	for name, asks := range map[string]int{"who stays": 1, "who leaves": 2} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, nil).NewRWLock("a")
				_, hold := lock(t, t.Context(), mu.Reader()) // teaches the server the scripts
				require.NoError(t, hold.Unlock(t.Context()))
				time.Sleep(time.Second)
				asked := len(f.scripts("rwask"))
				f.late.Store(int64(late))
				start := time.Now()
				leaving, leave := context.WithTimeout(t.Context(), late/2)
				defer leave()
				var wg sync.WaitGroup
				enter := func(ctx context.Context) {
					held, hold, err := mu.Reader().Lock(ctx)
					switch {
					case ctx == leaving:
						assert.ErrorIs(t, err, rlock.ErrUnavailable)
						assert.ErrorIs(t, err, context.DeadlineExceeded)
						assert.Equal(t, late/2, time.Since(start))
					case assert.NoError(t, err):
						assert.NoError(t, hold.Unlock(held))
					}
				}
				first := t.Context()
				if asks == 2 {
					first = leaving
				}
				wg.Go(func() { enter(first) })
				synctest.Wait()
				for range 20 {
					wg.Go(func() { enter(t.Context()) })
					wg.Go(func() { enter(leaving) })
				}
				wg.Wait()
				require.Len(t, f.scripts("rwask"), asked+asks)
				require.Less(t, time.Since(start), 10*late)
				time.Sleep(10 * late) // what the one who left has been granted is released
				require.Empty(t, f.Keys())
			})
		})
	}
}

// The answer may come in the very moment in which somebody stops to wait for it. What
// was kept for that one is given up.
func TestFakeTimeReadersWhoLeaveWithTheAnswer(t *testing.T) {
	const late = 10 * time.Millisecond
	var in, out atomic.Int32
	for range 100 {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, nil).NewRWLock("a")
			_, hold := lock(t, t.Context(), mu.Reader())
			require.NoError(t, hold.Unlock(t.Context()))
			f.late.Store(int64(late))
			var wg sync.WaitGroup
			wg.Go(func() { assert.NoError(t, mu.Reader().Do(t.Context(), func(context.Context) error { return nil })) })
			synctest.Wait()
			for range 3 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), late)
					defer cancel()
					if _, hold, err := mu.Reader().Lock(ctx); err != nil {
						out.Add(1)
					} else {
						in.Add(1)
						assert.NoError(t, hold.Unlock(t.Context()))
					}
				})
			}
			wg.Wait()
			time.Sleep(10 * late)
			require.Empty(t, f.Keys())
		})
	}
	require.NotZero(t, in.Load())
	require.NotZero(t, out.Load())
}

// If the one who asks is refused, or fails, the others do not fail with it.
func TestFakeTimeReadersWhoseInquiryFails(t *testing.T) {
	for name, fault := range map[string]func(t *testing.T, f *fakeRedis, mu *rlock.RWLock) (heal func()){
		"refused": func(t *testing.T, f *fakeRedis, mu *rlock.RWLock) func() {
			_, hold := lock(t, t.Context(), mu.Writer())
			return func() { _ = hold.Unlock(t.Context()) }
		},
		"no answer": func(_ *testing.T, f *fakeRedis, _ *rlock.RWLock) func() {
			f.deafUp.Store(true)
			return func() { f.deafUp.Store(false) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, nil).NewRWLock("a")
				heal := fault(t, f, f.client(t, nil).NewRWLock("a"))
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				var wg sync.WaitGroup
				wg.Go(func() {
					_, _, err := mu.Reader().Lock(ctx)
					assert.Error(t, err)
				})
				synctest.Wait()
				for range 10 {
					wg.Go(func() {
						_, hold, err := mu.Reader().Lock(t.Context())
						if assert.NoError(t, err) {
							assert.NoError(t, hold.Unlock(t.Context()))
						}
					})
				}
				time.Sleep(200 * time.Millisecond)
				heal()
				wg.Wait()
				require.Empty(t, f.Keys())
			})
		})
	}
}

// Readers that cannot share a grant: each of them sends a request of its own.
func TestFakeTimeReadersThatDoNotJoin(t *testing.T) {
	for name, of := range map[string]func(c *rlock.Client) (first, second *rlock.Lock){
		"later": func(c *rlock.Client) (*rlock.Lock, *rlock.Lock) {
			return c.NewRWLock("a").Reader(), nil
		},
		"WithoutHandoff": func(c *rlock.Client) (*rlock.Lock, *rlock.Lock) {
			mu := c.NewRWLock("a", rlock.WithoutHandoff())
			return mu.Reader(), mu.Reader()
		},
		"WithoutRenewal": func(c *rlock.Client) (*rlock.Lock, *rlock.Lock) {
			mu := c.NewRWLock("a", rlock.WithoutRenewal())
			return mu.Reader(), mu.Reader()
		},
		"the first WithoutRenewal": func(c *rlock.Client) (*rlock.Lock, *rlock.Lock) {
			return c.NewRWLock("a", rlock.WithoutRenewal()).Reader(), c.NewRWLock("a").Reader()
		},
		"another lease": func(c *rlock.Client) (*rlock.Lock, *rlock.Lock) {
			return c.NewRWLock("a").Reader(), c.NewRWLock("a", rlock.WithLeaseTime(time.Hour)).Reader()
		},
		"a token": func(c *rlock.Client) (*rlock.Lock, *rlock.Lock) {
			return c.NewRWLock("a").Reader(), c.NewRWLock("a", rlock.WithFencing()).Reader()
		},
		"after a downgrade": func(c *rlock.Client) (*rlock.Lock, *rlock.Lock) {
			return nil, c.NewRWLock("a").Reader()
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				c := f.client(t, nil)
				first, second := of(c)
				var held context.Context
				var hold *rlock.Hold
				if first != nil {
					held, hold = lock(t, t.Context(), first)
				} else {
					writing, writer := lock(t, t.Context(), c.NewRWLock("a").Writer())
					held, hold = lock(t, writing, c.NewRWLock("a").Reader())
					require.NoError(t, writer.Unlock(writing))
				}
				if second == nil {
					second = first
					time.Sleep(rlock.DefaultHandoffTime)
				}
				beside, other := lock(t, t.Context(), second)
				require.NotEqual(t, hold.Owner(), other.Owner())
				require.NoError(t, hold.Unlock(held))
				require.NoError(t, other.Unlock(beside))
			})
		})
	}
}

// A writer waits for no more readers than there were, and those who came within the
// time in which they join.
func TestFakeTimeJoiningDoesNotStarveWriters(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewRWLock("a")
		ctx, cancel := context.WithCancel(t.Context())
		const section = 5 * time.Millisecond
		for i := range 20 { // who overlap all the time
			go func() {
				time.Sleep(time.Duration(i) * section / 20)
				for ctx.Err() == nil {
					_ = mu.Reader().Do(ctx, func(context.Context) error {
						time.Sleep(section)
						return nil
					})
				}
			}()
		}
		time.Sleep(time.Second)
		start := time.Now()
		held, hold := lock(t, t.Context(), f.client(t, nil).NewRWLock("a").Writer())
		require.LessOrEqual(t, time.Since(start), rlock.DefaultHandoffTime+section)
		require.NoError(t, hold.Unlock(held))
		cancel()
		synctest.Wait()
	})
}

// A reader does not join others of its client while a writer of the client waits. The
// client knows of that writer without a message.
func TestFakeTimeNobodyJoinsPastAWaitingWriter(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewRWLock("a")
		held, hold := lock(t, t.Context(), mu.Reader())
		done := make(chan error)
		go func() { done <- mu.Writer().Do(t.Context(), func(context.Context) error { return nil }) }()
		synctest.Wait()
		_, _, err := mu.Reader().TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.NoError(t, hold.Unlock(held))
		require.NoError(t, <-done)
	})
}

// What is lost is lost for all who share it.
func TestFakeTimeLossOfJoinedReaders(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewRWLock("a")
		first, hold := lock(t, t.Context(), mu.Reader())
		second, other := lock(t, t.Context(), mu.Reader())
		f.deafUp.Store(true)
		time.Sleep(time.Minute)
		for _, held := range []context.Context{first, second} {
			require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
		}
		f.deafUp.Store(false)
		require.ErrorIs(t, hold.Unlock(first), rlock.ErrLeaseLost)
		require.ErrorIs(t, other.Unlock(second), rlock.ErrLeaseLost)
	})
}

// A reader who waits for the answer to another's request, on a server that gives none, gives
// up when it has waited for as long as a lease itself: it does not begin again when the
// other one gives up, nor with each of those who ask after one another and leave.
func TestFakeTimeReadersGiveUpTogether(t *testing.T) {
	t.Run("behind those who leave", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, &rlock.Options{LeaseTime: time.Second}).NewRWLock("a")
			f.deafUp.Store(true)
			var all sync.WaitGroup
			hasty, enough := context.WithTimeout(t.Context(), time.Minute)
			defer enough()
			for i := range 50 {
				all.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					for hasty.Err() == nil {
						_, _, err := mu.Reader().TryLockFor(hasty, 100*time.Millisecond)
						assert.Error(t, err)
					}
				})
			}
			time.Sleep(10 * time.Millisecond)
			began := time.Now()
			_, _, err := mu.Reader().Lock(t.Context())
			assert.ErrorIs(t, err, rlock.ErrUnavailable)
			assert.LessOrEqual(t, time.Since(began), 6*time.Second, "5 s, and a little")
			enough()
			all.Wait()
		})
	})
}

// On a server that answers later than hasty readers wait, a patient one gets the lock: those
// who ask for it and leave before the answer do not keep it waiting.
func TestFakeTimePatientReaderAmongHastyOnes(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewRWLock("a")
		_, hold := lock(t, t.Context(), mu.Reader()) // teaches the server the scripts
		require.NoError(t, hold.Unlock(t.Context()))
		f.late.Store(int64(150 * time.Millisecond))
		var all sync.WaitGroup
		hasty, enough := context.WithTimeout(t.Context(), time.Minute)
		defer enough()
		for i := range 50 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				for hasty.Err() == nil {
					if held, hold, err := mu.Reader().TryLockFor(hasty, 100*time.Millisecond); err == nil {
						assert.NoError(t, hold.Unlock(held))
					}
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		held, hold, err := mu.Reader().TryLockFor(t.Context(), 30*time.Second)
		if assert.NoError(t, err) {
			assert.Less(t, time.Since(began), time.Second)
			assert.NoError(t, hold.Unlock(held))
		}
		enough()
		all.Wait()
	})
}

// Of readers who share a grant one nests: the server counts the nested hold, and one for all others. What
// that costs the server, and each renewal, does not depend on how many share the grant.
func TestNestedReaderOfManyWhoShare(t *testing.T) {
	t.Parallel()
	const readers = 2000
	srv := newServer(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	written, write := lock(t, ctx, newClient(t, srv, nil).NewRWLock("a").Writer())
	mu := newClient(t, srv, nil).NewRWLock("a").Reader()
	all := make([]*waiting, readers)
	for i := range all {
		all[i] = begin(ctx, mu)
	}
	awaitHearing(t, rdb, "a", 1)
	require.NoError(t, write.Unlock(written))
	held, hold := all[0].acquired(t)
	leave := make([]func() error, 0, readers)
	for _, w := range all[1:] {
		with, beside := w.acquired(t)
		require.Equal(t, hold.Owner(), beside.Owner())
		leave = append(leave, func() error { return beside.Unlock(with) })
	}
	used := func(what string, f func()) {
		t.Helper()
		require.NoError(t, rdb.ConfigResetStat(ctx).Err())
		f()
		n := 0
		for _, stat := range strings.Fields(rdb.Info(ctx, "commandstats").Val()) {
			var calls int
			name, rest, _ := strings.Cut(stat, ":")
			if name == "cmdstat_set" || name == "cmdstat_pttl" || name == "cmdstat_del" {
				_, err := fmt.Sscanf(rest, "calls=%d", &calls)
				require.NoError(t, err)
				n += calls
			}
		}
		require.Less(t, n, 10, what)
	}
	var inside context.Context
	var nested *rlock.Hold
	used("nested call", func() { inside, nested = lock(t, held, mu) })
	require.Equal(t, 2, mu.HoldCount(inside), "of its own")
	require.Equal(t, "2", rdb.HGet(ctx, "a", hold.Owner()).Val())
	require.Len(t, rdb.Keys(ctx, "{a}:*").Val(), 2)

	require.NoError(t, hold.Unlock(held)) // the nested one stays
	for _, unlock := range leave {
		require.NoError(t, unlock())
	}
	require.NoError(t, inside.Err())
	used("nested Unlock, the last", func() { require.NoError(t, nested.Unlock(inside)) })
	requireNothing(t, rdb, "a")
}
