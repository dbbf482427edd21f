package rlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
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

// The first waiter leaves while its request is under way. The next one asks at once: its request reaches the server as soon
// as a connection for it is set up. When the lock is granted depends on which of the connections is the first to be ready, but
// not on the end of a lease.
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
		asked := f.asked()
		require.Greater(t, len(asked), 1)
		require.Less(t, asked[1], 4*late)
		require.Less(t, f.now(), 20*late)
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

func TestFakeTimeQueueIsFIFO(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewLock("a")
		_, hold := lock(t, t.Context(), mu)
		var order []int
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				_ = mu.Do(t.Context(), func(context.Context) error {
					order = append(order, i)
					return nil
				})
			})
			synctest.Wait() // it is in the queue
		}
		require.NoError(t, hold.Unlock(t.Context()))
		all.Wait()
		require.True(t, slices.IsSorted(order), "%v", order)
		require.Len(t, order, 50)
	})
}

// The first waiter of a client gives up because Redis did not answer for so long. Those
// who have waited behind it from the start have waited as long, and give up as well.
func TestFakeTimeQueueGivesUpWithItsHead(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, &rlock.Options{LeaseTime: time.Second}).NewLock("a")
		f.deafUp.Store(true)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				_, _, err := mu.Lock(t.Context())
				assert.ErrorIs(t, err, rlock.ErrUnavailable)
			})
		}
		all.Wait()
		require.LessOrEqual(t, f.now(), 6*time.Second, "5 s, and a little for those behind")
	})
}

// A server short of memory keeps no ticket, and so tells nobody. The waiter asks again,
// and does not sleep until the holder's lease is over.
func TestWaiterWithoutATicket(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin := srv.Client(t)
	holder, waiter := newClient(t, srv, nil).NewLock("lock"), newClient(t, srv, nil).NewLock("lock")
	held, hold, err := holder.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	got := make(chan error, 1)
	go func() {
		ctx, mine, err := waiter.Lock(t.Context())
		if err == nil {
			err = mine.Unlock(ctx)
		}
		got <- err
	}()
	redistest.Eventually(t, "it listens, or may not", func() bool {
		refused := strings.Contains(admin.Info(t.Context(), "commandstats").Val(), "cmdstat_subscribe:calls=0,") // Redis 8.10 does
		return refused || len(admin.PubSubChannels(t.Context(), "rlock_channel:*").Val()) > 0
	})
	time.Sleep(200 * time.Millisecond)
	require.Zero(t, admin.Exists(t.Context(), lua.QueueOf("lock")).Val())
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.NoError(t, hold.Unlock(held))
	select {
	case err := <-got:
		require.NoError(t, err)
	case <-time.After(time.Second + slack):
		require.Fail(t, "it sleeps beside a free lock")
	}
}

// A holder of the same client is trusted to tell of its end. But it does not know, until
// its next renewal, that the lock was removed: whoever waits for it looks now and then.
func TestFakeTimeRemovedBehindOwnHolder(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a", longLease)
		held, hold := lock(t, t.Context(), mu)
		before := len(f.asked())
		w := begin(t.Context(), mu)
		synctest.Wait()
		behind := begin(t.Context(), mu)
		time.Sleep(keepAlive - time.Millisecond)
		synctest.Wait()
		require.Len(t, f.asked(), before, "nobody has reason to ask")
		_, err := f.client(t, nil).NewLock("a").ForceUnlock(t.Context())
		require.NoError(t, err)
		began := f.now()
		next, nextHold := w.acquired(t)
		require.LessOrEqual(t, f.now()-began, keepAlive)
		<-held.Done()
		require.Error(t, hold.Unlock(held))
		require.NoError(t, nextHold.Unlock(next))
		next, nextHold = behind.acquired(t)
		require.NoError(t, nextHold.Unlock(next))
	})
}

// Waiting behind a holder of the same client costs no more requests than waiting behind
// another client's.
func TestFakeTimeWaitingBehindOwnHolder(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewLock("a", longLease)
		held, hold := lock(t, t.Context(), mu)
		before := len(f.asked())
		var waiters []*waiting
		for range 10 {
			waiters = append(waiters, begin(t.Context(), mu))
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.LessOrEqual(t, len(f.asked())-before, askedIn(time.Minute))
		asked := len(f.asked())
		began := f.now()
		require.NoError(t, hold.Unlock(held))
		for _, w := range waiters {
			held, hold := w.acquired(t)
			require.Equal(t, began, f.now())
			require.NoError(t, hold.Unlock(held))
		}
		require.LessOrEqual(t, len(f.asked())-asked, 1, "it is passed on in memory")
		synctest.Wait()
		require.Empty(t, f.Keys())
	})
}

// The server has forgotten the queue. The first of a client that learns of it has the
// others ask as well.
func TestFakeTimeQueueIsLost(t *testing.T) {
	for _, kind := range []string{"plain", "fair"} {
		t.Run(kind, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.holder("a", time.Minute)
				one, other := lockOf(f.client(t, nil), kind), lockOf(f.client(t, nil), kind)
				waiters := f.row(t, one, one, one, other)
				all := len(tickets(t, f.rdb, "a"))
				time.Sleep(time.Second)
				f.FlushAll()
				f.holder("a", time.Minute)
				time.Sleep(keepAlive + keepAlive/10)
				synctest.Wait()
				require.Len(t, tickets(t, f.rdb, "a"), all)
				began, asked := f.now(), len(f.asked())
				f.release(t, somebody)
				var order []int
				for range waiters {
					i, w := next(waiters)
					require.NotNil(t, w)
					order = append(order, i)
					finish(t, w)
					waiters[i] = nil
					synctest.Wait()
				}
				require.Equal(t, began, f.now(), "%v", order)
				require.LessOrEqual(t, len(f.asked())-asked, 3, "the messages are heard")
			})
		})
	}
}

// next returns one that has the lock.
func next(all []*waiting) (int, *waiting) {
	synctest.Wait()
	for i, w := range all {
		if w == nil {
			continue
		}
		select {
		case <-w.done:
			return i, w
		default:
		}
	}
	return 0, nil
}

// A holder dies. The first in line asks when its lease is over, and the others a little
// later, in case the first is dead as well.
func TestFakeTimeDeadHolder(t *testing.T) {
	const ttl = 17 * time.Second
	for _, firstIsDead := range []bool{false, true} {
		t.Run(fmt.Sprint("first is dead: ", firstIsDead), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				f.holder("a", ttl)
				if firstIsDead {
					_, err := f.ZAdd("rlock_queue:{a}", 1*8192*4+6000*4+1, "d2k7m3o6n88ekjf0v0v0:1")
					require.NoError(t, err)
				}
				var locks []*rlock.Lock
				for range 5 {
					locks = append(locks, f.client(t, nil).NewLock("a"))
				}
				waiters := f.row(t, locks...)
				time.Sleep(ttl - f.now() - time.Millisecond)
				before := len(f.asked())
				time.Sleep(straggleFrom)
				synctest.Wait()
				i, w := next(waiters)
				if firstIsDead {
					require.Len(t, f.asked(), before)
					require.Nil(t, w)
					time.Sleep(straggleTo - straggleFrom)
					i, w = next(waiters)
				} else {
					require.Len(t, f.asked(), before+1, "only the first asks")
				}
				require.NotNil(t, w)
				require.Zero(t, i, "in their order")
				finish(t, waiters...)
				synctest.Wait()
				require.Empty(t, f.Keys())
			})
		})
	}
}

// How much later than the first the others ask.
const (
	straggleFrom = 200 * time.Millisecond
	straggleTo   = 620 * time.Millisecond
)

// The connection for messages was lost, and perhaps messages with it: all waiters ask the
// server.
func TestFakeTimeDoubt(t *testing.T) {
	for _, kind := range []string{"plain", "fair"} {
		t.Run(kind, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				mu := lockOf(f.client(t, nil), kind)
				f.holder("a", time.Hour)
				waiters := f.row(t, mu, mu, mu)
				time.Sleep(time.Second)
				before := make(map[string]int)
				for _, owner := range queueOf(t, f.rdb, "a") {
					before[owner] = f.askedFor(owner)
				}
				f.cut()
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				for owner, n := range before {
					require.Greater(t, f.askedFor(owner), n)
				}

				f.Del("a") // nobody hears of it
				began := f.now()
				f.cut()
				finishAll(t, waiters...)
				require.LessOrEqual(t, f.now()-began, time.Second)
			})
		})
	}
}

// subscribers returns how many clients listen where Redisson announces releases.
func (f *fakeRedis) subscribers() int {
	return f.PubSubNumSub(channelOfA)[channelOfA]
}

// While Redisson has the lock, waiters listen to its channel. Its release wakes the
// first in line at once, and the others if that one does not answer.
func TestFakeTimeForeignRelease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.foreign(time.Hour)
		var locks []*rlock.Lock
		for range 5 {
			locks = append(locks, f.client(t, nil).NewLock("a"))
		}
		waiters := f.row(t, locks...)
		require.Equal(t, 5, f.subscribers())
		time.Sleep(minKeepAlive / 3)

		before := len(f.asked())
		f.Publish(channelOfA, "-0") // is ours, and told otherwise to whom it concerns
		time.Sleep(minKeepAlive / 3)
		require.Len(t, f.asked(), before)

		f.Publish(channelOfA, "0") // but somebody else has taken it
		time.Sleep(90 * time.Millisecond)
		synctest.Wait()
		require.Len(t, f.asked(), before+2, "the first, and as it is refused, the server has the second ask")
		time.Sleep(11 * time.Millisecond)
		synctest.Wait()
		require.Len(t, f.asked(), before+5, "the others")

		began := f.now()
		f.Del("a")
		f.Publish(channelOfA, "0")
		finish(t, waiters...)
		require.Equal(t, began, f.now())
		synctest.Wait()
		require.Empty(t, f.Keys())
	})
}

// Waiters listen to Redisson's channel while Redisson has the lock, and stop when an
// owner of this library has it. As long as somebody listens there, a release leaves the
// lock free for everybody; without listeners it grants the lock to the next in the queue.
func TestFakeTimeForeignChannelIsLeft(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.foreign(time.Hour)
		one, other := f.client(t, nil).NewLock("a"), f.client(t, nil).NewLock("a")
		waiters := f.row(t, one, other)
		require.Equal(t, 2, f.subscribers())
		f.Del("a")
		f.holder("a", time.Hour)
		time.Sleep(keepAlive + keepAlive/10 + 2*time.Second)
		synctest.Wait()
		require.Zero(t, f.subscribers())
		began, asked := f.now(), len(f.asked())
		f.release(t, somebody)
		finish(t, waiters...)
		require.Equal(t, began, f.now())
		require.Len(t, f.asked(), asked, "granted by messages")
	})
}

// A caller leaves while its request is under way. Another goroutine inherits its place in
// the queue, and so its owner name, and releases the lock to a third one, because there is a
// doubt about the old request. When that is executed then, the third one keeps the lock if it
// has it; and if nobody has it any more, the lock is free again soon.
func TestFakeTimeAnswerAfterAHandOff(t *testing.T) {
	for name, free := range map[string]bool{"while it is held": false, "when it is free": true} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) { answerAfterAHandOff(t, free) })
		})
	}
}

// answerAfterAHandOff has the request executed while the lock is held, or when it is free.
func answerAfterAHandOff(t *testing.T, free bool) {
	f := newFakeRedis(t)
	f.teach(t)
	f.holder("a", time.Hour)
	mu := f.client(t, nil).NewLock("a")
	ctx, leave := context.WithCancel(t.Context())
	gone := begin(ctx, mu)
	synctest.Wait()
	second := begin(t.Context(), mu)
	synctest.Wait()
	third := begin(t.Context(), mu)
	synctest.Wait()

	open := f.hold(isScript("ask"))
	owner := queueOf(t, f.rdb, "a")[0]
	require.Equal(t, 1, f.Publish("rlock_channel:{a}:"+clientOf(owner), owner)) // it may ask
	synctest.Wait()
	f.Del("a")
	leave()
	<-gone.done
	held, hold := second.acquired(t)
	require.Equal(t, owner, hold.Owner(), "the place in the queue was inherited")
	require.NoError(t, hold.Unlock(held))
	held, hold = third.acquired(t)
	require.NotEqual(t, owner, hold.Owner(), "in doubt, the lock is not handed on in memory")
	if !free {
		open()
		synctest.Wait()
		require.True(t, f.Exists("a"))
	}
	require.NoError(t, hold.Unlock(held))
	open()
	time.Sleep(2 * time.Second) // the place was answered by a copy of the request, so who leaves it cleans up from a second later on
	require.False(t, f.Exists("a"), "it stays for a lease")
}
