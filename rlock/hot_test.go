package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// hotNames returns the hot names of the only client that has a record, by name; nil if there is no record.
func hotNames(t *testing.T, f *fakeRedis) map[string]record.Hot {
	t.Helper()
	synctest.Wait()
	ids := listed(t, f.rdb, "")
	if len(ids) == 0 {
		return nil
	}
	require.Len(t, ids, 1)
	r, _ := readRecord(t, f.rdb, "", ids[0])
	names := make(map[string]record.Hot)
	for _, h := range r.Hot {
		names[h.Name] = h
	}
	return names
}

// takeTurns has calls lock a name again and again, and hold the lock for so long, until ctx ends.
func takeTurns(t *testing.T, ctx context.Context, c *rlock.Client, name string, calls int, held time.Duration) (wait func()) {
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			for ctx.Err() == nil {
				err := c.NewLock(name).Do(ctx, func(context.Context) error { time.Sleep(held); return nil })
				if !errors.Is(err, rlock.ErrNotAcquired) {
					assert.NoError(t, err)
				}
			}
		})
	}
	return all.Wait
}

// The record has the names that calls wait for, although each wait takes a tenth of a second. Names that are waited for
// once, for a moment, do not displace them, and are not in the record. When no call waits any more, the record ends.
func TestFakeTimeHotNames(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.recordedClient(t, &rlock.Options{Group: func(name string) string { return map[string]string{"hot": "all hot"}[name] }})
		ctx, stop := context.WithTimeout(t.Context(), 25*time.Second)
		defer stop()
		hot := takeTurns(t, ctx, c, "hot", 20, 5*time.Millisecond)
		warm := takeTurns(t, ctx, c, "warm", 3, 20*time.Millisecond)
		cold := func(n int) {
			name := fmt.Sprint("cold", n)
			held, hold := lock(t, ctx, c.NewLock(name))
			next := lockAsync(ctx, c.NewLock(name))
			time.Sleep(time.Millisecond)
			require.NoError(t, hold.Unlock(held))
			g := <-next
			require.NoError(t, g.err)
			require.NoError(t, g.hold.Unlock(g.held))
		}
		for at, n := 1500*time.Millisecond, 0; at < 25*time.Second; at += 10 * time.Second { // just after the records
			for ; f.now() < at; n++ {
				cold(n)
				time.Sleep(10 * time.Millisecond)
			}
			names := hotNames(t, f)
			require.Len(t, names, 2, "%v", at)
			require.InDelta(t, 19, names["hot"].Waiting, 0.5)
			require.InDelta(t, 200, names["hot"].PerSecond, 25)
			require.InDelta(t, 19.5, names["hot"].Most, 0.5)
			require.Equal(t, "all hot", names["hot"].Group)
			require.Empty(t, names["warm"].Group)
			require.InDelta(t, 2, names["warm"].Waiting, 0.2)
			require.InDelta(t, 50, names["warm"].PerSecond, 5)
		}
		hot()
		warm()
		time.Sleep(time.Until(f.start.Add(56 * time.Second)))
		require.Nil(t, hotNames(t, f))
	})
}

// A record has no more than ten names: those that cost most waiting.
func TestFakeTimeTenHotNames(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.recordedClient(t, nil)
		ctx, stop := context.WithTimeout(t.Context(), 12*time.Second)
		defer stop()
		for i := range 40 {
			defer takeTurns(t, ctx, c, fmt.Sprint("n", i), 2+i, 20*time.Millisecond)()
		}
		time.Sleep(11500 * time.Millisecond)
		names := hotNames(t, f)
		require.Len(t, names, record.MaxHot)
		for i := 30; i < 40; i++ {
			require.InDelta(t, 1+i, names[fmt.Sprint("n", i)].Waiting, 1)
		}
	})
}

// A wait counts while it lasts, and each second of it once, for a lock that others hold as well as for one of the own client.
func TestFakeTimeHotNameOfALongWait(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.recordedClient(t, nil)
		f.HSet("theirs", "other:1", "1") // has no end
		held, hold := lock(t, t.Context(), c.NewLock("own"))
		ctx, leave := context.WithTimeout(t.Context(), 57*time.Second)
		defer leave()
		var waiting []<-chan grant
		for _, name := range []string{"theirs", "own", "own"} {
			waiting = append(waiting, lockAsync(ctx, c.NewLock(name)))
		}
		for at := 1500 * time.Millisecond; at < time.Minute; at += 10 * time.Second {
			time.Sleep(at - f.now())
			names := hotNames(t, f)
			require.InDelta(t, 1, names["theirs"].Waiting, 0.001, "%v", at)
			require.InDelta(t, 2, names["own"].Waiting, 0.001, "%v", at)
			require.Equal(t, 1, names["theirs"].Most)
			require.Equal(t, 2, names["own"].Most)
			require.Zero(t, names["own"].PerSecond, "no wait has ended")
		}
		for _, w := range waiting {
			require.Error(t, (<-w).err)
		}
		require.NoError(t, hold.Unlock(held))
		time.Sleep(time.Until(f.start.Add(61500 * time.Millisecond)))
		names := hotNames(t, f)
		require.Less(t, names["own"].Waiting, 2.0)
		require.Greater(t, names["own"].Waiting, 1.2, "most of the last 20 s")
		require.InDelta(t, 2.0/12, names["own"].PerSecond, 0.07, "two waits have ended in 10 to 20 s")
	})
}

// Calls that do not wait make no name hot, however many there are, and neither does a short wait from time to time.
func TestFakeTimeNoHotNames(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.recordedClient(t, nil)
		mu := c.NewLock("a")
		for range 30 {
			for range 20 {
				held, hold := lock(t, t.Context(), mu)
				_, nested := lock(t, held, mu)
				_, _, err := mu.TryLock(t.Context())
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
				require.NoError(t, nested.Unlock(held))
				time.Sleep(20 * time.Millisecond)
				require.NoError(t, hold.Unlock(held))
			}
			held, hold := lock(t, t.Context(), mu)
			next := lockAsync(t.Context(), mu)
			time.Sleep(5 * time.Millisecond)
			require.NoError(t, hold.Unlock(held))
			g := <-next
			require.NoError(t, g.err)
			require.NoError(t, g.hold.Unlock(g.held))
			time.Sleep(time.Second)
		}
		require.Empty(t, f.recordWrites())
	})
}
