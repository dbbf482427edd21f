package rlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// finish has waiters take the lock and give it back, one after the other.
func finish(t *testing.T, waiters ...*waiting) {
	t.Helper()
	for _, w := range waiters {
		held, hold := w.acquired(t)
		require.NoError(t, hold.Unlock(held))
	}
}

// finishAll is finish in whatever order they have the lock.
func finishAll(t *testing.T, waiters ...*waiting) {
	t.Helper()
	var all sync.WaitGroup
	for _, w := range waiters {
		all.Go(func() {
			<-w.done
			if assert.NoError(t, w.err) {
				assert.NoError(t, w.hold.Unlock(w.held))
			}
		})
	}
	all.Wait()
}

// row has locks wait in this order.
func (f *fakeRedis) row(t *testing.T, locks ...*rlock.Lock) (all []*waiting) {
	for _, mu := range locks {
		all = append(all, begin(t.Context(), mu))
		synctest.Wait()
	}
	return all
}

// The first waiter of each client asks every 5 s when it has waited for long, and keeps the
// queue on the server; the others send nothing.
func TestFakeTimeKeepAlive(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewLock("a"))
		var waiters []*waiting
		const clients = 3
		for range clients {
			mu := f.client(t, nil).NewLock("a")
			waiters = append(waiters, f.row(t, slices.Repeat([]*rlock.Lock{mu}, 20)...)...)
		}
		time.Sleep(time.Minute)
		before := len(f.asked())
		for range 20 {
			time.Sleep(30 * time.Second)
			require.Len(t, tickets(t, f.rdb, "a"), clients, "the queue is kept")
		}
		synctest.Wait()
		asked := len(f.asked()) - before
		require.LessOrEqual(t, asked, clients*int(10*time.Minute/keepAlive))
		require.GreaterOrEqual(t, asked, clients*100)
		require.NoError(t, hold.Unlock(held))
		finish(t, waiters...)
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
// the queue, and so its owner name, and hands the lock on to a third one. When the old
// request is executed then, the third one keeps the lock if it has it; and if nobody has
// it any more, the lock is free again soon.
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
