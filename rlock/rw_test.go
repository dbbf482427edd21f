package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
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

// Clients that write one after another get the lock equally often.
func TestFakeTimeWritersTakeTurns(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		grants := make([]int, 8)
		var all sync.WaitGroup
		for i := range grants {
			writer := f.client(t, nil).NewRWLock("a").Writer()
			all.Go(func() {
				for {
					_, hold, err := writer.Lock(ctx)
					if err != nil {
						assert.ErrorIs(t, err, rlock.ErrNotAcquired)
						return
					}
					grants[i]++
					time.Sleep(2 * time.Millisecond)
					assert.NoError(t, hold.Unlock(t.Context()))
				}
			})
		}
		all.Wait()
		require.Greater(t, slices.Min(grants), 50)
		require.GreaterOrEqual(t, float64(slices.Min(grants)), 0.9*float64(slices.Max(grants)), grants)
	})
}

// Readers that wait enter together when a reader's turn comes, past the writers among them. A reader that
// comes then queues behind these writers, who are passed no second time.
func TestFakeTimeBatchOfReaders(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		client := func() *rlock.RWLock { return f.client(t, nil).NewRWLock("a") }
		queue := func(side *rlock.Lock) *waiting {
			w := begin(t.Context(), side)
			time.Sleep(time.Second)
			synctest.Wait()
			return w
		}
		waits := func(w *waiting) {
			t.Helper()
			synctest.Wait()
			select {
			case <-w.done:
				t.Fatal("it has entered")
			default:
			}
		}
		one := client()
		first, hold := lock(t, t.Context(), client().Writer())
		r1, w, r2, w2 := queue(one.Reader()), queue(client().Writer()), queue(client().Reader()), queue(client().Writer())

		require.NoError(t, hold.Unlock(first))
		in1, reads1 := r1.acquired(t)
		in2, reads2 := r2.acquired(t)
		waits(w)
		time.Sleep(time.Second) // longer than readers of its client may join
		r3 := queue(one.Reader())
		waits(r3)
		require.NoError(t, reads1.Unlock(in1))
		waits(w)
		require.NoError(t, reads2.Unlock(in2))
		for _, next := range []*waiting{w, w2, r3} {
			held, hold := next.acquired(t)
			if next != r3 {
				waits(r3)
			}
			require.NoError(t, hold.Unlock(held))
		}
		require.Empty(t, f.Keys())
	})
}

// The readers of a client that wait enter with the first of them, as one owner, and with one request.
func TestFakeTimeWaitingReadersShareAGrant(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		readers := f.client(t, nil).NewRWLock("a").Reader()
		first, hold := lock(t, t.Context(), f.client(t, nil).NewRWLock("a").Writer())
		var all []*waiting
		for range 64 {
			all = append(all, begin(t.Context(), readers))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		asked := len(f.scripts("rwask"))
		require.NoError(t, hold.Unlock(first))
		began := time.Now()
		held, of := all[0].acquired(t)
		for _, w := range all[1:] {
			ctx, beside := w.acquired(t)
			require.Equal(t, of.Owner(), beside.Owner())
			defer func() { require.NoError(t, beside.Unlock(ctx)) }()
		}
		require.Less(t, time.Since(began), 5*time.Millisecond)
		require.Len(t, f.scripts("rwask"), asked)
		require.NoError(t, of.Unlock(held))
	})
}

// A reader behind a writer of its own client has a place in the queue, and enters when that writer leaves.
func TestFakeTimeReaderBehindItsOwnClientsWriter(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewRWLock("a")
		held, hold := lock(t, t.Context(), mu.Writer())
		reader := begin(t.Context(), mu.Reader())
		time.Sleep(20 * time.Millisecond) // less than the first pause of a waiter without a place
		synctest.Wait()
		began := time.Now()
		require.NoError(t, hold.Unlock(held))
		inside, reads := reader.acquired(t)
		require.Less(t, time.Since(began), 5*time.Millisecond)
		require.NoError(t, reads.Unlock(inside))
	})
}

func TestReadWriteForceUnlock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	ctx := t.Context()
	one, other := newClient(t, srv, nil).NewRWLock("a", rlock.WithLeaseTime(3*time.Second)), newClient(t, srv, nil).NewRWLock("a")
	for _, side := range []*rlock.Lock{one.Reader(), one.Writer()} {
		held, hold := lock(t, ctx, side)
		_, nested := lock(t, held, one.Reader())
		removed, err := other.Reader().ForceUnlock(ctx)
		require.NoError(t, err)
		require.True(t, removed)
		<-held.Done()
		require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
		require.Zero(t, one.Writer().HoldCount(held))
		require.ErrorIs(t, nested.Unlock(ctx), rlock.ErrLeaseLost)
		require.ErrorIs(t, hold.Unlock(ctx), rlock.ErrLeaseLost)
	}
	removed, err := other.Writer().ForceUnlock(ctx)
	require.NoError(t, err)
	require.False(t, removed)

	_, hold := lock(t, ctx, one.Reader())
	removed, err = other.Writer().UnlockOwner(ctx, hold.Owner())
	require.NoError(t, err)
	require.True(t, removed)
	requireUnlockedTooLate(t, hold.Unlock(ctx))
}

func TestReadWriteRefusals(t *testing.T) {
	srv := newServer(t)
	ctx := t.Context()
	c := newClient(t, srv, nil)
	other := newClient(t, srv, nil)
	held, hold := lock(t, ctx, other.NewLock("a"))
	for _, side := range []*rlock.Lock{c.NewRWLock("a").Reader(), c.NewRWLock("a").Writer()} {
		_, _, err := side.TryLock(ctx)
		require.ErrorIs(t, err, rlock.ErrKeyConflict)
		require.ErrorContains(t, err, `"a" holds a plain lock, which may be a fair one: take it with NewLock or NewFairLock`)
		_, err = side.Inspect(ctx)
		require.ErrorContains(t, err, `"a" holds a plain lock`)
	}
	require.NoError(t, hold.Unlock(held))
	for _, side := range []*rlock.Lock{other.NewRWLock("a").Reader(), other.NewRWLock("a").Writer()} {
		held, hold = lock(t, ctx, side)
		for _, plain := range []*rlock.Lock{c.NewLock("a"), c.NewFairLock("a")} {
			_, _, err := plain.TryLock(ctx)
			require.ErrorIs(t, err, rlock.ErrKeyConflict)
			require.ErrorContains(t, err, `"a" holds a read/write lock: take it with NewRWLock`)
			_, err = plain.Inspect(ctx)
			require.ErrorContains(t, err, `"a" holds a read/write lock`)
		}
		require.NoError(t, hold.Unlock(held))
	}
}

// No name of a plain lock is taken for a read/write lock of the client.
func TestNamesOfOtherKinds(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	c := newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), c.NewRWLock("a").Writer())
	for _, name := range []string{"a\x00rw", "rw:a", "{}rw:a"} {
		_, theirs, err := newClient(t, srv, nil).NewLock(name).TryLock(t.Context())
		if errors.Is(err, rlock.ErrInvalidOption) {
			continue
		}
		require.NoError(t, err, name)
		_, _, err = c.NewLock(name).TryLock(held)
		require.ErrorIs(t, err, rlock.ErrNotAcquired, name)
		require.NoError(t, theirs.Unlock(t.Context()))
	}
	require.NoError(t, hold.Unlock(held))
}

// A writer that becomes a reader lets in the readers of its own client, whether they
// hear messages or not.
func TestFakeTimeDowngradeIsToldInMemory(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			mu := f.client(t, nil).NewRWLock("a", longLease)
			held, writer := lock(t, t.Context(), mu.Writer())
			var readers []*waiting
			for range 3 {
				readers = append(readers, begin(t.Context(), mu.Reader()))
				synctest.Wait()
			}
			time.Sleep(time.Second)
			if deaf {
				f.denySubscribe.Store(true)
				f.cut()
				time.Sleep(time.Second)
			}
			inner, reader := lock(t, held, mu.Reader())
			require.NoError(t, writer.Unlock(held))
			began := f.now()
			for _, w := range readers {
				held, hold := w.acquired(t)
				require.LessOrEqual(t, f.now()-began, 5*time.Millisecond)
				require.NoError(t, hold.Unlock(held))
			}
			require.NoError(t, reader.Unlock(inner))
		})
	}
}

// While a writer waits, no new reader enters, and the writer asks no more often than others do.
func TestFakeTimeWaitingWriterKeepsReadersOut(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		one, other := f.client(t, nil).NewRWLock("a"), f.client(t, nil).NewRWLock("a")
		_, hold := lock(t, t.Context(), one.Reader())
		waiting, leave := context.WithCancel(t.Context())
		go one.Writer().Lock(waiting)
		synctest.Wait()
		time.Sleep(time.Second)
		before := len(f.scripts("rwask"))
		const tries = 600
		for range tries {
			_, _, err := other.Reader().TryLock(t.Context())
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			time.Sleep(100 * time.Millisecond)
		}
		require.InEpsilon(t, askedIn(time.Minute), len(f.scripts("rwask"))-before-tries, 0.3)
		leave()
		synctest.Wait()
		_, second := lock(t, t.Context(), other.Reader())
		require.NoError(t, second.Unlock(t.Context()))
		require.NoError(t, hold.Unlock(t.Context()))
		require.Empty(t, f.Keys())
	})
}

// A reader that died keeps a writer out until its own lease ends, to the
// millisecond, although others have prolonged the lock and left without a word.
func TestFakeTimeDeadReader(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		const dead = "5f2b6f0e-90d1-4b0c-9d0f-6c43b6ac4d5f:7"
		f.HSet("a", "mode", "read", dead, "1")
		f.SetTTL("a", 8*time.Second)
		require.NoError(t, f.Set("{a}:"+dead+":rwlock_timeout:1", "1"))
		f.SetTTL("{a}:"+dead+":rwlock_timeout:1", 8*time.Second)
		_, alive := lock(t, t.Context(), c.NewRWLock("a", rlock.WithLeaseTime(time.Hour)).Reader())
		got := make(chan *rlock.Hold)
		go func() {
			_, hold := lock(t, t.Context(), f.client(t, nil).NewRWLock("a").Writer())
			got <- hold
		}()
		time.Sleep(3 * time.Second)
		require.NoError(t, alive.Unlock(t.Context()))
		hold := <-got
		require.GreaterOrEqual(t, f.now(), 8*time.Second)
		require.Less(t, f.now(), 8*time.Second+10*time.Millisecond)
		require.NoError(t, hold.Unlock(t.Context()))
	})
}

// A downgrade that Redis did not hear of in time is made good.
func TestFakeTimeLateDowngrade(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, &rlock.Options{UnlockTimeout: time.Second}).NewRWLock("a")
		writing, write := lock(t, t.Context(), mu.Writer())
		reading, read := lock(t, writing, mu.Reader())
		f.SetError("LOADING Redis is loading the dataset in memory")
		require.NoError(t, write.Unlock(writing))
		require.Equal(t, "write", f.HGet("a", "mode"))
		time.Sleep(5 * time.Second)
		f.heal()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, "read", f.HGet("a", "mode"))
		require.NoError(t, reading.Err())
		require.NoError(t, read.Unlock(reading))
	})
}

// A waiter of a read/write lock hears by one channel of messages and of its subscription. They
// are counted each as what they are.
func TestFakeTimeWakeUpsOfAWriter(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewRWLock("a").Reader())
		leave, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, _, err := c.NewRWLock("a").Writer().Lock(leave)
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		before := c.Stats().Wakeups
		require.Zero(t, before.Message, "nobody has released it")
		require.Positive(t, before.Reconnect)
		synctest.Wait() // its ticket is taken out

		w := begin(t.Context(), c.NewRWLock("a").Writer())
		time.Sleep(time.Second)
		f.cut()
		time.Sleep(time.Second)
		require.NoError(t, hold.Unlock(held))
		held, hold = w.acquired(t)
		require.NoError(t, hold.Unlock(held))
		synctest.Wait()
		after := c.Stats().Wakeups
		require.EqualValues(t, 1, after.Message)
		require.Greater(t, after.Reconnect, before.Reconnect)
	})
}
