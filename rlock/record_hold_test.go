package rlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/record"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// heldAs returns what the record of the only client that has one tells of lock a; nil if
// nothing.
func heldAs(t *testing.T, f *fakeRedis) *record.Entry {
	t.Helper()
	synctest.Wait()
	for _, id := range listed(t, f.rdb, "") {
		r, _ := readRecord(t, f.rdb, "", id)
		if e := entry(r, record.Holds, "a"); e != nil {
			return e
		}
	}
	return nil
}

// A hold is told of when it is 10 s old, or in the ten seconds after, however long its
// lease is.
func TestFakeTimeRecordOfALongLease(t *testing.T) {
	for _, lease := range []time.Duration{30 * time.Second, time.Minute, 10 * time.Minute, 24 * time.Hour} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			held, hold := lock(t, t.Context(), f.recordedClient(t, &rlock.Options{LeaseTime: lease}).NewLock("a"))
			time.Sleep(21 * time.Second)
			require.NotNil(t, heldAs(t, f), "a lease of %v", lease)
			require.NoError(t, hold.Unlock(held))
		})
	}
}

// The purpose is that of the Lock which was locked, whoever the client has asked for, or
// has kept it from.
func TestFakeTimeRecordTellsTheHoldersPurpose(t *testing.T) {
	t.Run("kept", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			c := f.recordedClient(t, nil)
			first := c.NewLock("a", rlock.WithRetention(time.Hour), rlock.WithPurpose("first"))
			for range 2 {
				held, hold := lock(t, t.Context(), first)
				synctest.Wait()
				require.NoError(t, hold.Unlock(held))
			}
			held, hold := lock(t, t.Context(), c.NewLock("a", rlock.WithRetention(time.Hour), rlock.WithPurpose("second")))
			time.Sleep(45 * time.Second)
			require.Equal(t, "second", heldAs(t, f).Purpose)
			require.NoError(t, hold.Unlock(held))
		})
	})
	t.Run("asked for by a waiter who has left", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			other, otherHold := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
			c := f.recordedClient(t, nil)
			ctx, leave := context.WithCancel(t.Context())
			first := begin(ctx, c.NewLock("a", rlock.WithPurpose("first")))
			time.Sleep(500 * time.Millisecond)
			second := begin(t.Context(), c.NewLock("a", rlock.WithPurpose("second")))
			time.Sleep(500 * time.Millisecond)
			leave()
			<-first.done
			require.Error(t, first.err)
			require.NoError(t, otherHold.Unlock(other))
			held, hold := second.acquired(t)
			time.Sleep(40 * time.Second)
			require.Equal(t, "second", heldAs(t, f).Purpose)
			require.NoError(t, hold.Unlock(held))
		})
	})
}
