package rlock_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// Those who wait send nothing, but for the first of each client: it asks now and then.
func TestFakeTimeFairKeepAlive(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewFairLock("a"))
		ctx, cancel := context.WithCancel(t.Context())
		const clients = 2
		var waiters []*waiting
		for range clients {
			mu := f.client(t, nil).NewFairLock("a")
			for range 64 {
				waiters = append(waiters, begin(ctx, mu))
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, tickets(t, f.rdb, "a"), 64*clients)
		before := len(f.scripts("ask_fair"))
		const wait = 10 * time.Minute
		time.Sleep(wait)
		synctest.Wait()
		asked := len(f.scripts("ask_fair")) - before
		require.LessOrEqual(t, asked, clients*int(wait/keepAlive))
		require.GreaterOrEqual(t, asked, clients*int(wait/(keepAlive+keepAlive/10))-clients)
		require.Len(t, tickets(t, f.rdb, "a"), 64*clients, "that keeps the places of all")
		cancel()
		for _, w := range waiters {
			<-w.done
			require.ErrorIs(t, w.err, context.Canceled)
		}
		require.NoError(t, hold.Unlock(held))
		synctest.Wait()
		require.Empty(t, f.Keys())
	})
}

// The holder dies: those who wait are served one after another.
func TestFakeTimeFairDeadHolder(t *testing.T) {
	for _, queue := range []int{1, 3} {
		t.Run(strconv.Itoa(queue), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, nil).NewFairLock("a")
				f.holder("a", 25*time.Second)
				var waiters []*waiting
				for range queue {
					waiters = append(waiters, begin(t.Context(), mu))
					synctest.Wait()
				}
				for i, w := range waiters {
					<-w.done
					require.NoError(t, w.err)
					require.InDelta(t, 25*time.Second, f.now(), float64(10*time.Millisecond), "waiter %d", i)
					require.NoError(t, w.hold.Unlock(w.held))
				}
			})
		})
	}
}

// Without subscriptions it works as well, only slower.
func TestFakeTimeFairDeaf(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewFairLock("a")
		f.denySubscribe.Store(true)
		held, hold := lock(t, t.Context(), mu)
		w := begin(t.Context(), mu)
		time.Sleep(time.Minute)
		began := time.Now()
		require.NoError(t, hold.Unlock(held))
		<-w.done
		require.NoError(t, w.err)
		require.LessOrEqual(t, time.Since(began), time.Second+10*time.Millisecond)
		require.NoError(t, w.hold.Unlock(w.held))
	})
}

// The server is away for longer than a client is silent otherwise. The places are kept.
func TestFakeTimeFairServerAway(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		f.holder("a", time.Minute)
		w := begin(t.Context(), c.NewFairLock("a"))
		synctest.Wait()
		second := begin(t.Context(), c.NewFairLock("a"))
		synctest.Wait()
		queue := queueOf(t, f.rdb, "a")
		require.Len(t, queue, 2)
		time.Sleep(10 * time.Second)
		f.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(10 * time.Second)
		f.heal()
		time.Sleep(10 * time.Second)
		require.Equal(t, queue, queueOf(t, f.rdb, "a"))
		<-w.done
		require.NoError(t, w.err)
		require.Equal(t, queue[0], w.hold.Owner())
		require.NoError(t, w.hold.Unlock(w.held))
		<-second.done
		require.NoError(t, second.err)
		require.NoError(t, second.hold.Unlock(second.held))
	})
}

// The server has forgotten the queue, and further calls of the same client come all the time.
// They take tickets, and say nothing of those that came before them, whose turn would never come
// if each of them put off the time at which their client asks for all.
func TestFakeTimeFairQueueIsLostWhileOthersCome(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		mu := f.client(t, nil).NewFairLock("a")
		waiters := f.row(t, mu, mu)
		require.True(t, f.Del("rlock_queue:{a}"))
		for began := time.Now(); time.Since(began) < 2*minKeepAlive; time.Sleep(minKeepAlive / 3) {
			waiters = append(waiters, f.row(t, mu)...)
		}
		synctest.Wait()
		require.Len(t, tickets(t, f.rdb, "a"), len(waiters))
		f.release(t, somebody)
		finishAll(t, waiters...)
	})
}

// The server has forgotten the queue. Each waiter asks once for a new ticket, however many there
// are: that it had none before tells of nothing new. The first one is told that few wait, and
// asks again soon.
func TestFakeTimeFairQueueIsLostByMany(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		mu := f.client(t, nil).NewFairLock("a")
		const n = 50
		waiters := f.row(t, slices.Repeat([]*rlock.Lock{mu}, n)...)
		owners := queueOf(t, f.rdb, "a")
		require.Len(t, owners, n)
		for range 2 {
			require.True(t, f.Del("rlock_queue:{a}"))
			before := make(map[string]int)
			for _, owner := range owners {
				before[owner] = f.askedFor(owner)
			}
			time.Sleep(n * time.Second / asksPerSecond * 11 / 10)
			synctest.Wait()
			require.ElementsMatch(t, owners, queueOf(t, f.rdb, "a"))
			for _, owner := range owners[1:] {
				require.Equal(t, before[owner]+1, f.askedFor(owner), owner)
			}
			require.LessOrEqual(t, f.askedFor(owners[0]), before[owners[0]]+3)
		}
		f.release(t, somebody)
		finishAll(t, waiters...)
	})
}
