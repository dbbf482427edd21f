package rlock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// recordWrites returns when the server got requests about records, less those by scripts.
func (f *fakeRedis) recordWrites() (at []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.log {
		if r.args[0] == "evalsha" && slices.ContainsFunc(r.args, isRecord) {
			at = append(at, r.at)
		}
	}
	return at
}

// However much a client holds and waits for, it makes two requests in ten seconds; and none
// when it has neither.
func TestFakeTimeRecordsAreCheap(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.recordedClient(t, nil)
		var unlock []func()
		for i := range 100 {
			held, hold := lock(t, t.Context(), c.NewLock(fmt.Sprint("held", i)))
			unlock = append(unlock, func() { require.NoError(t, hold.Unlock(held)) })
		}
		f.HSet("busy", "other:1", "1") // has no end
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		waiting := lockAsync(ctx, c.NewLock("busy"))
		time.Sleep(time.Minute + 500*time.Millisecond)
		at := f.recordWrites()
		require.Len(t, at, 2*6, "%v", at)
		for i := 2; i < len(at); i++ {
			require.GreaterOrEqual(t, at[i]-at[i-2], 10*time.Second)
		}
		ids := listed(t, f.rdb, "")
		require.Len(t, ids, 1)
		r, _ := readRecord(t, f.rdb, "", ids[0])
		require.Len(t, r.Entries, 101)

		for _, f := range unlock {
			f()
		}
		cancel()
		require.Error(t, (<-waiting).err)
		time.Sleep(time.Hour)
		require.Len(t, f.recordWrites(), len(at)+2, "it is removed")
		require.Equal(t, []string{"busy"}, f.Keys())
	})
}

// A record names a lock as held after a third of its lease, but ten seconds at most, also
// if the lease is fixed. When a lock was handed on in memory, the record has the purpose
// of the present holder.
func TestFakeTimeWhatIsLong(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		tell := func(c *rlock.Client, d time.Duration, what record.What, name string) *record.Entry {
			t.Helper()
			time.Sleep(d - f.now())
			synctest.Wait()
			for _, id := range listed(t, f.rdb, "") {
				r, ttl := readRecord(t, f.rdb, "", id)
				if e := entry(r, what, name); e != nil {
					require.Less(t, max(r.Age(*e, ttl)-f.now(), f.now()-r.Age(*e, ttl)), time.Minute)
					return e
				}
			}
			return nil
		}
		c := f.recordedClient(t, &rlock.Options{LeaseTime: 12 * time.Second})
		held, hold := lock(t, t.Context(), c.NewLock("renewed"))
		require.Nil(t, tell(c, 3500*time.Millisecond, record.Holds, "renewed"))
		require.NotNil(t, tell(c, 6*time.Second, record.Holds, "renewed"))
		require.NoError(t, hold.Unlock(held))
		require.Nil(t, tell(c, 20*time.Second, record.Holds, "renewed"))

		held, hold = lock(t, t.Context(), c.NewLock("fixed", rlock.WithoutRenewal(), rlock.WithLeaseTime(10*time.Minute)))
		require.Nil(t, tell(c, 29*time.Second, record.Holds, "fixed"))
		require.NotNil(t, tell(c, 32*time.Second, record.Holds, "fixed"))
		require.NoError(t, hold.Unlock(held))

		held, hold = lock(t, t.Context(), c.NewLock("passed", rlock.WithPurpose("first")))
		next := lockAsync(t.Context(), c.NewLock("passed", rlock.WithPurpose("second")))
		e := tell(c, 52*time.Second, record.Waits, "passed")
		require.Equal(t, "second", e.Purpose)
		require.Equal(t, "first", tell(c, 52*time.Second, record.Holds, "passed").Purpose)
		require.NoError(t, hold.Unlock(held))
		g := <-next
		require.NoError(t, g.err)
		require.Equal(t, "second", tell(c, 70*time.Second, record.Holds, "passed").Purpose)
		require.Nil(t, tell(c, 70*time.Second, record.Waits, "passed"))
		require.NoError(t, g.hold.Unlock(g.held))
	})
}

// The record is written anew after FLUSHALL, and whatever a server does that is down or
// hangs, no lock waits for that and Close comes back.
func TestFakeTimeRecordsOnABadServer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.recordedClient(t, nil)
		held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithLeaseTime(10*time.Minute)))
		waiting := lockAsync(t.Context(), c.NewLock("a"))
		time.Sleep(12 * time.Second)
		require.Len(t, listed(t, f.rdb, ""), 1)
		key := record.Key("", listed(t, f.rdb, "")[0])
		f.Del(key)
		f.Del(record.List(""))
		time.Sleep(11 * time.Second)
		require.Len(t, listed(t, f.rdb, ""), 1)
		require.True(t, f.Exists(key))

		f.deafDown.Store(true)
		time.Sleep(time.Minute)
		require.NoError(t, held.Err())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		start := time.Now()
		require.Error(t, c.Close(ctx))
		require.Less(t, time.Since(start), 2*time.Second)
		cancel()
		require.Error(t, (<-waiting).err)
		f.heal()
		_ = hold.Unlock(held)
		time.Sleep(2 * record.Lasts)
		require.NotContains(t, f.Keys(), key)
	})
}

// Close takes the record away. What was lost before stays told for half a minute; what Close
// itself ends is no news.
func TestFakeTimeRecordAfterClose(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		closeWith := func(c *rlock.Client, held context.Context, hold *rlock.Hold) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorContains(t, c.Close(ctx), "still held")
			_ = hold.Unlock(held)
		}
		c := f.recordedClient(t, nil)
		lost, _ := lock(t, t.Context(), c.NewLock("lost"))
		held, hold := lock(t, t.Context(), c.NewLock("held"))
		f.Del("lost")
		<-lost.Done()
		closeWith(c, held, hold)
		ids := listed(t, f.rdb, "")
		require.Len(t, ids, 1)
		r, _ := readRecord(t, f.rdb, "", ids[0])
		require.Len(t, r.Entries, 1, "%v", r.Entries)
		require.NotNil(t, entry(r, record.Lost, "lost"))

		c = f.recordedClient(t, nil)
		held, hold = lock(t, t.Context(), c.NewLock("other"))
		closeWith(c, held, hold)
		require.Equal(t, ids, listed(t, f.rdb, ""))
	})
}

// A client that is to tell promptly tells of each hold at once, also if it has just told that it
// waits.
func TestFakeTimePromptRecords(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		tells := func(what record.What, name string) bool {
			synctest.Wait()
			ids := listed(t, f.rdb, "")
			if len(ids) == 0 {
				return false
			}
			r, _ := readRecord(t, f.rdb, "", ids[0])
			return entry(r, what, name) != nil
		}
		c := f.recordedClient(t, &rlock.Options{Identity: rlock.Identity{Prompt: true}})
		held, hold := lock(t, t.Context(), c.NewLock("a"))
		require.True(t, tells(record.Holds, "a"))
		require.NoError(t, hold.Unlock(held))
		time.Sleep(time.Minute)
		require.Empty(t, listed(t, f.rdb, ""))

		f.HSet("busy", "other:1", "1")
		waiting := lockAsync(t.Context(), c.NewLock("busy"))
		time.Sleep(1500 * time.Millisecond)
		require.True(t, tells(record.Waits, "busy"))
		f.Del("busy")
		g := <-waiting
		require.NoError(t, g.err)
		time.Sleep(time.Second)
		require.True(t, tells(record.Holds, "busy"))
		require.NoError(t, g.hold.Unlock(g.held))
	})
}
