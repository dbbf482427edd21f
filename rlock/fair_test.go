package rlock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

func TestFairOrderOverClients(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	clients := []*rlock.Client{newClient(t, srv, nil), newClient(t, srv, nil), newClient(t, srv, nil)}
	held, hold := lock(t, t.Context(), clients[0].NewFairLock("a"))

	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	const waiters = 12
	for i := range waiters {
		wg.Go(func() {
			held, hold, err := clients[i%3].NewFairLock("a").Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := hold.Unlock(held); err != nil {
				t.Error(err)
			}
		})
		awaitQueue(t, rdb, "a", i+1)
	}
	s, err := clients[1].NewFairLock("a").Inspect(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int64{hold.Owner(): 1}, s.Holds)
	require.EqualValues(t, waiters, s.Waiters)
	require.NoError(t, hold.Unlock(held))
	wg.Wait()
	for i := range waiters {
		require.Equal(t, i, order[i], "%v", order)
	}
	require.Empty(t, lockKeys(t, rdb))
}

func TestFairTryLockDoesNotOvertake(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	_, hold := lock(t, t.Context(), newClient(t, srv, nil).NewFairLock("a"))
	w := begin(t.Context(), newClient(t, srv, nil).NewFairLock("a"))
	awaitQueue(t, rdb, "a", 1)
	require.NoError(t, rdb.Del(t.Context(), "a").Err()) // as if the holder had died

	_, _, err := newClient(t, srv, nil).NewFairLock("a").TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	held, next := w.acquired(t)
	require.Empty(t, queueOf(t, rdb, "a"), "a TryLock leaves no ticket")
	require.NoError(t, next.Unlock(held))
	requireUnlockedTooLate(t, hold.Unlock(t.Context()))

	held, hold, err = newClient(t, srv, nil).NewFairLock("a").TryLock(t.Context())
	require.NoError(t, err)
	require.NoError(t, hold.Unlock(held))
}

func TestFairOptions(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), c.NewFairLock("a"))
	fixed := begin(t.Context(), c.NewFairLock("a", rlock.WithoutRenewal(), rlock.WithLeaseTime(20*time.Second)))
	awaitQueue(t, rdb, "a", 1)
	short := begin(t.Context(), c.NewFairLock("a", rlock.WithLeaseTime(3*time.Second)))
	awaitQueue(t, rdb, "a", 2)
	require.NoError(t, hold.Unlock(held))

	held, hold = fixed.acquired(t)
	require.Greater(t, rdb.PTTL(t.Context(), "a").Val(), 15*time.Second)
	require.Greater(t, time.Until(hold.Until()), 15*time.Second, "a fixed lease is a whole one")
	nested, inner := lock(t, held, c.NewFairLock("a"))
	require.Equal(t, 2, holds(t, rdb, "a"))
	require.NoError(t, inner.Unlock(nested))
	require.NoError(t, hold.Unlock(held))

	held, hold = short.acquired(t)
	require.LessOrEqual(t, rdb.PTTL(t.Context(), "a").Val(), 3*time.Second)
	for until := hold.Until(); !hold.Until().After(until.Add(time.Second)); time.Sleep(10 * time.Millisecond) {
		require.NoError(t, held.Err(), "it is renewed")
	}
	require.NoError(t, hold.Unlock(held))
}

// The next in the queue may be of the same client as the owner that is removed: nobody but
// the server can tell it.
func TestFakeTimeUnlockOwnerTellsTheSameClient(t *testing.T) {
	for name, option := range map[string][]rlock.LockOption{"fair": nil, "fenced": {rlock.WithFencing()}} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				here, there := f.client(t, nil).NewFairLock("a", option...), f.client(t, nil).NewFairLock("a", option...)
				_, hold := lock(t, t.Context(), here)
				next := begin(t.Context(), here)
				awaitQueue(t, f.rdb, "a", 1)
				time.Sleep(time.Second) // it hears
				removed, err := there.UnlockOwner(t.Context(), hold.Owner())
				require.NoError(t, err)
				require.True(t, removed)
				began := time.Now()
				held, mine := next.acquired(t)
				require.Less(t, time.Since(began), time.Second)
				require.NoError(t, mine.Unlock(held))
				require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrLeaseLost)
			})
		})
	}
}

// Fair and plain locks of one name are one lock.
func TestFairExcludesPlain(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), c.NewFairLock("a"))
	_, _, err := newClient(t, srv, nil).NewLock("a").TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	plain := begin(t.Context(), newClient(t, srv, nil).NewLock("a"))
	awaitListener(t, rdb, "a")
	nested, inner, err := c.NewLock("a").TryLock(held)
	require.NoError(t, err)
	require.NoError(t, inner.Unlock(nested))
	began := time.Now()
	require.NoError(t, hold.Unlock(held))
	held, hold = plain.acquired(t)
	require.Less(t, time.Since(began), 10*time.Second, "it was woken")

	w := begin(t.Context(), c.NewFairLock("a"))
	awaitQueue(t, rdb, "a", 1)
	require.NoError(t, hold.Unlock(held))
	held, hold = w.acquired(t)
	require.NoError(t, hold.Unlock(held))
}

func TestFairRefusesRedissonsQueue(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	require.NoError(t, rdb.RPush(t.Context(), "redisson_lock_queue:{a}", "java:1").Err())
	_, _, err := mu.Lock(t.Context())
	require.ErrorIs(t, err, rlock.ErrKeyConflict)
	require.ErrorContains(t, err, "Redisson's fair lock")
	_, _, err = mu.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrKeyConflict)
	require.Len(t, lockKeys(t, rdb), 1)
}

// row has locks wait in this order, all of them listening.
func row(t *testing.T, rdb redis.UniversalClient, locks ...*rlock.Lock) (waiters []*waiting, cancel []context.CancelFunc) {
	t.Helper()
	for i, mu := range locks {
		ctx, leave := context.WithCancel(t.Context())
		waiters, cancel = append(waiters, begin(ctx, mu)), append(cancel, leave)
		awaitHearing(t, rdb, mu.Name(), i+1)
	}
	return waiters, cancel
}

// The exact tests of runs are in fake time: on a machine that stands still for a second or
// two the message that begins a run is too old to be trusted, or an answer late, and
// whoever is next asks the server instead.

// Those of one client who follow each other pass the lock on without a command, up
// to the first of another client.
func TestFairRun(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		here, there := f.client(t, nil).NewFairLock("a"), f.client(t, nil).NewFairLock("a")
		held, hold := lock(t, t.Context(), here)
		waiters, _ := row(t, f.rdb, here, here, here, there, here)
		var owners []string
		released, asked := len(f.scripts("release")), len(f.scripts("ask_fair"))
		require.NoError(t, hold.Unlock(held))
		for _, w := range waiters[:3] {
			held, hold := w.acquired(t)
			require.NoError(t, held.Err())
			owners = append(owners, hold.Owner())
			require.NoError(t, hold.Unlock(held))
		}
		held, hold = waiters[3].acquired(t)
		require.Len(t, f.scripts("release"), released+2, "the first one, and that to the other client")
		require.Len(t, f.scripts("ask_fair"), asked)
		require.Equal(t, slices.Repeat(owners[:1], 3), owners)
		require.Equal(t, map[string]string{hold.Owner(): "1"}, hgetall(t, f.rdb, "a"))
		require.Len(t, queueOf(t, f.rdb, "a"), 1)
		require.NoError(t, hold.Unlock(held))
		held, hold = waiters[4].acquired(t)
		require.NoError(t, hold.Unlock(held))
		requireNothing(t, f.rdb, "a")
	})
}

// A client is granted the lock by a message, and more of its goroutines are next in the
// queue. They get the lock in memory, without a release on the server in between.
func TestFairRunAfterAMessage(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		here, there := f.client(t, nil).NewFairLock("a"), f.client(t, nil).NewFairLock("a")
		held, hold := lock(t, t.Context(), here)
		waiters, _ := row(t, f.rdb, there, there, there, here)
		released := len(f.scripts("release"))
		require.NoError(t, hold.Unlock(held))
		for _, w := range waiters {
			held, hold := w.acquired(t)
			require.NoError(t, held.Err())
			require.NoError(t, hold.Unlock(held))
		}
		require.Len(t, f.scripts("release"), released+3, "one for each change of the client, and the last")
		requireNothing(t, f.rdb, "a")
	})
}

// A goroutine that has stopped waiting is passed over when the lock is handed on in
// memory.
func TestFairRunPastALeaver(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	held, hold := lock(t, t.Context(), mu)
	waiters, cancel := row(t, rdb, mu, mu, mu, mu)
	require.NoError(t, hold.Unlock(held))
	held, hold = waiters[0].acquired(t)
	cancel[1]()
	<-waiters[1].done
	require.ErrorIs(t, waiters[1].err, context.Canceled)
	require.NoError(t, hold.Unlock(held))
	for _, w := range waiters[2:] {
		held, hold := w.acquired(t)
		require.NoError(t, hold.Unlock(held))
	}
	requireNothing(t, rdb, "a")
}

// A goroutine that was handed the lock in memory loses it. Those behind it wait no longer
// than behind a waiter whose process has died.
func TestFairRunIsLost(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(t *testing.T, rdb redis.UniversalClient, mu *rlock.Lock){
		"removed": func(t *testing.T, rdb redis.UniversalClient, _ *rlock.Lock) {
			require.NoError(t, rdb.Del(t.Context(), "a").Err())
		},
		"forced": func(t *testing.T, _ redis.UniversalClient, mu *rlock.Lock) {
			was, err := mu.ForceUnlock(t.Context())
			require.NoError(t, err)
			require.True(t, was)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			rdb := srv.Client(t)
			mu := newClient(t, srv, &rlock.Options{LeaseTime: 10 * time.Second}).NewFairLock("a")
			held, hold := lock(t, t.Context(), mu)
			waiters, _ := row(t, rdb, mu, mu, mu)
			require.NoError(t, hold.Unlock(held))
			held, hold = waiters[0].acquired(t)
			require.NoError(t, hold.Unlock(held))
			held, hold = waiters[1].acquired(t)
			remove(t, rdb, mu)
			start := time.Now()
			<-held.Done()
			require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
			next, nextHold := waiters[2].acquired(t)
			require.Less(t, time.Since(start), longestClaim+slack)
			require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
			require.NoError(t, next.Err())
			require.NoError(t, nextHold.Unlock(next))
			requireNothing(t, rdb, "a")
		})
	}
}

// Those of one client who follow each other have tokens that grow, and the next client's
// is greater than all of them.
func TestFairRunWithTokens(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		here, there := f.client(t, nil).NewFairLock("a", rlock.WithFencing()), f.client(t, nil).NewFairLock("a", rlock.WithFencing())
		held, hold := lock(t, t.Context(), here)
		waiters, _ := row(t, f.rdb, here, here, here, there, here)
		owners, token := make(map[string]bool), hold.Token()
		for _, w := range waiters {
			require.NoError(t, hold.Unlock(held))
			held, hold = w.acquired(t)
			require.Greater(t, hold.Token(), token)
			owners[hold.Owner()], token = true, hold.Token()
		}
		require.NoError(t, hold.Unlock(held))
		require.Len(t, owners, 3)
		requireNothing(t, f.rdb, "a")
	})
}

// Without hand-off in memory, and with fixed leases, each hold has an owner of its own on
// the server.
func TestFairWithoutRun(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]rlock.LockOption{
		"without hand-off": rlock.WithoutHandoff(), "fixed": rlock.WithoutRenewal(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			rdb := srv.Client(t)
			mu := newClient(t, srv, nil).NewFairLock("a", option)
			held, hold := lock(t, t.Context(), mu)
			waiters, _ := row(t, rdb, mu, mu, mu)
			seen := map[string]bool{hold.Owner(): true}
			for _, w := range waiters {
				require.NoError(t, hold.Unlock(held))
				held, hold = w.acquired(t)
				require.False(t, seen[hold.Owner()])
				seen[hold.Owner()] = true
				require.Equal(t, map[string]string{hold.Owner(): "1"}, hgetall(t, rdb, "a"))
			}
			require.NoError(t, hold.Unlock(held))
		})
	}
}

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

// The first of a client asks for all. If it leaves, the next one does, when the first would have.
func TestFakeTimeFairNextAsksForAll(t *testing.T) {
	for name, test := range map[string]struct {
		waited time.Duration
		more   int // requests, as those after a short wait follow sooner
	}{"at once": {0, 5}, "after a while": {time.Minute, 0}} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				f.holder("a", time.Hour)
				mu := f.client(t, nil).NewFairLock("a")
				ctx, leave := context.WithCancel(t.Context())
				first := begin(ctx, mu)
				synctest.Wait()
				others := f.row(t, mu, mu)
				time.Sleep(test.waited)
				leave()
				<-first.done
				before := len(f.scripts("ask_fair"))
				time.Sleep(time.Minute)
				asked := len(f.scripts("ask_fair")) - before
				require.LessOrEqual(t, asked, int(time.Minute/keepAlive)+test.more)
				require.GreaterOrEqual(t, asked, int(time.Minute/(keepAlive+keepAlive/10)))
				f.release(t, somebody)
				finishAll(t, others...)
			})
		})
	}
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

// Goroutines and subscriptions do not grow with the waiters, but for their own.
func TestFairManyWaiters(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	held, hold := lock(t, t.Context(), mu)
	before := redistest.Goroutines()
	ctx, cancel := context.WithCancel(t.Context())
	const waiters = 300
	all := make([]*waiting, waiters)
	for i := range all {
		all[i] = begin(ctx, mu)
	}
	awaitQueue(t, rdb, "a", waiters)
	redistest.Eventually(t, "they rest", func() bool { return redistest.Goroutines() < before+waiters+10 })
	redistest.Eventually(t, "they listen to one channel", func() bool {
		return len(rdb.PubSubChannels(t.Context(), "rlock_channel:*").Val()) == 1
	})
	cancel()
	for _, w := range all {
		<-w.done
		if !errors.Is(w.err, rlock.ErrNotAcquired) {
			require.ErrorIs(t, w.err, context.Canceled)
		}
	}
	awaitQueue(t, rdb, "a", 0)
	require.NoError(t, hold.Unlock(held))
}

// fairTraffic returns the scripts of fair locks that clients have sent, and the
// messages that grant one, since m was started.
func fairTraffic(m *redistest.Monitor) (traffic []string) {
	for _, c := range m.Commands() {
		switch command := strings.ToLower(c.Args[0]); {
		case command == "publish" && strings.HasPrefix(c.Args[1], "rlock_channel"):
			traffic = append(traffic, command)
		case c.Client != "lua":
			for _, name := range []string{"ask_fair", "release"} {
				if isScript(name)(c.Args) {
					traffic = append(traffic, name)
				}
			}
		}
	}
	return traffic
}

// learn has the server know the scripts.
func learn(tb testing.TB, mu *rlock.Lock) {
	tb.Helper()
	held, hold := lock(tb, tb.Context(), mu)
	require.NoError(tb, hold.Unlock(held))
}

// A hand-off to a goroutine of the same client is the release, and no message.
func TestFairHandoverInOneClient(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		mu := f.client(t, nil).NewFairLock("a", rlock.WithFencing())
		held, hold := lock(t, t.Context(), mu)
		w := begin(t.Context(), mu)
		awaitHearing(t, f.rdb, "a", 1)
		messages := f.rdb.PSubscribe(t.Context(), "rlock_channel*")
		defer func() { require.NoError(t, messages.Close()) }()
		_, err := messages.Receive(t.Context())
		require.NoError(t, err)
		released, asked := len(f.scripts("release")), len(f.scripts("ask_fair"))
		require.NoError(t, hold.Unlock(held))
		next, nextHold := w.acquired(t)
		synctest.Wait()
		require.Len(t, f.scripts("release"), released+1)
		require.Len(t, f.scripts("ask_fair"), asked)
		message, err := messages.ReceiveTimeout(t.Context(), time.Second)
		require.Error(t, err, "%v", message)
		require.Greater(t, nextHold.Token(), hold.Token())
		require.NoError(t, next.Err())

		elsewhere := begin(t.Context(), f.client(t, nil).NewFairLock("a", rlock.WithFencing()))
		awaitHearing(t, f.rdb, "a", 1)
		require.NoError(t, nextHold.Unlock(next))
		held, hold = elsewhere.acquired(t)
		_, err = messages.ReceiveMessage(t.Context())
		require.NoError(t, err, "there is one to another client")
		require.NoError(t, hold.Unlock(held))
	})
}

// The answer that grants the lock to another goroutine of the client is lost. The
// release is repeated, and has that one ask.
func TestFairLostAnswer(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	proxy := netfault.New(t, srv.Addr())
	far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	mu := clientOn(t, far, nil).NewFairLock("a")
	learn(t, mu)
	held, hold := lock(t, t.Context(), mu)
	w := begin(t.Context(), mu)
	awaitHearing(t, rdb, "a", 1)
	m := srv.Monitor(t)
	proxy.CutReplies(1, isScript("release"))
	require.NoError(t, hold.Unlock(held))
	next, nextHold := w.acquired(t)
	traffic := fairTraffic(m)
	traffic = traffic[max(slices.Index(traffic, "release"), 0):] // before it a keep-alive may come
	require.Equal(t, []string{"release", "release"}, traffic[:2])
	// On a busy machine an attempt may find no answer in time, and there is one more.
	require.Equal(t, []string{"release", "ask_fair"}, slices.Compact(traffic))
	require.EqualValues(t, 1, proxy.Stats().RepliesCut)
	require.NoError(t, nextHold.Unlock(next))
}

// Waiters leave at the moment at which they are granted the lock, or about it: it
// is passed on at once and nothing is left.
func TestFairLeavingCrossesTheGrant(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	rival := newClient(t, srv, nil).NewFairLock("a")
	for i := range 200 {
		held, hold := lock(t, t.Context(), mu)
		ctx, cancel := context.WithCancel(t.Context())
		leaver := begin(ctx, mu)
		awaitQueue(t, rdb, "a", 1)
		stayer := begin(t.Context(), rival)
		awaitQueue(t, rdb, "a", 2)
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 3 * time.Microsecond)
			cancel()
		})
		began := time.Now()
		require.NoError(t, hold.Unlock(held))
		<-leaver.done
		if leaver.err == nil {
			require.NoError(t, leaver.hold.Unlock(leaver.held))
		}
		held, hold = stayer.acquired(t)
		require.Less(t, time.Since(began), longestClaim-time.Second, "it did not wait for the end of a claim")
		require.NoError(t, hold.Unlock(held))
		wg.Wait()
	}
}

// Messages are lost, but the subscription seems sound: that is noticed before
// the claim is over.
func TestFairLostMessage(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	proxy := netfault.New(t, srv.Addr())
	far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	mu := clientOn(t, far, nil).NewFairLock("a")
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewFairLock("a"))
	w := begin(t.Context(), mu)
	awaitHearing(t, rdb, "a", 1)
	proxy.DropDown(true, "subscribe")
	began := time.Now()
	require.NoError(t, hold.Unlock(held))
	held, hold = w.acquired(t)
	require.Less(t, time.Since(began), longestClaim-time.Second, "before the claim was over")
	proxy.Heal()
	require.NoError(t, hold.Unlock(held))
}
