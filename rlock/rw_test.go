package rlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

const rwQueue = "rlock_rwqueue:{a}"

// awaitTicket returns when somebody waits in the queue of the lock a.
func awaitTicket(tb testing.TB, rdb *redis.Client) {
	tb.Helper()
	redistest.Eventually(tb, "a ticket in the queue", func() bool {
		return rdb.Exists(context.Background(), rwQueue).Val() == 1
	})
}

func TestReadersShareAndExcludeWriters(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	one, other := newClient(t, srv, nil).NewRWLock("a"), newClient(t, srv, nil).NewRWLock("a")

	held, hold := lock(t, ctx, one.Reader())
	_, beside := lock(t, ctx, one.Reader())
	_, elsewhere := lock(t, ctx, other.Reader())
	_, _, err := other.Writer().TryLock(ctx)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	require.Zero(t, rdb.Exists(ctx, rwQueue).Val(), "TryLock does not queue")
	require.Equal(t, map[string]string{"mode": "read", hold.Owner(): "1", beside.Owner(): "1", elsewhere.Owner(): "1"}, hgetall(t, rdb, "a"))
	require.EqualValues(t, 1, rdb.Exists(ctx, "{a}:"+hold.Owner()+":rwlock_timeout:1").Val(), "Redisson's key of a read hold")

	state, err := other.Writer().Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{hold.Owner(): 1, beside.Owner(): 1, elsewhere.Owner(): 1}, state.Holds)
	require.Equal(t, state.Holds, state.Shared)

	writer := async(func() error {
		return other.Writer().Do(ctx, func(context.Context) error {
			_, _, err := one.Reader().TryLock(ctx)
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			_, _, err = one.Writer().TryLock(ctx)
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			return nil
		})
	})
	awaitTicket(t, rdb)
	require.NoError(t, hold.Unlock(held))
	require.NoError(t, elsewhere.Unlock(ctx))
	require.Empty(t, writer, "one reader is left")
	require.NoError(t, beside.Unlock(ctx))
	require.NoError(t, within(t, 10*time.Second, writer), "woken by the last reader")
	require.Empty(t, lockKeys(t, rdb), "nothing is left")
}

func TestUpgradeFailsAtOnce(t *testing.T) {
	srv := newServer(t)
	ctx := t.Context()
	mu := newClient(t, srv, nil).NewRWLock("a")
	held, hold := lock(t, ctx, mu.Reader())
	require.Empty(t, sent(t, srv, func() {
		for range 2 {
			same, none, err := mu.Writer().Lock(held)
			require.ErrorIs(t, err, rlock.ErrUpgrade)
			require.Nil(t, none)
			require.Equal(t, held, same)
			_, _, err = mu.Writer().TryLock(held)
			require.ErrorIs(t, err, rlock.ErrUpgrade)
		}
	}))
	require.NoError(t, held.Err())
	_, _, err := mu.Writer().TryLock(rlock.Detach(held))
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "detached, it contends")
	require.NoError(t, hold.Unlock(held))
	require.ErrorIs(t, context.Cause(held), rlock.ErrUnlocked, "the failed upgrades are no holds")
}

// A writer that keeps a read hold lets other readers in, at once, and no writer.
func TestDowngradeWakesReaders(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	ctx := t.Context()
	rdb := srv.Client(t)
	one, other := newClient(t, srv, nil).NewRWLock("a"), newClient(t, srv, nil).NewRWLock("a")
	writing, write := lock(t, ctx, one.Writer())
	reading, read := lock(t, writing, one.Reader())
	require.Equal(t, 2, one.Writer().HoldCount(reading))
	state, err := other.Reader().Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{write.Owner(): 2}, state.Holds)
	require.Equal(t, map[string]int64{write.Owner(): 1}, state.Shared)

	var waiting []<-chan error
	for _, mu := range []*rlock.RWLock{one, one, other, other} {
		waiting = append(waiting, async(func() error { return mu.Reader().Do(ctx, func(context.Context) error { return nil }) }))
	}
	redistest.Eventually(t, "both are in the queue", func() bool { return rdb.ZCard(ctx, rwQueue).Val() == 2 })
	require.NoError(t, write.Unlock(writing))
	for _, w := range waiting {
		require.NoError(t, within(t, 10*time.Second, w))
	}
	_, _, err = one.Writer().Lock(reading)
	require.ErrorIs(t, err, rlock.ErrUpgrade)
	_, _, err = other.Writer().TryLock(ctx)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	require.NoError(t, reading.Err())
	require.Equal(t, 1, one.Reader().HoldCount(reading))
	require.NoError(t, read.Unlock(reading))
	require.Empty(t, lockKeys(t, rdb))
}

// Whoever nests, in whatever order, and however it is unlocked: what the server
// shows is what is held, and the lock is free after the last.
func TestReadWriteNesting(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewRWLock("a")
	rapid.Check(t, func(t *rapid.T) {
		type live struct {
			ctx    context.Context
			hold   *rlock.Hold
			shared bool
		}
		var all []live
		count := func(shared bool) (n int) {
			for _, l := range all {
				if l.shared == shared {
					n++
				}
			}
			return n
		}
		check := func() {
			fields := hgetall(t, rdb, "a")
			want := make(map[string]string)
			if len(all) > 0 {
				owner := all[0].hold.Owner()
				want["mode"] = "read"
				if n := count(false); n > 0 {
					want["mode"], want[owner+":write"] = "write", fmt.Sprint(n)
				}
				if n := count(true); n > 0 {
					want[owner] = fmt.Sprint(n)
				}
			}
			require.Equal(t, want, fields)
			keys, err := rdb.Keys(context.Background(), "{a}:*").Result()
			require.NoError(t, err)
			require.Len(t, keys, count(true))
		}
		ctx := context.Background()
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			if len(all) > 0 && rapid.Bool().Draw(t, "unlock") {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				require.NoError(t, all[i].hold.Unlock(ctx))
				all = slices.Delete(all, i, i+1)
				check()
				continue
			}
			under, shared := ctx, rapid.Bool().Draw(t, "shared")
			if len(all) > 0 {
				under = rapid.SampledFrom(all).Draw(t, "under").ctx
			}
			side := mu.Writer()
			if shared {
				side = mu.Reader()
			}
			held, hold, err := side.TryLock(under)
			if !shared && len(all) > 0 && count(false) == 0 {
				require.ErrorIs(t, err, rlock.ErrUpgrade)
			} else {
				require.NoError(t, err)
				all = append(all, live{held, hold, shared})
			}
			check()
		}
		for _, l := range all {
			require.NoError(t, l.hold.Unlock(ctx))
		}
		for _, l := range all {
			require.ErrorIs(t, context.Cause(l.ctx), rlock.ErrUnlocked)
		}
		all = nil
		check()
	})
}

// Readers that come all the time, in two processes, let a writer in as soon as
// those inside when it came have left.
func TestWriterIsNotStarved(t *testing.T) {
	srv := newServer(t)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var inside, reads atomic.Int64
	for range 2 {
		mu := newClient(t, srv, nil).NewRWLock("a").Reader()
		for range 8 {
			all.Go(func() {
				for ctx.Err() == nil {
					_ = mu.Do(ctx, func(context.Context) error {
						inside.Add(1)
						time.Sleep(5 * time.Millisecond)
						inside.Add(-1)
						reads.Add(1)
						return nil
					})
				}
			})
		}
	}
	mu := newClient(t, srv, nil).NewRWLock("a").Writer()
	for range 10 {
		before := reads.Load()
		redistest.Eventually(t, "readers are at work", func() bool { return reads.Load() > before+20 })
		held, hold := lock(t, t.Context(), mu) // in 10 s at most
		require.Zero(t, inside.Load())
		require.NoError(t, hold.Unlock(held))
	}
	stop()
	all.Wait()
}

// A writer that stops waiting lets the readers in that waited because of it.
func TestLeavingWriterWakesReaders(t *testing.T) {
	srv := newServer(t)
	ctx := t.Context()
	rdb := srv.Client(t)
	one, other := newClient(t, srv, nil).NewRWLock("a"), newClient(t, srv, nil).NewRWLock("a")
	_, hold := lock(t, ctx, one.Reader())
	waiting, leave := context.WithCancel(ctx)
	writer := async(func() error { _, _, err := one.Writer().Lock(waiting); return err })
	awaitTicket(t, rdb)
	_, _, err := other.Reader().TryLock(ctx)
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "a writer waits")
	reader := async(func() error { return other.Reader().Do(ctx, func(context.Context) error { return nil }) })
	redistest.Eventually(t, "both are in the queue", func() bool { return rdb.ZCard(ctx, rwQueue).Val() == 2 })
	require.Empty(t, reader)
	began := time.Now()
	leave()
	require.ErrorIs(t, <-writer, rlock.ErrNotAcquired)
	require.NoError(t, within(t, 10*time.Second, reader))
	require.Less(t, time.Since(began), 8*time.Second, "woken by the writer that leaves")
	require.NoError(t, hold.Unlock(ctx))
	redistest.Eventually(t, "nothing is left", func() bool { return len(lockKeys(t, rdb)) == 0 })
}

// A killed reader keeps a writer out for its own lease, although others renew and
// then leave.
func TestDeadReaderBlocksForItsLeaseOnly(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	ctx := t.Context()
	rdb := srv.Client(t)
	dead := newClient(t, srv, nil).NewRWLock("a", rlock.WithLeaseTime(3*time.Second), rlock.WithoutRenewal())
	lock(t, ctx, dead.Reader()) // nobody unlocks it
	alive := newClient(t, srv, nil).NewRWLock("a", rlock.WithLeaseTime(time.Hour))
	_, hold := lock(t, ctx, alive.Reader())
	require.Greater(t, rdb.PTTL(ctx, "a").Val(), 50*time.Minute)
	writer := async(func() error {
		return newClient(t, srv, nil).NewRWLock("a").Writer().Do(ctx, func(context.Context) error { return nil })
	})
	awaitTicket(t, rdb)
	require.NoError(t, hold.Unlock(ctx))
	require.NoError(t, within(t, time.Minute, writer))
}

// The lease of a reader is renewed with the key that Redisson looks at, and never
// shortens what another one asked for.
func TestReadersAreRenewed(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	ctx := t.Context()
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	_, long := lock(t, ctx, c.NewRWLock("a", rlock.WithLeaseTime(time.Minute)).Reader())
	const lease = 10 * time.Second
	short := c.NewRWLock("a", rlock.WithLeaseTime(lease))
	held, outer := lock(t, ctx, short.Reader())
	_, inner := lock(t, held, short.Reader())
	for until := outer.Until().Add(lease / 2); outer.Until().Before(until); { // renewed twice, or once and late
		require.NoError(t, held.Err())
		for _, n := range []string{"1", "2"} {
			require.Positive(t, rdb.PTTL(ctx, "{a}:"+outer.Owner()+":rwlock_timeout:"+n).Val())
		}
		require.Greater(t, rdb.PTTL(ctx, "a").Val(), 30*time.Second)
		time.Sleep(20 * time.Millisecond)
	}
	require.NoError(t, inner.Unlock(ctx))
	require.NoError(t, outer.Unlock(ctx))
	require.NoError(t, long.Unlock(ctx))
	require.Empty(t, lockKeys(t, rdb))
}

func TestReadWriteFencing(t *testing.T) {
	srv := newServer(t)
	ctx := t.Context()
	mu := newClient(t, srv, nil).NewRWLock("a", rlock.WithFencing())
	token := func(side *rlock.Lock) int64 {
		held, hold := lock(t, ctx, side)
		_, nested := lock(t, held, mu.Reader())
		require.Equal(t, hold.Token(), nested.Token())
		require.NoError(t, nested.Unlock(ctx))
		require.NoError(t, hold.Unlock(ctx))
		return hold.Token()
	}
	first := token(mu.Writer())
	require.Positive(t, first)
	require.Equal(t, first, token(mu.Reader()), "that of the newest writer")
	require.Equal(t, first, token(mu.Reader()))
	require.Greater(t, token(mu.Writer()), first)
}
