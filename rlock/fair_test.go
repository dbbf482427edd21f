package rlock_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// The life of a ticket, and how often it is renewed.
const (
	ticketLife  = 6 * time.Second
	ticketRenew = 2 * time.Second
)

func queueOf(tb tester, rdb redis.UniversalClient, name string) []string {
	tb.Helper()
	owners, err := rdb.ZRange(context.Background(), "rlock_fair_queue:{"+name+"}", 0, -1).Result()
	require.NoError(tb, err)
	return owners
}

// awaitQueue returns when so many wait, all of them listening or not.
func awaitQueue(tb testing.TB, rdb redis.UniversalClient, name string, n int) {
	tb.Helper()
	redistest.Eventually(tb, fmt.Sprint(n, " in the queue of ", name), func() bool { return len(queueOf(tb, rdb, name)) == n })
}

// fairScript matches the calls of a script of a fair lock.
func fairScript(name string) netfault.Match {
	var source strings.Builder
	files := []string{"kind", "token", "announce", "fair", name}
	if name == "fair_keep" || name == "fair_release" {
		files = files[1:]
	}
	for _, file := range files {
		text, err := os.ReadFile("../lua/" + file + ".lua")
		if err != nil {
			panic(err)
		}
		source.Write(text)
	}
	sum := sha1.Sum([]byte(source.String()))
	hash := hex.EncodeToString(sum[:])
	return func(args []string) bool { return len(args) > 1 && (args[1] == hash || args[1] == source.String()) }
}

// fairly returns when the server got each call of a script of a fair lock.
func (f *fakeRedis) fairly(name string) (at []time.Duration) {
	match := fairScript(name)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.log {
		if match(r.args) {
			at = append(at, r.at)
		}
	}
	return at
}

// waiting is a Lock that a test has begun.
type waiting struct {
	done chan struct{}
	held context.Context
	hold *rlock.Hold
	err  error
}

func begin(ctx context.Context, mu *rlock.Lock) *waiting {
	w := &waiting{done: make(chan struct{})}
	go func() { // ends with ctx or the lock
		w.held, w.hold, w.err = mu.Lock(ctx)
		close(w.done)
	}()
	return w
}

func (w *waiting) acquired(tb testing.TB) (context.Context, *rlock.Hold) {
	tb.Helper()
	select {
	case <-w.done:
	case <-time.After(20 * time.Second):
		require.FailNow(tb, "not acquired")
	}
	require.NoError(tb, w.err)
	return w.held, w.hold
}

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
	keys, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Empty(t, keys)
}

// A hand-over is the release, and nothing that the new holder sends.
func TestFairHandoverIsOneCommand(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	here, there := newClient(t, srv, nil), newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), here.NewFairLock("a", rlock.WithFencing()))
	w := begin(t.Context(), there.NewFairLock("a", rlock.WithFencing()))
	awaitQueue(t, rdb, "a", 1)
	redistest.Eventually(t, "the waiter listens", func() bool {
		channels, err := rdb.PubSubChannels(t.Context(), "rlock_fair_channel:*").Result()
		require.NoError(t, err)
		return len(channels) > 0
	})
	time.Sleep(50 * time.Millisecond) // its second attempt
	commands := sent(t, srv, func() {
		require.NoError(t, hold.Unlock(held))
		w.acquired(t)
	})
	require.Equal(t, []string{"evalsha"}, commands[:1])
	require.NotContains(t, commands[1:], "evalsha", "unless it is the first renewal: see below")
	next, nextHold := w.acquired(t)
	require.Greater(t, nextHold.Token(), hold.Token())
	ttl := rdb.PTTL(t.Context(), "a").Val()
	require.LessOrEqual(t, ttl, ticketLife, "a claim")
	require.True(t, time.Until(nextHold.Until()) < ttl)
	redistest.Eventually(t, "the first renewal makes it the full lease", func() bool {
		return rdb.PTTL(t.Context(), "a").Val() > ticketLife
	})
	redistest.Eventually(t, "and the holder knows", func() bool {
		return time.Until(nextHold.Until()) > ticketLife
	})
	require.NoError(t, next.Err())
	require.NoError(t, nextHold.Unlock(next))
}

// Unlock and the next Lock are all that a hand-over costs, with few waiters and
// with many.
func TestFairCommandsPerHandover(t *testing.T) {
	srv := newServer(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	for _, waiters := range []int{8, 64} {
		t.Run(strconv.Itoa(waiters), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			var mutex sync.Mutex
			taken := make([]int, waiters)
			total := func() (n int) {
				mutex.Lock()
				defer mutex.Unlock()
				for _, k := range taken {
					n += k
				}
				return n
			}
			for i := range waiters {
				wg.Go(func() {
					for {
						held, hold, err := mu.Lock(ctx)
						if err != nil {
							return
						}
						mutex.Lock()
						taken[i]++
						mutex.Unlock()
						if err := hold.Unlock(held); err != nil {
							t.Error(err)
						}
					}
				})
			}
			redistest.Eventually(t, "everybody had a turn", func() bool { return total() > 3*waiters })
			before, first := total(), srv.CommandCalls(t)["evalsha"]
			redistest.Eventually(t, "everybody had ten turns", func() bool { return total() > before+10*waiters })
			last, after := srv.CommandCalls(t)["evalsha"], total()
			cancel()
			wg.Wait()
			// One of the two figures is always taken a little earlier than the other.
			require.LessOrEqual(t, float64(last-first)/float64(after-before), 2.1+float64(2)/float64(10*waiters))
			for _, k := range taken {
				require.InDelta(t, taken[0], k, 2, "%v", taken)
			}
		})
	}
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
	require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrLeaseLost)

	held, hold, err = newClient(t, srv, nil).NewFairLock("a").TryLock(t.Context())
	require.NoError(t, err)
	require.NoError(t, hold.Unlock(held))
}

func TestFairLeavingTakesTheTicketOut(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	mu := c.NewFairLock("a")
	held, hold := lock(t, t.Context(), mu)
	ctx, cancel := context.WithCancel(t.Context())
	leaver := begin(ctx, mu)
	awaitQueue(t, rdb, "a", 1)
	stayer := begin(t.Context(), mu)
	awaitQueue(t, rdb, "a", 2)
	cancel()
	<-leaver.done
	require.ErrorIs(t, leaver.err, rlock.ErrNotAcquired)
	require.ErrorIs(t, leaver.err, context.Canceled)
	awaitQueue(t, rdb, "a", 1)
	require.NoError(t, hold.Unlock(held))
	held, hold = stayer.acquired(t)
	require.NoError(t, hold.Unlock(held))
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
		require.Less(t, time.Since(began), ticketLife/2, "it did not wait for the end of a claim")
		require.NoError(t, hold.Unlock(held))
		wg.Wait()
	}
}

// Messages are lost, but the subscription seems sound: the renewal of the ticket
// finds out.
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
	redistest.Eventually(t, "the waiter listens", func() bool {
		channels, err := rdb.PubSubChannels(t.Context(), "rlock_fair_channel:*").Result()
		require.NoError(t, err)
		return len(channels) > 0
	})
	time.Sleep(50 * time.Millisecond)
	proxy.DropDown(true, "subscribe")
	began := time.Now()
	require.NoError(t, hold.Unlock(held))
	held, hold = w.acquired(t)
	require.Less(t, time.Since(began), ticketLife-time.Second, "before the claim was over")
	proxy.Heal()
	require.NoError(t, hold.Unlock(held))
}

// A process dies with all its waiters, the first in the queue among them. They
// cost one claim together.
func TestFairDeadProcess(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	held, hold := lock(t, t.Context(), mu)
	child := redistest.Spawn(t, "fair", srv.Addr(), "a", "5")
	child.Expect("waiting", 10*time.Second)
	awaitQueue(t, rdb, "a", 5)
	w := begin(t.Context(), mu)
	awaitQueue(t, rdb, "a", 6)
	child.Kill()
	began := time.Now()
	require.NoError(t, hold.Unlock(held))
	held, hold = w.acquired(t)
	require.Less(t, time.Since(began), 2*ticketLife, "not one claim each")
	require.NoError(t, hold.Unlock(held))
}

// fairWaiters is a process with goroutines that wait for a fair lock.
func fairWaiters(args []string) {
	rdb := redis.NewClient(&redis.Options{Addr: args[0]})
	c, err := rlock.New(rdb, nil)
	if err != nil {
		panic(err)
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		panic(err)
	}
	for range n {
		go func() { // until the process is killed
			if _, _, err := c.NewFairLock(args[1]).Lock(context.Background()); err != nil {
				panic(err)
			}
		}()
	}
	fmt.Println("waiting")
	bufio.NewScanner(os.Stdin).Scan()
}

func TestFairOptions(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	c := newClient(t, srv, nil)
	held, hold := lock(t, t.Context(), c.NewFairLock("a"))
	fixed := begin(t.Context(), c.NewFairLock("a", rlock.WithoutRenewal(), rlock.WithLeaseTime(20*time.Second)))
	awaitQueue(t, rdb, "a", 1)
	short := begin(t.Context(), c.NewFairLock("a", rlock.WithLeaseTime(time.Second)))
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
	require.LessOrEqual(t, rdb.PTTL(t.Context(), "a").Val(), time.Second)
	for until := hold.Until(); !hold.Until().After(until.Add(time.Second)); time.Sleep(10 * time.Millisecond) {
		require.NoError(t, held.Err(), "it is renewed")
	}
	require.NoError(t, hold.Unlock(held))
}

func TestFairForceUnlock(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	_, hold := lock(t, t.Context(), mu)
	w := begin(t.Context(), mu)
	awaitQueue(t, rdb, "a", 1)
	was, err := mu.ForceUnlock(t.Context())
	require.NoError(t, err)
	require.True(t, was)
	held, next := w.acquired(t)
	require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrLeaseLost)
	require.NoError(t, next.Unlock(held))

	held, hold = lock(t, t.Context(), mu)
	done, err := mu.UnlockOwner(t.Context(), "somebody:else")
	require.NoError(t, err)
	require.False(t, done)
	require.NoError(t, hold.Unlock(held))
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
	require.EqualValues(t, 1, rdb.DBSize(t.Context()).Val())
}

func TestFairBadInput(t *testing.T) {
	t.Parallel()
	c := newClient(t, newServer(t), nil)
	for _, mu := range []*rlock.Lock{
		c.NewFairLock(""), c.NewFairLock("{a"), c.NewFairLock("a", rlock.WithLeaseTime(time.Millisecond)),
		c.NewFairLock("a", rlock.WithHandoff(10, time.Second)),
	} {
		_, _, err := mu.Lock(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		_, _, err = mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		_, err = mu.Inspect(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption)
		require.ErrorIs(t, mu.Do(t.Context(), nil), rlock.ErrInvalidOption)
	}
}

// Replies are lost at random, also those of keep-alives and releases.
func TestFairWithLostReplies(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	proxy := netfault.New(t, srv.Addr())
	far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	c := clientOn(t, far, nil)
	proxy.CutRandom(0.2, 1, func(args []string) bool { return strings.HasPrefix(strings.ToLower(args[0]), "eval") })
	var wg sync.WaitGroup
	inside := make(chan struct{}, 1)
	for range 4 {
		wg.Go(func() {
			mu := c.NewFairLock("a", rlock.WithFencing())
			for range 40 {
				held, hold, err := mu.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case inside <- struct{}{}:
				default:
					t.Error("two inside")
				}
				if held.Err() != nil {
					t.Error(context.Cause(held))
				}
				<-inside
				if err := hold.Unlock(held); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	proxy.Heal()
	require.NoError(t, closeSoon(c))
	rdb := srv.Client(t)
	redistest.Eventually(t, "nothing is left but the counter", func() bool {
		return rdb.DBSize(t.Context()).Val() == 1
	})
}

// Goroutines and subscriptions do not grow with the waiters, but for their own.
func TestFairManyWaiters(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewFairLock("a")
	held, hold := lock(t, t.Context(), mu)
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	const waiters = 300
	all := make([]*waiting, waiters)
	for i := range all {
		all[i] = begin(ctx, mu)
	}
	awaitQueue(t, rdb, "a", waiters)
	redistest.Eventually(t, "they rest", func() bool { return runtime.NumGoroutine() < before+waiters+10 })
	channels, err := rdb.PubSubChannels(t.Context(), "rlock_fair_channel:*").Result()
	require.NoError(t, err)
	require.Len(t, channels, 1)
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

// Who waits long says so in time, together with the others, and nothing else.
func TestFakeTimeFairTicketsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewFairLock("a")
		held, hold := lock(t, t.Context(), mu)
		ctx, cancel := context.WithCancel(t.Context())
		waiters := []*waiting{begin(ctx, mu), begin(ctx, mu), begin(ctx, mu)}
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		asked := slices.DeleteFunc(f.fairly("fair_acquire"), func(at time.Duration) bool { return at == 0 })
		require.LessOrEqual(t, len(asked), 3*3, "each asks every half a minute, or when the lease that it saw was over: %v", asked)
		kept := f.fairly("fair_keep")
		require.InDelta(t, 3*30, len(kept), 9)
		heard := slices.Sorted(slices.Values(append(kept, asked...)))
		for _, pause := range pauses(heard) {
			require.LessOrEqual(t, pause, ticketRenew+ticketLife/60)
		}
		cancel()
		for _, w := range waiters {
			<-w.done
			require.ErrorIs(t, w.err, context.Canceled)
		}
		require.NoError(t, hold.Unlock(held))
		time.Sleep(2 * ticketLife)
		require.Empty(t, f.Keys())
	})
}

// The holder dies.
func TestFakeTimeFairDeadHolder(t *testing.T) {
	for _, queue := range []int{1, 3} {
		t.Run(strconv.Itoa(queue), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeRedis(t)
				mu := f.client(t, nil).NewFairLock("a")
				_, err := f.rdb.HSet(t.Context(), "a", "dead:1", 1).Result()
				require.NoError(t, err)
				require.NoError(t, f.rdb.PExpire(t.Context(), "a", 25*time.Second).Err())
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

// The one who was first when the holder died is not there any more: somebody's
// ticket is renewed within 2 s.
func TestFakeTimeFairDeadHolderAndWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		mu := f.client(t, nil).NewFairLock("a")
		require.NoError(t, f.rdb.HSet(t.Context(), "a", "dead:1", 1).Err())
		require.NoError(t, f.rdb.PExpire(t.Context(), "a", 25*time.Second).Err())
		ctx, cancel := context.WithCancel(t.Context())
		first := begin(ctx, mu)
		synctest.Wait()
		next := begin(t.Context(), mu)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		cancel()
		<-first.done
		<-next.done
		require.NoError(t, next.err)
		require.Greater(t, f.now(), 25*time.Second)
		require.LessOrEqual(t, f.now(), 25*time.Second+ticketRenew)
		require.NoError(t, next.hold.Unlock(next.held))
	})
}

// Without subscriptions it works as well, only slower.
func TestFakeTimeFairDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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

// The server is away for longer than a ticket lives. Nobody was there to take the
// place, so it is kept.
func TestFakeTimeFairServerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c := f.client(t, nil)
		require.NoError(t, f.rdb.HSet(t.Context(), "a", "other:1", 1).Err())
		require.NoError(t, f.rdb.PExpire(t.Context(), "a", time.Minute).Err())
		w := begin(t.Context(), c.NewFairLock("a"))
		synctest.Wait()
		queue := queueOf(t, f.rdb, "a")
		second := begin(t.Context(), c.NewFairLock("a"))
		time.Sleep(10 * time.Second)
		f.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(10 * time.Second)
		f.heal()
		time.Sleep(10 * time.Second)
		now := queueOf(t, f.rdb, "a")
		require.Len(t, now, 2)
		require.Equal(t, queue[0], now[0])
		<-w.done
		require.NoError(t, w.err)
		require.NoError(t, w.hold.Unlock(w.held))
		<-second.done
		require.NoError(t, second.err)
		require.NoError(t, second.hold.Unlock(second.held))
	})
}

// A message is not trusted that grants what the newest answer does not confirm: it
// is older than the place in the queue, or that answer is too old.
func TestFakeTimeFairStaleMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeRedis(t)
		require.NoError(t, f.rdb.HSet(t.Context(), "a", "other:1", 1).Err())
		require.NoError(t, f.rdb.PExpire(t.Context(), "a", time.Hour).Err())
		w := begin(t.Context(), f.client(t, nil).NewFairLock("a"))
		synctest.Wait()
		owner := queueOf(t, f.rdb, "a")[0]
		client, _, _ := strings.Cut(owner, ":")
		now, err := f.rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		for _, message := range []string{
			owner, owner + " 1 6000 0", owner + " x 6000 0",
			fmt.Sprint(owner, " ", now.Add(-time.Microsecond).UnixMicro(), " 6000 0"),
			fmt.Sprint(owner, " ", now.Add(time.Second).UnixMicro(), " 10 0"),
		} {
			time.Sleep(20 * time.Millisecond)
			before := len(f.fairly("fair_acquire"))
			n, err := f.rdb.Publish(t.Context(), "rlock_fair_channel:{a}:"+client, message).Result()
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			synctest.Wait()
			require.Len(t, f.fairly("fair_acquire"), before+1, "it asks: %s", message)
			require.Equal(t, []string{owner}, queueOf(t, f.rdb, "a"))
		}
		require.NoError(t, f.rdb.Del(t.Context(), "a").Err())
		<-w.done
		require.NoError(t, w.err)
		require.NoError(t, w.hold.Unlock(w.held))
	})
}

func ExampleClient_NewFairLock() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	client, err := rlock.New(rdb, nil)
	if err != nil {
		panic(err)
	}
	defer func() { _ = client.Close(context.Background()) }()

	mu := client.NewFairLock("printer")
	err = mu.Do(context.Background(), func(context.Context) error {
		fmt.Println("printing; whoever waits is served in the order of arrival")
		return nil
	})
	fmt.Println(err)
	// Output:
	// printing; whoever waits is served in the order of arrival
	// <nil>
}
