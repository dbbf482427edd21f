package rlock_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// Whoever is granted the lock by a message sends nothing, and relies on it for no longer
// than the server does.
func TestFakeTimeGrantByMessage(t *testing.T) {
	for _, kind := range []string{"plain", "fair"} {
		for _, fencing := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, " fenced ", fencing), func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					f := newFakeRedis(t)
					f.teach(t)
					var opts []rlock.LockOption
					if fencing {
						opts = append(opts, rlock.WithFencing())
					}
					held, hold := lock(t, t.Context(), lockOf(f.client(t, nil), kind, opts...))
					w := f.row(t, lockOf(f.client(t, nil), kind, opts...))[0]
					time.Sleep(42 * time.Second)
					synctest.Wait()
					asked, token := len(f.asked()), hold.Token()
					require.NoError(t, hold.Unlock(held))
					next, nextHold := w.acquired(t)
					require.Len(t, f.asked(), asked)
					require.Equal(t, fencing, nextHold.Token() > token)

					ttl := f.TTL("a")
					require.Equal(t, longestClaim, ttl)
					until, guard := time.Until(nextHold.Until()), ttl/100+2*time.Millisecond
					require.LessOrEqual(t, until, ttl-guard)
					require.Greater(t, until, ttl-guard-keepAlive/50)
					time.Sleep(4 * time.Second)
					require.Greater(t, f.TTL("a"), 2*longestClaim, "the first renewal makes it the full lease")
					require.Greater(t, time.Until(nextHold.Until()), 2*longestClaim)
					time.Sleep(time.Minute)
					require.NoError(t, next.Err())
					require.NoError(t, nextHold.Unlock(next))
				})
			})
		}
	}
}

// What a message cannot give is asked for: the whole of a fixed lease; a token, if the
// lock was released by somebody without a counter.
func TestFakeTimeGrantIsConfirmed(t *testing.T) {
	for name, opts := range map[string][]rlock.LockOption{
		"fixed": {rlock.WithoutRenewal(), rlock.WithLeaseTime(20 * time.Second)}, "fenced": {rlock.WithFencing()},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				f.holder("a", time.Hour)
				w := f.row(t, f.client(t, nil).NewLock("a", opts...))[0]
				asked := len(f.asked())
				f.release(t, somebody)
				held, hold := w.acquired(t)
				require.Len(t, f.asked(), asked+1)
				require.Greater(t, time.Until(hold.Until()), 15*time.Second)
				require.Equal(t, name == "fenced", hold.Token() > 0)
				require.NoError(t, hold.Unlock(held))
				require.Zero(t, f.now())
			})
		})
	}
}

// After a lapse the server grants the lock for a moment only, to find out whether anybody is there.
// The waiter says so before it takes the lock.
func TestFakeTimeCallIsAnswered(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		f.holder("a", time.Hour)
		w := f.row(t, f.client(t, nil).NewLock("a"))[0]
		owner := queueOf(t, f.rdb, "a")[0]
		asked := len(f.asked())
		time.Sleep(20 * time.Millisecond)
		message := strings.Replace(f.grantTo(owner, 0, 0), fmt.Sprint(" ", longestClaim.Milliseconds(), " "), " 400 ", 1)
		require.Equal(t, 1, f.Publish("rlock_channel:{a}:"+clientOf(owner), message))
		synctest.Wait()
		require.Len(t, f.asked(), asked+1)
		require.Equal(t, []string{owner}, queueOf(t, f.rdb, "a"), "it was not true")
		f.release(t, somebody)
		finish(t, w)
	})
}

// A message is not trusted that grants what the newest answer does not confirm: it
// is older than the place in the queue, or that answer is too old, or it makes no sense.
func TestFakeTimeStaleMessage(t *testing.T) {
	for _, kind := range []string{"plain", "fair"} {
		t.Run(kind, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T) {
				f := newFakeRedis(t)
				f.teach(t)
				f.holder("a", time.Hour)
				w := f.row(t, lockOf(f.client(t, nil), kind))[0]
				owner := queueOf(t, f.rdb, "a")[0]
				for _, message := range []string{
					owner, owner + " 1 6000 0 0", f.grantTo(owner, time.Second, 0),
					f.grantTo(owner, -time.Hour, 0),
				} {
					time.Sleep(20 * time.Millisecond)
					before := len(f.asked())
					require.Equal(t, 1, f.Publish("rlock_channel:{a}:"+clientOf(owner), message))
					synctest.Wait()
					require.Len(t, f.asked(), before+1, "it asks: %s", message)
					require.Equal(t, []string{owner}, queueOf(t, f.rdb, "a"))
				}
				began := f.now()
				f.release(t, somebody)
				finish(t, w)
				require.Equal(t, began, f.now())
			})
		})
	}
}

// Whatever else comes does no harm.
func TestFakeTimeJunkMessages(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.holder("a", time.Hour)
		w := f.row(t, f.client(t, nil).NewLock("a"))[0]
		owner := queueOf(t, f.rdb, "a")[0]
		for _, message := range []string{
			"", " ", "0", "junk", "\x00\xff", owner + " x 6000 0 0", owner + " 1 6000", owner + " 99999999999999999999 6000 0 0",
			owner + " 1 -6000 0 0", "nobody:1 1 6000 0 0", "* 1 2 3 4",
		} {
			f.Publish("rlock_channel:{a}:"+clientOf(owner), message)
			synctest.Wait()
			require.Equal(t, []string{owner}, queueOf(t, f.rdb, "a"), "%q", message)
		}
		f.release(t, somebody)
		finish(t, w)
		synctest.Wait()
		require.Empty(t, f.Keys())
	})
}

// A process dies with all its waiters, the first in the queue among them. Nobody is there
// to hear that the lock is theirs, so the release goes to the next in the same moment.
func TestDeadNextInLine(t *testing.T) {
	t.Parallel()
	for kind, tickets := range map[string]int{"plain": 1, "fair": 5} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			rdb := srv.Client(t)
			deadNextInLine(t, srv, kind, tickets, srv.Addr(), func() redis.UniversalClient { return srv.Client(t) }, func(ctx context.Context) []string {
				return rdb.PubSubChannels(ctx, "rlock_channel:*").Val()
			})
		})
		t.Run(kind+", sharded", func(t *testing.T) {
			redistest.Since7(t, "sharded channels")
			t.Parallel()
			cluster := redistest.StartCluster(t, 3, 0)
			owner := cluster.Owner(cluster.Slot("a"))
			rdb := owner.Client(t)
			deadNextInLine(t, owner, kind, tickets, "cluster "+owner.Addr(), func() redis.UniversalClient { return cluster.Client(t) }, func(ctx context.Context) []string {
				return rdb.PubSubShardChannels(ctx, "rlock_channel:*").Val()
			})
		})
	}
}

// deadNextInLine kills waiters with so many tickets for a lock that srv has. channels are
// those on which clients wait for messages.
func deadNextInLine(t *testing.T, srv *redistest.Server, kind string, tickets int, address string, connect func() redis.UniversalClient, channels func(context.Context) []string) {
	teach(t, srv)
	rdb := connect()
	held, hold := lock(t, t.Context(), lockOf(clientOn(t, connect(), nil), kind))
	child := redistest.Spawn(t, "waiters", address, kind, "5")
	child.Expect("waiting", 10*time.Second)
	awaitHearing(t, rdb, "a", tickets)
	w := begin(t.Context(), lockOf(clientOn(t, connect(), nil), kind))
	awaitHearing(t, rdb, "a", tickets+1)
	require.Len(t, channels(t.Context()), 2)
	child.Kill()
	redistest.Eventually(t, "its connections are gone", func() bool { return len(channels(t.Context())) == 1 })
	m := srv.Monitor(t)
	began := time.Now()
	require.NoError(t, hold.Unlock(held))
	held, hold = w.acquired(t)
	t.Logf("served after %v", time.Since(began))
	var scripts []string
	for _, c := range m.Commands() {
		if c.Client != "lua" && strings.HasPrefix(strings.ToLower(c.Args[0]), "eval") {
			scripts = append(scripts, c.Args[0])
		}
	}
	m.Stop()
	require.Less(t, time.Since(began), longestClaim-time.Second)
	require.Len(t, scripts, 1, "the release: %v", scripts)
	require.NoError(t, hold.Unlock(held))
	requireNothing(t, rdb, "a")
}

// A waiter whose client has no subscription yet cannot be told from one that is dead: it is
// granted the lock, and if it is dead that costs one claim.
func TestDeadBeforeItHears(t *testing.T) {
	redistest.Long(t, "waits for a claim to end")
	t.Parallel()
	for _, kind := range []string{"plain", "fair"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			rdb := srv.Client(t)
			proxy := netfault.New(t, srv.Addr())
			far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
			t.Cleanup(func() { require.NoError(t, far.Close()) })
			held, hold := lock(t, t.Context(), lockOf(newClient(t, srv, nil), kind))
			proxy.DropUp(true, "subscribe")
			dead := begin(t.Context(), lockOf(clientOn(t, far, nil), kind))
			awaitQueue(t, rdb, "a", 1)
			next := begin(t.Context(), lockOf(newClient(t, srv, nil), kind))
			awaitQueue(t, rdb, "a", 2)
			proxy.Refuse(true) // as a process that has ended: nothing comes from it any more
			proxy.CutAll()
			began := time.Now()
			require.NoError(t, hold.Unlock(held))
			held, hold = next.acquired(t)
			t.Logf("served after %v", time.Since(began))
			require.Less(t, time.Since(began), longestClaim+3*time.Second)
			proxy.Heal()
			require.NoError(t, hold.Unlock(held))
			held, hold = dead.acquired(t)
			require.NoError(t, hold.Unlock(held))
		})
	}
}

// Clients stand still one behind the other, as the pods of a machine that is frozen. They cost two claims at
// most, and not one each. On a busy machine a living client may be late as well, and is then served after
// the others: the tests of lapses in package lua show who keeps a place.
func TestFrozenClientsInFront(t *testing.T) {
	redistest.Long(t, "waits for a claim to end; not beside other tests, as a client that stands still itself is late for its claim")
	const n = 10
	for name, tt := range map[string]struct {
		frozen []string // in turn
		lives  string
	}{
		"plain":               {[]string{"plain"}, "plain"},
		"fair":                {[]string{"fair"}, "fair"},
		"writers":             {[]string{"writer"}, "writer"},
		"readers and writers": {[]string{"writer", "reader"}, "writer"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			rdb := srv.Client(t)
			proxy := netfault.New(t, srv.Addr())
			held, hold := lock(t, t.Context(), lockOf(newClient(t, srv, nil), tt.lives))
			var all []*waiting
			wait := func(c *rlock.Client, kind string) {
				all = append(all, begin(t.Context(), lockOf(c, kind)))
				awaitHearing(t, rdb, "a", len(all))
			}
			for i := range n {
				far := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
				t.Cleanup(func() { require.NoError(t, far.Close()) })
				wait(clientOn(t, far, nil), tt.frozen[i%len(tt.frozen)])
			}
			for range 3 {
				wait(newClient(t, srv, nil), tt.lives)
			}
			proxy.DropUp(true)
			proxy.DropDown(true)
			began := time.Now()
			require.NoError(t, hold.Unlock(held))
			serve := func(waiters []*waiting) {
				served := make(chan *waiting, len(waiters))
				for _, w := range waiters {
					go func() { <-w.done; served <- w }()
				}
				for range waiters {
					select {
					case w := <-served:
						t.Logf("served after %v", time.Since(began))
						held, hold = w.acquired(t)
						require.NoError(t, hold.Unlock(held))
					case <-time.After(20 * time.Second): // n claims take longer
						require.FailNow(t, "not acquired")
					}
				}
			}
			serve(all[n:])
			proxy.Heal()
			serve(all[:n])
			requireNothing(t, rdb, "a")
		})
	}
}

// waiters is a process with goroutines that wait for a lock.
func waiters(args []string) {
	rdb := redis.UniversalClient(redis.NewClient(&redis.Options{Addr: args[0]}))
	if node, ok := strings.CutPrefix(args[0], "cluster "); ok {
		rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{node}})
	}
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
			if _, _, err := lockOf(c, args[1]).Lock(context.Background()); err != nil {
				panic(err)
			}
		}()
	}
	fmt.Println("waiting")
	bufio.NewScanner(os.Stdin).Scan()
}

// The server grants the lock to a ticket whose owner has left: a late request. The client
// passes it on, and gives back the tokens that were reserved for that owner.
func TestFakeTimeTokensOfALateTicket(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.teach(t)
		held, hold := lock(t, t.Context(), f.client(t, nil).NewFairLock("a", rlock.WithFencing()))
		mu := f.client(t, nil).NewFairLock("a", rlock.WithFencing())
		ctx, leave := context.WithCancel(t.Context())
		gone := begin(ctx, mu)
		synctest.Wait()
		w := begin(t.Context(), mu)
		synctest.Wait()
		first := f.rdb.ZRangeWithScores(t.Context(), "rlock_queue:{a}", 0, 0).Val()[0]
		leave()
		<-gone.done
		synctest.Wait()
		require.Len(t, tickets(t, f.rdb, "a"), 1)
		require.NoError(t, f.rdb.ZAdd(t.Context(), "rlock_queue:{a}", first).Err())
		require.NoError(t, hold.Unlock(held))
		held, next := w.acquired(t)
		require.Equal(t, hold.Token()+2, next.Token(), "no time has passed")
		require.NoError(t, next.Unlock(held))
	})
}

// A request that the server has surely not executed leaves no ticket, and so nothing that
// Close would have to wait for.
func TestFakeTimeNothingIsLeftByWhatWasNotExecuted(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		c, err := rlock.New(f.rdb, &rlock.Options{Identity: rlock.Anonymous()})
		require.NoError(t, err)
		f.SetError("READONLY You can't write against a read only replica.")
		_, _, err = c.NewFairLock("a").TryLockFor(t.Context(), time.Second)
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		closing := time.Now()
		require.NoError(t, c.Close(t.Context()))
		require.Equal(t, closing, time.Now())
	})
}

// Clients that wait for a lock probe their subscriptions the more seldom the more of them there
// are: together 400 times a second, but each five times at most, and once in 2 s at least; once in 10 s if
// 256 tickets are before that of the client.
func TestFakeTimeProbesByTheLengthOfTheQueue(t *testing.T) {
	for waiters, want := range map[int]struct{ least, most, later int }{1: {7, 11, 12}, 200: {3, 6, 11}, 256: {2, 5, 10}, 257: {1, 2, 2}, 1000: {1, 2, 2}} {
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			f.holder("a", time.Hour)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			crowd := f.client(t, nil).NewFairLock("a") // each of its calls has a ticket
			for range waiters - 1 {
				go crowd.Lock(ctx)
			}
			time.Sleep(time.Minute)
			came := f.now()
			go f.client(t, nil).NewFairLock("a").Lock(ctx)
			newest := func() int { // the probes of the newest client
				probes, first := make(map[string]int), make(map[string]bool)
				f.mu.Lock()
				defer f.mu.Unlock()
				for _, r := range f.log {
					if r.args[0] == "publish" && strings.Contains(r.args[1], "rlock-probe:") {
						first[r.args[1]] = first[r.args[1]] || r.at < came
						probes[r.args[1]]++
					}
				}
				maps.DeleteFunc(probes, func(channel string, _ int) bool { return first[channel] })
				return slices.Max(slices.Collect(maps.Values(probes)))
			}
			time.Sleep(2 * time.Second)
			n := newest()
			require.LessOrEqual(t, n, want.most, "%d waiters", waiters)
			require.GreaterOrEqual(t, n, want.least, "%d waiters", waiters)
			time.Sleep(20 * time.Second)
			require.InDelta(t, want.later, newest()-n, 1, "%d waiters", waiters)
			cancel()
			synctest.Wait()
		})
	}
}

// Whoever waits sends a request after one, two, and four seconds, and two probes in a second, five at first.
func TestFakeTimeWaitingSendsLittle(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		f := newFakeRedis(t)
		f.holder("a", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.client(t, nil).NewLock("a").Lock(ctx)
		time.Sleep(900 * time.Millisecond) // it is in the queue
		began := f.now()
		time.Sleep(4 * time.Second)
		asks, probes := 0, 0
		f.mu.Lock()
		for _, r := range f.log {
			switch {
			case r.at < began:
			case r.args[0] == "publish" && strings.Contains(r.args[1], "rlock-probe:"):
				probes++
			case r.args[0] == "evalsha" && slices.Contains(r.args, "rlock_queue:{a}"):
				asks++
			}
		}
		f.mu.Unlock()
		require.InDelta(t, 2, asks, 1)
		require.InDelta(t, 6, probes, 2)
		cancel()
		synctest.Wait()
	})
}

// One call fails and leaves, while the others of its client have their tickets and wait. They
// ask again after 5 s, and the server answers: the old failure says nothing about them.
func TestFakeTimeAFailureOfAnotherCall(t *testing.T) {
	for range 10 { // when they ask is random
		redistest.Bubble(t, func(t *testing.T) {
			f := newFakeRedis(t)
			f.teach(t)
			f.holder("a", time.Hour)
			mu := f.client(t, nil).NewFairLock("a", rlock.WithLeaseTime(3*time.Second))
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					_, _, err := mu.TryLockFor(t.Context(), 20*time.Second)
					assert.NotErrorIs(t, err, rlock.ErrUnavailable)
					assert.ErrorIs(t, err, rlock.ErrNotAcquired)
				})
				synctest.Wait()
			}
			f.SetError("LOADING Redis is loading the dataset in memory")
			_, _, err := mu.TryLockFor(t.Context(), 50*time.Millisecond)
			require.ErrorIs(t, err, rlock.ErrUnavailable)
			f.SetError("")
			all.Wait()
		})
	}
}
