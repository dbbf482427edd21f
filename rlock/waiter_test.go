package rlock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// The first waiter of a client leaves. The next one has its place on the server, in
// memory: nothing is sent.
func TestFakeTimeNextInheritsTheTicket(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		mu, rival := f.client(t, nil).NewLock("a"), f.client(t, nil).NewLock("a")
		ctx, leave := context.WithCancel(t.Context())
		first := begin(ctx, mu)
		synctest.Wait()
		waiters := f.row(t, mu, rival)
		before, asked := tickets(t, f.rdb, "a"), len(f.asked())
		require.Len(t, before, 2)
		time.Sleep(minKeepAlive / 3)
		leave()
		<-first.done
		require.ErrorIs(t, first.err, rlock.ErrNotAcquired)
		time.Sleep(minKeepAlive / 3)
		synctest.Wait()
		require.Equal(t, before, tickets(t, f.rdb, "a"))
		require.Empty(t, f.scripts("release"))
		require.Len(t, f.asked(), asked)

		began := f.now()
		f.release(t, somebody)
		held, hold := waiters[0].acquired(t)
		require.Equal(t, began, f.now())
		require.Equal(t, before[0].owner, hold.Owner())
		require.NoError(t, hold.Unlock(held))
		finish(t, waiters[1])
		synctest.Wait()
		require.Empty(t, f.Keys())
	})
}

// The first waiter leaves while its request is under way. The next one asks at once.
func TestFakeTimeFirstLeavesWhileItAsks(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a")
		const late = 500 * time.Millisecond
		f.late.Store(int64(late))
		ctx, leave := context.WithCancel(t.Context())
		first := begin(ctx, mu)
		synctest.Wait()
		second := begin(t.Context(), mu)
		synctest.Wait()
		require.Len(t, f.asked(), 1, "the first asks for both")
		leave()
		<-first.done
		require.ErrorIs(t, first.err, context.Canceled)
		held, hold := second.acquired(t)
		require.LessOrEqual(t, f.now(), 6*late, "connections, a refusal by what the first was granted, a subscription, and a message")
		require.NoError(t, hold.Unlock(held))
	})
}

// When a waiter leaves, its ticket is taken out of the queue on the server, unless
// another waiter of the client wants the lock with the same options and inherits it.
func TestFakeTimeTicketIsTakenBack(t *testing.T) {
	for name, next := range map[string][]rlock.LockOption{
		"nobody": nil, "other lease": {rlock.WithLeaseTime(20 * time.Second)}, "fenced": {rlock.WithFencing()}, "fixed": {rlock.WithoutRenewal()},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				f.holder("a", time.Hour)
				c, rival := f.client(t, nil), f.client(t, nil).NewLock("a")
				ctx, leave := context.WithCancel(t.Context())
				first := begin(ctx, c.NewLock("a"))
				synctest.Wait()
				waiters := f.row(t, rival)
				if next != nil {
					waiters = append(waiters, f.row(t, c.NewLock("a", next...))...)
				}
				before := queueOf(t, f.rdb, "a")
				require.Len(t, before, 2)
				leave()
				<-first.done
				synctest.Wait()
				now := queueOf(t, f.rdb, "a")
				require.Len(t, now, len(waiters))
				require.Equal(t, before[1], now[0], "the rival is the first")
				require.NotContains(t, now, before[0])
				require.Len(t, f.scripts("release"), 1)
				f.release(t, somebody)
				finish(t, waiters...)
				require.Less(t, f.now(), time.Second)
			})
		})
	}
}

// A waiter leaves while the lock is granted to it: what takes its ticket back passes the
// lock on.
func TestFakeTimeGrantToALeaver(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		mu, rival := f.client(t, nil).NewLock("a"), f.client(t, nil).NewLock("a")
		ctx, cancel := context.WithCancel(t.Context())
		leaver := begin(ctx, mu)
		synctest.Wait()
		w := begin(t.Context(), rival)
		synctest.Wait()
		owner := queueOf(t, f.rdb, "a")[0]
		release := isScript("release")
		open := f.hold(func(args []string) bool { return release(args) && slices.Contains(args, owner) })
		cancel()
		<-leaver.done
		synctest.Wait()
		require.Len(t, queueOf(t, f.rdb, "a"), 2, "its ticket is not taken back yet")
		f.release(t, somebody)
		synctest.Wait()
		require.Contains(t, hgetall(t, f.rdb, "a"), owner)
		asked := len(f.asked())
		open()
		held, hold := w.acquired(t)
		require.Zero(t, f.now())
		require.Len(t, f.asked(), asked)
		require.NoError(t, held.Err())
		require.NoError(t, hold.Unlock(held))
		synctest.Wait()
		require.Empty(t, f.Keys())
	})
}

// A waiter is granted the lock by a message while the answer to its request is under way, and
// leaves. What it was granted is given back at once, and not when the answer has come.
func TestFakeTimeGrantToALeaverWhoAsks(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		here, there := f.client(t, nil).NewFairLock("a"), f.client(t, nil).NewFairLock("a")
		held, hold := lock(t, t.Context(), there)
		before := begin(t.Context(), here) // from now on its client listens, for a while
		synctest.Wait()
		require.NoError(t, hold.Unlock(held))
		finish(t, before)
		held, hold = lock(t, t.Context(), there)
		f.late.Store(int64(time.Second))
		ctx, leave := context.WithCancel(t.Context())
		leaver := begin(ctx, here)
		synctest.Wait()
		f.late.Store(0)
		rival := begin(t.Context(), there)
		synctest.Wait()
		owner := queueOf(t, f.rdb, "a")[0]
		require.NoError(t, hold.Unlock(held))
		synctest.Wait()
		require.Contains(t, hgetall(t, f.rdb, "a"), owner)
		began := f.now()
		leave()
		<-leaver.done
		held, hold = rival.acquired(t)
		require.Equal(t, began, f.now())
		require.NoError(t, hold.Unlock(held))
		time.Sleep(time.Minute)
		require.Empty(t, f.Keys())
	})
}

// A message for an owner for whom nobody waits, nor ever has: what it grants is given
// back. One that grants nothing is ignored.
func TestFakeTimeMessageForNobody(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		w := f.row(t, f.client(t, nil).NewLock("a"))[0]
		home := clientOf(queueOf(t, f.rdb, "a")[0])
		asked := len(f.asked())
		f.Publish("rlock_channel:{a}:"+home, home+":77")
		synctest.Wait()
		require.Empty(t, f.scripts("release"))
		f.Del("a")
		f.heldBy("a", home+":77", time.Hour)
		f.Publish("rlock_channel:{a}:"+home, f.grantTo(home+":77", 0, 0))
		held, hold := w.acquired(t)
		require.Len(t, f.asked(), asked, "the lock was passed on")
		require.NotContains(t, hold.Owner(), ":77")
		require.NoError(t, hold.Unlock(held))
	})
}

// A message that comes again, when its owner has the lock by it, is ignored.
func TestFakeTimeMessageForTheHolder(t *testing.T) {
	for _, kind := range []string{"plain", "fair"} {
		t.Run(kind, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.holder("a", time.Hour)
				mu := lockOf(f.client(t, nil), kind)
				waiters := f.row(t, mu, mu)
				f.release(t, somebody)
				var owner string
				for range waiters {
					i, w := next(waiters)
					require.NotNil(t, w)
					waiters[i] = nil
					held, hold := w.acquired(t)
					owner = hold.Owner()
					ended := len(f.scripts("release"))
					f.Publish("rlock_channel:{a}:"+clientOf(owner), f.grantTo(owner, 0, 0))
					time.Sleep(time.Second)
					synctest.Wait()
					require.Len(t, f.scripts("release"), ended)
					require.NoError(t, held.Err())
					require.Contains(t, hgetall(t, f.rdb, "a"), owner)
					require.NoError(t, hold.Unlock(held))
				}
				synctest.Wait()
				require.Empty(t, f.Keys())
			})
		})
	}
}
