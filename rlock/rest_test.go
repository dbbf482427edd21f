package rlock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/rlock"
)

// restTime is how long a request for a fair lock rests at most.
const restTime = 2 * time.Millisecond

// run has a client hold a fair lock, with one more of it to whom it will be passed on
// in memory.
func run(t *testing.T, mu *rlock.Lock) (holder, next *waiting) {
	held, hold := lock(t, t.Context(), mu)
	holder = begin(t.Context(), mu)
	synctest.Wait()
	next = begin(t.Context(), mu)
	synctest.Wait()
	require.NoError(t, hold.Unlock(held))
	<-holder.done
	require.NoError(t, holder.err)
	return holder, next
}

// pass has waiters get the lock in this order, and give it back.
func pass(t *testing.T, waiters ...*waiting) {
	for _, w := range waiters {
		<-w.done
		require.NoError(t, w.err)
		require.NoError(t, w.hold.Unlock(w.held))
	}
}

// Who asks while the lock is passed on in memory does so when that is over, in one
// command with all others who do.
func TestFakeTimeFairRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewFairLock("a")
		holder, next := run(t, mu)
		before := len(f.fairly("fair_acquire"))
		var later []*waiting
		for range 3 {
			later = append(later, begin(t.Context(), mu))
			synctest.Wait()
		}
		require.NoError(t, holder.hold.Unlock(holder.held))
		<-next.done
		later = append(later, begin(t.Context(), mu))
		synctest.Wait()
		require.Len(t, f.fairly("fair_acquire"), before)
		start := f.now()
		require.NoError(t, next.hold.Unlock(next.held))
		synctest.Wait()
		require.Len(t, f.fairly("fair_acquire"), before+1)
		pass(t, later...)
		require.Equal(t, start, f.now())
		require.Empty(t, f.Keys())
	})
}

// Nobody rests for long, nor if there is nobody to whom the lock would be passed on.
func TestFakeTimeFairRestIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		for name, options := range map[string][]rlock.LockOption{"a": nil, "b": {rlock.WithoutHandoff()}} {
			mu := f.client(t, nil).NewFairLock(name, options...)
			holder, next := run(t, mu)
			asked := f.now()
			if options == nil {
				asked += restTime
			}
			later := begin(t.Context(), mu)
			time.Sleep(time.Second)
			all := f.fairly("fair_acquire")
			require.Equal(t, asked, all[len(all)-1])
			require.NoError(t, holder.hold.Unlock(holder.held))
			<-next.done
			require.NoError(t, next.hold.Unlock(next.held))
			<-later.done
			require.NoError(t, later.err)

			asked = f.now()
			last := begin(t.Context(), mu)
			synctest.Wait()
			all = f.fairly("fair_acquire")
			require.Equal(t, asked, all[len(all)-1])
			require.NoError(t, later.hold.Unlock(later.held))
			<-last.done
			require.NoError(t, last.hold.Unlock(last.held))
		}
		require.Empty(t, f.Keys())
	})
}

// Who has to teach the server the script does not rest once more.
func TestFakeTimeFairRestIsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewFairLock("a")
		holder, next := run(t, mu)
		require.NoError(t, f.rdb.ScriptFlush(t.Context()).Err())
		asked := f.now() + restTime
		later := begin(t.Context(), mu)
		time.Sleep(time.Second)
		all := f.fairly("fair_acquire")
		require.Equal(t, []time.Duration{asked, asked}, all[len(all)-2:])
		pass(t, holder, next, later)
		require.Empty(t, f.Keys())
	})
}

// A plain lock of the same name is not passed on to those who queue on the server.
func TestFakeTimeFairNoRestBesideAPlainLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		asked := f.now()
		w := begin(t.Context(), c.NewFairLock("a"))
		time.Sleep(time.Second)
		for _, at := range f.fairly("fair_acquire") {
			require.Equal(t, asked, at)
		}
		require.NoError(t, hold.Unlock(held))
		pass(t, w)
		require.Empty(t, f.Keys())
	})
}

// Who leaves meanwhile has sent nothing.
func TestFakeTimeFairRestIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewFairLock("a")
		holder, next := run(t, mu)
		f.mu.Lock()
		before := len(f.log)
		f.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), restTime/2)
		defer cancel()
		leaver, stayer := begin(ctx, mu), begin(t.Context(), mu)
		<-leaver.done
		require.ErrorIs(t, leaver.err, rlock.ErrNotAcquired)
		require.ErrorIs(t, leaver.err, context.DeadlineExceeded)
		f.mu.Lock()
		require.Len(t, f.log, before)
		f.mu.Unlock()
		pass(t, holder, next, stayer)
		f.mu.Lock()
		defer f.mu.Unlock()
		var lengths []int // of the requests; each further owner makes one longer
		for _, r := range f.log {
			if fairScript("fair_acquire")(r.args) {
				lengths = append(lengths, len(r.args))
			}
		}
		require.Len(t, slices.Compact(lengths), 1, "each is that of one owner")
		require.Empty(t, f.Keys())
	})
}

// Close does not wait for those who rest.
func TestFakeTimeFairRestAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		mu := c.NewFairLock("a")
		holder, next := run(t, mu)
		later := begin(t.Context(), mu)
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- c.Close(t.Context()) }()
		<-later.done
		require.ErrorIs(t, later.err, rlock.ErrClosed)
		<-next.done
		require.ErrorIs(t, next.err, rlock.ErrClosed)
		require.NoError(t, holder.hold.Unlock(holder.held))
		require.NoError(t, <-closed)
		require.Empty(t, f.Keys())
	})
}
