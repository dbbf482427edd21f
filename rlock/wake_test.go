package rlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/lua"
	"github.com/go-rlock/rlock/rlock"
)

const (
	channelOfA = "redisson_lock__channel:{a}"

	// forever is a lease that no test lives to see the end of: what wakes a
	// waiter then is a message, or the 30 s after which one looks again.
	forever = time.Hour
	byTimer = 20 * time.Second
)

func TestWaiterIsWokenByTheMessage(t *testing.T) {
	srv := newServer(t)
	rdb := srv.Client(t)
	opts, refused := refusals()
	a, b := newClient(t, srv, opts).NewLock("a"), newClient(t, srv, opts).NewLock("a")
	var took []time.Duration
	for range 30 {
		held, hold := lock(t, t.Context(), a)
		waiting := lockAsync(t.Context(), b)
		<-refused
		awaitListener(t, rdb, "a")
		unlocked := time.Now()
		require.NoError(t, hold.Unlock(held))
		took = append(took, await(t, waiting, byTimer).Sub(unlocked))
	}
	slices.Sort(took)
	t.Logf("from before Unlock to the grant elsewhere: median %v, longest %v", took[15], took[29])
	require.Less(t, took[15], 2*time.Second)
}

func TestClientsExcludeEachOther(t *testing.T) {
	srv := newServer(t)
	const clients, goroutines, rounds = 3, 30, 5
	var inside atomic.Int64
	counter := 0 // without a mutex: the lock has to do
	var all sync.WaitGroup
	for range clients {
		mu := newClient(t, srv, nil).NewLock("a")
		for range goroutines {
			all.Go(func() {
				for range rounds {
					assert.NoError(t, mu.Do(t.Context(), func(context.Context) error {
						assert.EqualValues(t, 1, inside.Add(1))
						counter++
						inside.Add(-1)
						return nil
					}))
				}
			})
		}
	}
	all.Wait()
	require.Equal(t, clients*goroutines*rounds, counter)
}

// Whoever waits sends nothing but requests for the lock and probes of the subscription. How many, tells
// TestFakeTimeWaitingSendsLittle.
func TestWaitingSendsNothing(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	opts := &rlock.Options{LeaseTime: forever, Identity: rlock.Anonymous()} // see TestFakeTimeRecordsAreCheap
	holder, waiter := newClient(t, srv, opts).NewLock("a"), newClient(t, srv, opts).NewLock("a")
	held, hold := lock(t, t.Context(), holder)
	waiting := lockAsync(t.Context(), waiter)
	awaitHearing(t, srv.Client(t), "a", 1)
	m := srv.Monitor(t)
	defer m.Stop()
	<-time.After(4 * time.Second) // longer than the time between probes
	calls := make(map[string]int)
	for _, c := range m.Commands() {
		switch name := strings.ToLower(c.Args[0]); {
		case name == "hello", name == "client": // a new connection, for the probe
		case name == "publish" && !strings.HasPrefix(c.Args[1], "rlock_channel:"): // maybe in a script
			calls["probe"]++
		case c.Client == "lua", name == "eval" && strings.Contains(c.Args[3], "rlock-probe:"): // of the request, or around the probe
		case name == "evalsha" && slices.Contains(c.Args, "rlock_queue:{a}"):
			calls["ask"]++
		default:
			calls[strings.Join(c.Args, " ")]++
		}
	}
	require.NoError(t, hold.Unlock(held))
	await(t, waiting, byTimer)
	require.ElementsMatch(t, []string{"ask", "probe"}, slices.Collect(maps.Keys(calls)))
}

func TestWaiterIsServedWhenTheHolderIsKilled(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	mu := newClient(t, srv, nil).NewLock("a")
	best := time.Hour
	for range 3 {
		child := redistest.Spawn(t, "holder", srv.Addr(), "a", "3s")
		child.Expect("held ", 10*time.Second)
		waiting := lockAsync(t.Context(), mu)
		awaitListener(t, rdb, "a")
		child.Kill()
		ttl, read := rdb.PTTL(t.Context(), "a").Val(), time.Now()
		stalls := redistest.WatchStalls()
		late := await(t, waiting, ttl+100*time.Millisecond+slack).Sub(read.Add(ttl)) - stalls.Total()
		stalls.Stop()
		t.Logf("%v after the end of the TTL", late)
		best = min(best, late)
	}
	require.Less(t, best, 500*time.Millisecond)
}

// The message of a release that falls into the time without a connection is
// lost, and nobody waits for the TTL all the same.
func TestUnlockWhileThePubSubConnectionIsGone(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	rdb := srv.Client(t)
	opts, refused := refusals()
	a, b := newClient(t, srv, opts).NewLock("a"), newClient(t, srv, opts).NewLock("a")
	var longest time.Duration
	for i := range 200 {
		held, hold := lock(t, t.Context(), a)
		for len(refused) > 0 {
			<-refused
		}
		waiting := lockAsync(t.Context(), b)
		<-refused
		if i%4 != 0 { // every fourth time it is not yet, or still, subscribed
			awaitListener(t, rdb, "a")
		}
		start := time.Now()
		require.NoError(t, rdb.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
		require.NoError(t, hold.Unlock(held))
		longest = max(longest, await(t, waiting, byTimer).Sub(start))
	}
	t.Logf("longest wait over 200 kills: %v", longest)
	require.Less(t, longest, time.Second+slack)
}

func TestSubscribeRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, rule string }{
		{"command", "+@all -subscribe ~* &*"},
		{"channels", "+@all ~* resetchannels"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			args := []any{"acl", "setuser", "waiter", "on", ">secret"}
			for word := range strings.FieldsSeq(tt.rule) {
				args = append(args, word)
			}
			require.NoError(t, srv.Client(t).Do(t.Context(), args...).Err())
			var log logBuffer
			opts, refused := refusals()
			opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
			rdb := srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "waiter", "secret" })
			b := clientOn(t, rdb, opts).NewLock("a")
			a := newClient(t, srv, nil).NewLock("a", rlock.WithLeaseTime(forever))
			for range 2 {
				held, hold := lock(t, t.Context(), a)
				waiting := lockAsync(t.Context(), b)
				for range 5 {
					<-refused
				}
				released := time.Now()
				require.NoError(t, hold.Unlock(held))
				await(t, waiting, byTimer)
				require.Less(t, time.Since(released), 1200*time.Millisecond+slack)
			}
			var said []string
			for _, line := range log.lines() {
				if strings.Contains(line, "subscription refused") {
					said = append(said, line)
				}
			}
			require.Len(t, said, 1, "%v", log.lines())
		})
	}
}

// releaseBeforeSubscription has the lock released between the refused attempt
// and the subscription, so that no message comes.
func releaseBeforeSubscription(t *testing.T, confirmed bool) {
	srv := newServer(t)
	opts, refused := refusals()
	b, p := through(t, srv, opts)
	held, hold := lock(t, t.Context(), newClient(t, srv, opts).NewLock("a"))
	subscribe := p.Hold(func(args []string) bool {
		return netfault.Command("subscribe")(args) && strings.HasPrefix(args[1], "rlock_channel:{a}:")
	})
	waiting := lockAsync(t.Context(), b.NewLock("a"))
	require.NoError(t, subscribe.Wait(t.Context()))
	for range 5 { // by then it has a ticket
		<-refused
	}
	released := time.Now()
	require.NoError(t, hold.Unlock(held))
	if confirmed {
		require.NoError(t, subscribe.Deliver(t.Context()))
	}
	took := await(t, waiting, byTimer).Sub(released)
	t.Logf("served after %v", took)
	require.Less(t, took, 300*time.Millisecond+slack, "the first in line asks every 100 ms until it hears")
	if !confirmed {
		require.NoError(t, subscribe.Deliver(t.Context()))
	}
}

func TestReleaseBeforeTheSubscription(t *testing.T) {
	t.Parallel()
	for _, confirmed := range []bool{true, false} {
		t.Run("confirmed "+strconv.FormatBool(confirmed), func(t *testing.T) {
			t.Parallel()
			releaseBeforeSubscription(t, confirmed)
		})
	}
}

func TestHalfOpenPubSubConnection(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(*netfault.Proxy){
		"nothing comes":     func(p *netfault.Proxy) { p.DropDown(true, "subscribe") },
		"nothing gets away": func(p *netfault.Proxy) { p.DropUp(true, "subscribe"); p.DropDown(true, "subscribe") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := newServer(t)
			opts, refused := refusals()
			b, p := through(t, srv, opts)
			held, hold := lock(t, t.Context(), newClient(t, srv, opts).NewLock("a"))
			waiting := lockAsync(t.Context(), b.NewLock("a"))
			<-refused
			<-refused
			drop(p)
			start := time.Now()
			require.NoError(t, hold.Unlock(held))
			took := await(t, waiting, byTimer).Sub(start)
			t.Logf("noticed after %v", took)
			require.Less(t, took, 6*time.Second+slack, "two probe intervals")
		})
	}
}

// A waiter leaves in the very moment in which it is woken. The next one, in the same client or another, must not sleep on.
func TestLeaverPassesTheWakeUpOn(t *testing.T) {
	const times = 300
	srv := newServer(t)
	opts, refused := refusals()
	a := newClient(t, srv, opts).NewLock("a")
	b := newClient(t, srv, opts).NewLock("a")
	c := newClient(t, srv, opts).NewLock("a")
	left := 0
	for i := range times {
		for len(refused) > 0 {
			<-refused
		}
		held, hold := lock(t, t.Context(), a)
		ctx, cancel := context.WithCancel(t.Context())
		leaver := lockAsync(ctx, b)
		<-refused
		next := b
		if i%3 == 0 {
			next = c
		}
		waiting := lockAsync(t.Context(), next)
		time.AfterFunc(rand.N(1500*time.Microsecond), cancel)
		require.NoError(t, hold.Unlock(held))
		g := <-leaver
		if g.err == nil {
			require.NoError(t, g.hold.Unlock(g.held))
		} else {
			require.ErrorIs(t, g.err, context.Canceled)
			left++
		}
		await(t, waiting, slack) // before it asks again, after 5 s
		cancel()
	}
	t.Logf("%d of %d left without the lock", left, times)
	require.NotZero(t, left)
}

// waitIn waits for the lock in the background, and unlocks it. The error is that of
// either.
func waitIn(ctx context.Context, mu *rlock.Lock) <-chan error {
	done := make(chan error, 1)
	go func() {
		held, hold, err := mu.Lock(ctx)
		if err == nil {
			err = hold.Unlock(held)
		}
		done <- err
	}()
	return done
}

func soon(t *testing.T, done <-chan error, what string) {
	t.Helper()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(slack): // and before anybody asks again, after 5 s
		require.Fail(t, what)
	}
}

// The next goroutine of a client keeps the place of the one that leaves, and is served by
// its ticket. When the last one leaves, the ticket goes as well.
func TestPlaceIsInherited(t *testing.T) {
	srv := newServer(t)
	admin := srv.Client(t)
	held, hold := lock(t, t.Context(), newClient(t, srv, nil).NewLock("lock"))
	mu, other := newClient(t, srv, nil).NewLock("lock"), newClient(t, srv, nil).NewLock("lock")
	ctx, leave := context.WithCancel(t.Context())
	first := waitIn(ctx, mu)
	awaitQueue(t, admin, "lock", 1)
	second := waitIn(t.Context(), mu)
	third := waitIn(t.Context(), other)
	awaitHearing(t, admin, "lock", 2)
	before := queueOf(t, admin, "lock")
	leave()
	require.ErrorIs(t, <-first, context.Canceled)
	time.Sleep(100 * time.Millisecond)
	require.Equal(t, before, queueOf(t, admin, "lock"))
	require.NoError(t, hold.Unlock(held))
	soon(t, second, "who inherited the place is not served")
	soon(t, third, "the one behind is not served")

	held, hold = lock(t, t.Context(), newClient(t, srv, nil).NewLock("lock"))
	ctx, leave = context.WithCancel(t.Context())
	last := waitIn(ctx, mu)
	awaitQueue(t, admin, "lock", 1)
	leave()
	require.ErrorIs(t, <-last, context.Canceled)
	awaitQueue(t, admin, "lock", 0)
	require.NoError(t, hold.Unlock(held))
}

// What a waiter may be told: it does something about each.
func TestHeard(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, admin *redis.Client, owner string) (message string){
		"a wake-up": func(t *testing.T, admin *redis.Client, owner string) string {
			require.NoError(t, admin.Del(t.Context(), "lock").Err())
			return owner
		},
		"the loss of all places": func(t *testing.T, admin *redis.Client, _ string) string {
			require.NoError(t, admin.Del(t.Context(), "lock", lua.QueueOf("lock")).Err())
			return lua.Everybody
		},
		"a grant to nobody": func(t *testing.T, admin *redis.Client, owner string) string {
			client, _, _ := strings.Cut(owner, ":")
			require.NoError(t, admin.Del(t.Context(), "lock").Err())
			require.NoError(t, admin.HSet(t.Context(), "lock", client+":99999", "1").Err())
			require.NoError(t, admin.PExpire(t.Context(), "lock", time.Minute).Err())
			return fmt.Sprintf("%s:99999 %d 6000 0 0", client, admin.Time(t.Context()).Val().UnixMicro())
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			admin := srv.Client(t)
			holder := newClient(t, srv, nil)
			held, hold := lock(t, t.Context(), holder.NewLock("lock"))
			waiter := newClient(t, srv, nil)
			done := waitIn(t.Context(), waiter.NewLock("lock"))
			awaitHearing(t, admin, "lock", 1)
			owner := queueOf(t, admin, "lock")[0]
			client, _, _ := strings.Cut(owner, ":")
			message := happens(t, admin, owner)
			require.EqualValues(t, 1, admin.Publish(t.Context(), lua.GrantChannel("lock", client), message).Val())
			soon(t, done, "it did not listen")
			require.Positive(t, waiter.Stats().Wakeups.Message, "it has asked of its own accord")
			require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
		})
	}
}

// A foreign owner releases the lock and tells nobody but those on its own channel.
func TestForeignRelease(t *testing.T) {
	srv := newServer(t)
	admin := srv.Client(t)
	const foreign = "8743c9c0-0795-4907-87fd-6c719a6b4586:1"
	require.NoError(t, admin.HSet(t.Context(), "lock", foreign, "1").Err())
	require.NoError(t, admin.PExpire(t.Context(), "lock", time.Minute).Err())
	one, two := newClient(t, srv, nil), newClient(t, srv, nil)
	first := waitIn(t.Context(), one.NewLock("lock"))
	awaitHearing(t, admin, "lock", 1)
	second := waitIn(t.Context(), two.NewLock("lock"))
	awaitHearing(t, admin, "lock", 2)
	channel := lua.UnlockChannel("lock")
	redistest.Eventually(t, "both listen", func() bool { return admin.PubSubNumSub(t.Context(), channel).Val()[channel] == 2 })
	require.NoError(t, admin.Del(t.Context(), "lock").Err())
	require.NoError(t, admin.Publish(t.Context(), channel, "0").Err())
	soon(t, first, "the first did not hear it")
	require.Positive(t, one.Stats().Wakeups.Message, "the first has asked of its own accord")
	soon(t, second, "the second is not served")
}
