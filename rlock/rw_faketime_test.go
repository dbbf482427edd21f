package rlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

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

// A writer that dies while it waits is passed over: nobody waits for it.
func TestFakeTimeDeadWaitingWriter(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		_, hold := lock(t, t.Context(), f.client(t, nil).NewRWLock("a").Reader())
		_, err := f.ZAdd(rwQueue, float64((2*8192+2500)*4+1), "5f2b6f0e90d14b0c9d0f:1") // an even place, of one that hears by PUBLISH, and does not listen
		require.NoError(t, err)
		beside := begin(t.Context(), f.client(t, nil).NewRWLock("a").Reader())
		time.Sleep(time.Second)
		synctest.Wait()
		began := time.Now()
		require.NoError(t, hold.Unlock(t.Context()))
		held, got := beside.acquired(t)
		require.Less(t, time.Since(began), 10*time.Millisecond)
		require.NoError(t, got.Unlock(held))
		require.Empty(t, f.Keys())
	})
}

func lock2(t *testing.T, mu *rlock.Lock) (context.Context, *rlock.Hold) {
	t.Helper()
	held, hold, err := mu.TryLockFor(t.Context(), time.Minute)
	require.NoError(t, err)
	return held, hold
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
			_, hold := lock2(t, f.client(t, nil).NewRWLock("a").Writer())
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

// Without renewal both kinds of hold end with the lease.
func TestFakeTimeReadWriteExpiry(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewRWLock("a", rlock.WithLeaseTime(10*time.Second), rlock.WithoutRenewal())
		writing, write := lock(t, t.Context(), mu.Writer())
		reading, read := lock(t, writing, mu.Reader())
		require.NoError(t, write.Unlock(writing))
		<-reading.Done()
		require.Equal(t, lapse(10*time.Second), f.now())
		require.ErrorIs(t, context.Cause(reading), rlock.ErrLeaseLost)
		require.ErrorIs(t, read.Unlock(reading), rlock.ErrLeaseLost)
		require.Empty(t, f.Keys(), "the rest of the lease is given back")
	})
}

// A reader that nobody tells of the release asks after a few seconds, and so does a writer.
func TestFakeTimeReadWriteWithoutAMessage(t *testing.T) {
	for name, side := range map[string]func(*rlock.RWLock) *rlock.Lock{"reader": (*rlock.RWLock).Reader, "writer": (*rlock.RWLock).Writer} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				_, hold := lock(t, t.Context(), f.client(t, nil).NewRWLock("a").Writer())
				w := begin(t.Context(), side(f.client(t, nil).NewRWLock("a")))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.True(t, f.Del("a"))
				began := time.Now()
				held, mine := w.acquired(t)
				require.LessOrEqual(t, time.Since(began), keepAlive+keepAlive/10)
				require.NoError(t, mine.Unlock(held))
				require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrLeaseLost)
			})
		})
	}
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
