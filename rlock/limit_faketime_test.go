package rlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// requireOver checks that the context of a hold has ended because of a limit, at this instant.
func requireOver(t *testing.T, held context.Context, name string, limit error) {
	t.Helper()
	select {
	case <-held.Done():
	default:
		require.Fail(t, "the context has not ended")
	}
	cause := context.Cause(held)
	require.ErrorIs(t, cause, limit)
	require.ErrorIs(t, cause, rlock.ErrLeaseLost)
	require.ErrorContains(t, cause, `lock "`+name+`"`)
	require.ErrorContains(t, cause, "lock again before you continue")
	for _, other := range []error{rlock.ErrHeldTooLong, rlock.ErrNoProgress} {
		require.Equal(t, other == limit, errors.Is(cause, other))
	}
}

// Every kind of lock is lost at the instant at which its limit is over, and not before. Its lease is not over then, and
// is not renewed any more. Unlock releases the lock, and returns the loss.
func TestFakeTimeMaxHold(t *testing.T) {
	const lease = 30 * time.Second
	for _, kind := range []string{"plain", "fair", "reader", "writer", "fixed", "kept", "polling"} {
		for _, limit := range []time.Duration{10 * time.Millisecond, time.Second, 10 * time.Minute} {
			if kind == "fixed" && limit > lease {
				continue
			}
			t.Run(kind+" "+limit.String(), func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					f := newFakeRedis(t)
					c, other := f.client(t, nil), f.client(t, nil)
					opts, of := []rlock.LockOption{rlock.WithMaxHold(limit)}, kind
					switch kind {
					case "fixed":
						of, opts = "plain", append(opts, rlock.WithoutRenewal())
					case "kept":
						of, opts = "plain", append(opts, rlock.WithRetention(time.Hour))
					case "polling":
						of, opts = "plain", append(opts, rlock.WithPolling(rlock.Polling{}))
					}
					mu, rival := lockOf(c, of, opts...), lockOf(other, of)
					if of == "reader" {
						rival = lockOf(other, "writer")
					}
					held, hold := lock(t, t.Context(), mu)
					time.Sleep(limit - 1)
					synctest.Wait()
					require.NoError(t, held.Err())
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					requireOver(t, held, "a", rlock.ErrHeldTooLong)
					_, _, err := rival.TryLock(t.Context())
					require.ErrorIs(t, err, rlock.ErrNotAcquired, "the lease protects the lock still")
					left := f.TTL("a")
					require.GreaterOrEqual(t, left, lease/10)
					time.Sleep(lease / 10)
					synctest.Wait()
					require.Equal(t, left-lease/10, f.TTL("a"), "no renewal")

					err = hold.Unlock(held)
					require.ErrorIs(t, err, rlock.ErrHeldTooLong)
					require.ErrorIs(t, err, rlock.ErrLeaseLost)
					require.ErrorIs(t, hold.Unlock(held), rlock.ErrNotHeld)
					_, taken, err := rival.TryLock(t.Context())
					require.NoError(t, err, "Unlock has released the lock")
					require.NoError(t, taken.Unlock(t.Context()))
				})
			})
		}
	}
}

// A holder that hangs for good keeps the lock for no longer than its limit and one lease. Its context ends before another
// client gets the lock.
func TestFakeTimeMaxHoldOfAHolderThatHangs(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c, other := f.client(t, nil), f.client(t, nil)
		held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithMaxHold(time.Hour)))
		began := time.Now()
		next := lockAsync(t.Context(), other.NewLock("a"))
		<-held.Done()
		require.Equal(t, time.Hour, time.Since(began))
		synctest.Wait()
		select {
		case <-next:
			require.Fail(t, "the lease is not over")
		default:
		}
		g := <-next
		require.NoError(t, g.err)
		require.Greater(t, time.Since(began), time.Hour+3*time.Second)
		require.LessOrEqual(t, time.Since(began), time.Hour+30*time.Second)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrHeldTooLong)
		require.NoError(t, g.held.Err(), "the next holder is not affected")
		require.NoError(t, g.hold.Unlock(g.held))
	})
}

// A job that calls Progress keeps the lock, without a request for that. Once it makes none, the lock is lost.
func TestFakeTimeProgress(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		for _, kind := range []string{"plain", "fair", "reader", "writer"} {
			for _, limit := range []time.Duration{20 * time.Millisecond, time.Minute} {
				held, hold := lock(t, t.Context(), lockOf(c, kind, rlock.WithLeaseTime(time.Hour), rlock.WithProgress(limit)))
				asked := len(f.asked())
				for range 1000 {
					rlock.Progress(held)
					time.Sleep(limit - 1)
				}
				require.NoError(t, held.Err())
				if limit < time.Second { // without a renewal
					require.Len(t, f.asked(), asked)
				}
				rlock.Progress(held)
				time.Sleep(limit - 1)
				synctest.Wait()
				require.NoError(t, held.Err())
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				requireOver(t, held, "a", rlock.ErrNoProgress)
				rlock.Progress(context.WithoutCancel(held)) // too late
				require.ErrorIs(t, hold.Unlock(held), rlock.ErrNoProgress)
			}
		}
	})
}

// Of two limits the one that is over first counts. Progress does not move the limit of the whole hold.
func TestFakeTimeBothLimits(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a", rlock.WithMaxHold(10*time.Minute), rlock.WithProgress(time.Minute))
		held, hold := lock(t, t.Context(), mu)
		time.Sleep(time.Minute)
		synctest.Wait()
		requireOver(t, held, "a", rlock.ErrNoProgress)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrNoProgress)

		held, hold = lock(t, t.Context(), mu)
		began := time.Now()
		for held.Err() == nil {
			rlock.Progress(held)
			time.Sleep(time.Second)
		}
		require.Equal(t, 10*time.Minute, time.Since(began))
		requireOver(t, held, "a", rlock.ErrHeldTooLong)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrHeldTooLong)
	})
}

// The limit is that of the outermost lock call, and ends all its holds. A nested call has none of its own.
func TestFakeTimeLimitsOfNestedHolds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		outer, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithMaxHold(time.Minute)))
		time.Sleep(30 * time.Second)
		inner, nested := lock(t, outer, c.NewLock("a", rlock.WithMaxHold(time.Second)))
		require.NoError(t, hold.Unlock(outer)) // the inner one stays
		time.Sleep(30*time.Second - 1)
		synctest.Wait()
		require.NoError(t, inner.Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		requireOver(t, inner, "a", rlock.ErrHeldTooLong)
		_, _, err := c.NewLock("a").Lock(inner)
		require.ErrorIs(t, err, rlock.ErrHeldTooLong)
		require.ErrorIs(t, nested.Unlock(inner), rlock.ErrHeldTooLong)

		held, hold := lock(t, t.Context(), c.NewLock("a"))
		inner, nested = lock(t, held, c.NewLock("a", rlock.WithMaxHold(time.Second), rlock.WithProgress(time.Second)))
		time.Sleep(time.Hour)
		require.NoError(t, inner.Err())
		require.NoError(t, nested.Unlock(inner))
		require.NoError(t, hold.Unlock(held))
	})
}

// Progress counts for every lock that the context owns: around the innermost hold, and of a multi lock.
func TestFakeTimeProgressOfSeveralLocks(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		limited := func(name string) *rlock.Lock { return c.NewLock(name, rlock.WithProgress(time.Minute)) }
		outer, first := lock(t, t.Context(), limited("a"))
		middle, second := lock(t, outer, c.NewLock("b", rlock.WithMaxHold(time.Hour)))
		multi, third := lock(t, middle, rlock.NewMultiLock(limited("c"), limited("d")))
		inner, fourth := lock(t, multi, limited("a"))
		for range 30 {
			rlock.Progress(inner)
			time.Sleep(time.Minute - 1)
		}
		require.NoError(t, inner.Err())
		require.NoError(t, outer.Err())
		rlock.Progress(middle) // for a, not for c and d
		time.Sleep(time.Minute - 1)
		require.ErrorIs(t, context.Cause(inner), rlock.ErrNoProgress)
		require.NoError(t, outer.Err())
		require.NoError(t, middle.Err())
		require.NoError(t, fourth.Unlock(inner))
		require.ErrorIs(t, third.Unlock(multi), rlock.ErrNoProgress)
		require.NoError(t, second.Unlock(middle))
		require.NoError(t, first.Unlock(outer))
	})
}

// What does not own the lock, or has ended, makes no progress for it, and does no harm.
func TestFakeTimeProgressOfOthers(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		mu := c.NewLock("a", rlock.WithProgress(time.Minute))
		callers, cancel := context.WithCancel(t.Context())
		held, hold := lock(t, callers, mu)
		inner, nested := lock(t, held, c.NewLock("b"))
		require.NoError(t, nested.Unlock(inner))
		time.Sleep(30 * time.Second)
		work, stop := context.WithCancel(held)
		stop()
		for _, ctx := range []context.Context{t.Context(), rlock.Detach(held), work, inner} {
			rlock.Progress(ctx)
		}
		cancel()
		rlock.Progress(held)
		time.Sleep(30*time.Second - 1)
		require.Equal(t, 1, mu.HoldCount(held))
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrNoProgress)

		held, hold = lock(t, t.Context(), mu)
		require.NoError(t, hold.Unlock(held))
		rlock.Progress(held)
		rlock.Progress(context.WithoutCancel(held))
		next, hold := lock(t, t.Context(), mu)
		time.Sleep(time.Minute - 1)
		rlock.Progress(context.WithoutCancel(held)) // of a hold that has ended, not of the next
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		requireOver(t, next, "a", rlock.ErrNoProgress)
		require.ErrorIs(t, hold.Unlock(next), rlock.ErrNoProgress)
	})
}

// A lock that is passed on in memory, or kept, has its limit anew with each Lock. What has other limits waits for the server.
func TestFakeTimeLimitsInMemory(t *testing.T) {
	for name, opts := range map[string][]rlock.LockOption{"hand-off": nil, "kept": {rlock.WithRetention(time.Hour)}} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				c := f.client(t, nil)
				mu := c.NewLock("a", append(opts, rlock.WithMaxHold(time.Minute))...)
				held, hold := lock(t, t.Context(), mu)
				owner := hold.Owner()
				synctest.Wait()
				next := make(<-chan grant)
				if name == "hand-off" {
					next = lockAsync(t.Context(), mu)
				}
				time.Sleep(time.Minute - 1)
				require.NoError(t, hold.Unlock(held))
				if name == "kept" {
					time.Sleep(10 * time.Minute)
					require.NotZero(t, f.TTL("a"), "no limit counts while the lock is kept")
					next = lockAsync(t.Context(), mu)
				}
				g := <-next
				require.NoError(t, g.err)
				require.Equal(t, owner, g.hold.Owner())
				other := lockAsync(t.Context(), c.NewLock("a", append(opts, rlock.WithMaxHold(time.Hour))...))
				time.Sleep(time.Minute - 1)
				require.NoError(t, g.held.Err())
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				requireOver(t, g.held, "a", rlock.ErrHeldTooLong)
				require.ErrorIs(t, g.hold.Unlock(g.held), rlock.ErrHeldTooLong)
				g = <-other
				require.NoError(t, g.err)
				require.NotEqual(t, owner, g.hold.Owner())
				require.NoError(t, g.hold.Unlock(g.held))
			})
		})
	}
}

// Readers of a client each have their own limit: the progress of one does not keep another that hangs.
func TestFakeTimeLimitsOfReaders(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		mu := c.NewRWLock("a", rlock.WithProgress(time.Minute)).Reader()
		free, third := lock(t, t.Context(), c.NewRWLock("a").Reader())
		busy, first := lock(t, t.Context(), mu)
		hung, second := lock(t, t.Context(), mu)
		require.NotEqual(t, first.Owner(), second.Owner())
		require.NotEqual(t, first.Owner(), third.Owner())
		for range 3 {
			time.Sleep(30 * time.Second)
			rlock.Progress(busy)
		}
		requireOver(t, hung, "a", rlock.ErrNoProgress)
		require.NoError(t, busy.Err())
		require.NoError(t, free.Err())
		require.ErrorIs(t, second.Unlock(hung), rlock.ErrNoProgress)
		require.NoError(t, first.Unlock(busy))
		require.NoError(t, third.Unlock(free))
	})
}

// A writer that has become a reader has the limit of the writer.
func TestFakeTimeLimitOfADowngrade(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		rw := f.client(t, nil).NewRWLock("a", rlock.WithMaxHold(time.Minute))
		write, writer := lock(t, t.Context(), rw.Writer())
		time.Sleep(30 * time.Second)
		read, reader := lock(t, write, rw.Reader())
		require.NoError(t, writer.Unlock(write))
		time.Sleep(30*time.Second - 1)
		require.NoError(t, read.Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		requireOver(t, read, "a", rlock.ErrHeldTooLong)
		require.ErrorIs(t, reader.Unlock(read), rlock.ErrHeldTooLong)
	})
}

// The limit of a quorum lock ends it while a majority of its servers has a lease.
func TestFakeTimeLimitOfAQuorum(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, clients, _ := fakeServers(t)
		held, hold := lock(t, t.Context(), rlock.NewQuorumLock("a", clients, rlock.WithMaxHold(10*time.Minute), rlock.WithProgress(time.Minute)))
		began := time.Now()
		for held.Err() == nil {
			rlock.Progress(held)
			time.Sleep(30 * time.Second)
		}
		require.Equal(t, 10*time.Minute, time.Since(began))
		requireOver(t, held, "a", rlock.ErrHeldTooLong)
		protected := 0
		for _, f := range all {
			if f.TTL("a") >= 3*time.Second {
				protected++
			}
		}
		require.Equal(t, 3, protected)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrHeldTooLong)
		synctest.Wait()
		for _, f := range all {
			require.False(t, f.Exists("a"))
		}
	})
}

// The limit of a member counts from its own grant, also while the multi lock waits for another member: then that begins
// again.
func TestFakeTimeLimitOfAMember(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		mu := rlock.NewMultiLock(c.NewLock("a", rlock.WithMaxHold(time.Minute)), c.NewLock("b"))
		held, hold := lock(t, t.Context(), c.NewLock("b"))
		waits := make(chan error, 1)
		var all context.Context
		var multi *rlock.MultiHold
		go func() {
			var err error
			all, multi, err = mu.Lock(t.Context())
			waits <- err
		}()
		time.Sleep(90 * time.Second)
		require.NoError(t, hold.Unlock(held))
		require.NoError(t, <-waits)
		require.NoError(t, all.Err())
		began := time.Now()
		<-all.Done()
		require.Greater(t, time.Since(began), 20*time.Second, "from the second grant of a")
		requireOver(t, all, "a", rlock.ErrHeldTooLong)
		require.ErrorIs(t, multi.Unlock(all), rlock.ErrHeldTooLong)
	})
}

// A joined hold has no limit of its own, and ends with the holder's: before another client gets the lock.
func TestFakeTimeLimitOfAJoinedHold(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c, joins, other := f.client(t, nil), f.client(t, nil), f.client(t, nil)
		held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithMaxHold(10*time.Minute)))
		joined, part, err := joins.NewLock("a", rlock.WithMaxHold(time.Minute), rlock.WithProgress(time.Minute)).Join(t.Context(), hold.Proof())
		require.NoError(t, err)
		next := lockAsync(t.Context(), other.NewLock("a"))
		time.Sleep(10*time.Minute - 1)
		require.NoError(t, joined.Err())
		g := <-next
		require.NoError(t, g.err)
		require.ErrorIs(t, context.Cause(joined), rlock.ErrLeaseLost)
		require.ErrorIs(t, part.Unlock(joined), rlock.ErrLeaseLost)
		require.ErrorIs(t, hold.Unlock(held), rlock.ErrHeldTooLong)
		require.NoError(t, g.hold.Unlock(g.held))
	})
}
