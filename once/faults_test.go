package once_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/once"
	"github.com/go-rlock/rlock/rlock"
)

// unhurried is a lease with which a single attempt has two seconds: a loaded machine takes some of that.
const unhurried = time.Minute

// nth matches the nth script from now on.
func nth(n int64) netfault.Match {
	var seen atomic.Int64
	return func(args []string) bool {
		return strings.HasPrefix(strings.ToLower(args[0]), "eval") && seen.Add(1) == n
	}
}

// calm lets the client of a group find its server slow. Then a request that is late on a loaded machine does not go out once
// more by another connection in the next second, and does not change the numbers of the requests.
func calm(t testing.TB, proxy *netfault.Proxy, g *once.Group) {
	proxy.Delay(400*time.Millisecond, 0)
	require.NoError(t, g.Forget(t.Context(), "slow"))
	proxy.Delay(0, 0)
}

// warm lets the server get to know the scripts, so that each of them is one request.
func warm(t testing.TB, s *redistest.Server) {
	g := once.New(host(t, s.Addr()), once.Options{})
	_, err := g.Do(t.Context(), "warm", gives(""))
	require.NoError(t, err)
	redistest.Eventually(t, "the lock is free", func() bool { return s.Client(t).Exists(context.Background(), "warm").Val() == 0 })
	run, _, err := g.Begin(t.Context(), "warm to fail", "")
	require.NoError(t, err)
	require.NoError(t, run.Fail(t.Context()))
}

// The lock is released behind the caller's back: its last request has no answer yet when Do returns.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := netfault.New(t, s.Addr())
	g := once.New(host(t, proxy.Addr()), once.Options{Lease: unhurried})
	warm(t, s)
	calm(t, proxy, g)
	m := s.Monitor(t)
	requests := func() (n int) {
		for _, c := range m.Commands() {
			if c.Client != "lua" && strings.HasPrefix(strings.ToLower(c.Args[0]), "eval") { // a new connection introduces itself
				n++
			}
		}
		return n
	}
	held := proxy.Hold(nth(5))
	_, err := g.Do(t.Context(), "x", gives("result"))
	require.NoError(t, err)
	require.Equal(t, 4, requests(), "first")
	require.NoError(t, held.Wait(t.Context()))
	require.NoError(t, held.Deliver(t.Context()))
	require.Equal(t, 1, requests(), "the Unlock")
	_, err = g.Do(t.Context(), "x", gives("never"))
	require.NoError(t, err)
	require.Equal(t, 1, requests(), "replayed")
	require.Zero(t, s.Client(t).Exists(t.Context(), "x").Val())
}

// Each request in turn has no reply, or is executed once more when everything is over.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	warm(t, s)
	for n := int64(1); n <= 5; n++ {
		t.Run(strconv.FormatInt(n, 10), func(t *testing.T) {
			proxy := netfault.New(t, s.Addr())
			a, b := once.New(host(t, proxy.Addr()), once.Options{Strict: true, Lease: unhurried}), once.New(host(t, s.Addr()), once.Options{Strict: true, Lease: unhurried})
			name := "lost " + strconv.FormatInt(n, 10)
			ran := 0
			proxy.CutReplies(1, nth(n))
			value, err := a.Do(t.Context(), name, func(context.Context) ([]byte, error) { ran++; return []byte("result"), nil })
			require.NoError(t, err)
			require.Equal(t, "result", string(value))
			require.Equal(t, 1, ran)
			value, err = b.Do(t.Context(), name, gives("another"))
			require.NoError(t, err)
			require.Equal(t, "result", string(value))
			redistest.Eventually(t, "the fault has struck", func() bool { return proxy.Stats().RepliesCut == 1 })
		})
	}
}

func TestLateRequests(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	warm(t, s)
	for n := int64(1); n <= 5; n++ {
		t.Run(strconv.FormatInt(n, 10), func(t *testing.T) {
			t.Parallel()
			proxy := netfault.New(t, s.Addr())
			a, b := once.New(host(t, proxy.Addr()), once.Options{}), once.New(host(t, s.Addr()), once.Options{})
			name := "late " + strconv.FormatInt(n, 10)
			held := proxy.Hold(nth(n))
			ctx, cancel := context.WithTimeout(t.Context(), lease/2)
			defer cancel()
			ended := make(chan struct{})
			go func() { // the request is given up with its context, or repeated after two seconds
				defer close(ended)
				_, _ = a.Do(ctx, name, gives("of a"))
			}()
			require.NoError(t, held.Wait(t.Context()))
			<-ended
			value, err := b.Do(t.Context(), name, gives("of b")) // in the end it has the lock
			require.NoError(t, err)
			companion := rdb.HGetAll(t.Context(), "rlock_companion:{"+name+"}").Val()
			require.Equal(t, string(value), companion["result"])
			redistest.Eventually(t, "the lock is free", func() bool { return rdb.Exists(context.Background(), name).Val() == 0 })
			require.NoError(t, held.Deliver(t.Context()))
			require.Equal(t, companion, rdb.HGetAll(t.Context(), "rlock_companion:{"+name+"}").Val())
		})
	}
}

// No run has begun for a caller of Begin that gets an error, whatever Redis has executed. So with Strict, the
// outcome is not unknown to the next caller.
func TestBeginWithoutAnswer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	warm(t, s)
	strict := once.Options{Strict: true, Lease: unhurried}
	b := once.New(host(t, s.Addr()), strict)
	gone := func(t *testing.T, name string) {
		redistest.Eventually(t, "the lock is free, and there is no trace", func() bool {
			return rdb.Exists(context.Background(), name, "rlock_companion:{"+name+"}").Val() == 0
		})
		run, _, err := b.Begin(t.Context(), name, "print")
		require.NoError(t, err)
		require.NoError(t, run.Fail(t.Context()))
	}

	t.Run("executed", func(t *testing.T) {
		proxy := netfault.New(t, s.Addr())
		a := once.New(host(t, proxy.Addr()), strict)
		proxy.CutReplies(1000, netfault.Arg("print"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := a.Begin(ctx, "executed", "print")
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.NotZero(t, proxy.Stats().RepliesCut)
		gone(t, "executed")
	})

	// The unlock is late, and the request that begins the run comes just before it.
	t.Run("before the unlock", func(t *testing.T) {
		proxy := netfault.New(t, s.Addr())
		a := once.New(host(t, proxy.Addr()), strict)
		calm(t, proxy, a)
		begin, unlock := proxy.Hold(netfault.Arg("print")), proxy.Hold(netfault.Arg("rlock_queue:{late}"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := a.Begin(ctx, "late", "print")
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.NoError(t, unlock.Wait(t.Context()))
		require.NoError(t, begin.Deliver(t.Context()))
		require.EqualValues(t, 1, rdb.Exists(t.Context(), "rlock_companion:{late}").Val())
		require.NoError(t, unlock.Deliver(t.Context()))
		gone(t, "late")
	})

	// Its first execution has begun the run, the reply is lost, and then the lock.
	t.Run("lost", func(t *testing.T) {
		proxy := netfault.New(t, s.Addr())
		a := once.New(host(t, proxy.Addr()), strict)
		calm(t, proxy, a)
		again := proxy.Hold(second(netfault.Arg("print")))
		proxy.CutReplies(1, netfault.Arg("print"))
		ended := make(chan error)
		go func() {
			_, _, err := a.Begin(t.Context(), "lost", "print")
			ended <- err
		}()
		require.NoError(t, again.Wait(t.Context()))
		require.NoError(t, rdb.Del(t.Context(), "lost").Err())
		require.NoError(t, again.Deliver(t.Context()))
		require.ErrorIs(t, <-ended, rlock.ErrLeaseLost)
		gone(t, "lost")
	})
}

// second matches the second request that match matches.
func second(match netfault.Match) netfault.Match {
	var seen atomic.Int64
	return func(args []string) bool { return match(args) && seen.Add(1) == 2 }
}

// The trace of a run stays if a call that lost its lock earlier removes its own.
func TestRetractBesideAnotherRun(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	warm(t, s)
	proxy := netfault.New(t, s.Addr())
	strict := once.Options{Strict: true, Lease: unhurried}
	a, b := once.New(host(t, proxy.Addr()), strict), once.New(host(t, s.Addr()), strict)
	calm(t, proxy, a)
	again := proxy.Hold(second(netfault.Arg("print")))
	proxy.CutReplies(1, netfault.Arg("print"))
	removal := proxy.Hold(second(func(args []string) bool { return args[len(args)-1] == "0" }))
	ended := make(chan error)
	go func() {
		_, _, err := a.Begin(t.Context(), "x", "print")
		ended <- err
	}()
	require.NoError(t, again.Wait(t.Context()))
	require.NoError(t, s.Client(t).Del(t.Context(), "x").Err())
	require.NoError(t, b.Forget(t.Context(), "x"))
	run, _, err := b.Begin(t.Context(), "x", "print")
	require.NoError(t, err)
	require.NoError(t, again.Deliver(t.Context()))
	require.ErrorIs(t, <-ended, rlock.ErrLeaseLost)
	require.NoError(t, removal.Wait(t.Context())) // after the first one
	require.NoError(t, removal.Deliver(t.Context()))
	require.NoError(t, run.Abandon(t.Context()))
	_, _, err = b.Begin(t.Context(), "x", "print")
	require.ErrorIs(t, err, once.ErrUnknown)
}

// A function that fails after it has lost its lock may have failed in the middle, because its context has ended.
func TestFailAfterALoss(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := once.New(host(t, s.Addr()), once.Options{Strict: true})
	run, _, err := g.Begin(t.Context(), "x", "")
	require.NoError(t, err)
	require.NoError(t, s.Client(t).Del(t.Context(), "x").Err())
	require.ErrorIs(t, run.Fail(t.Context()), rlock.ErrLeaseLost)
	_, _, err = g.Begin(t.Context(), "x", "")
	require.ErrorIs(t, err, once.ErrUnknown)
}

// A result stays, even if its run fails then: its caller has received no answer when it was stored.
func TestFailAfterAResult(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := once.New(host(t, s.Addr()), once.Options{Strict: true})
	run, _, err := g.Begin(t.Context(), "x", "")
	require.NoError(t, err)
	require.NoError(t, s.Client(t).HSet(t.Context(), "rlock_companion:{x}", "result", "stored").Err()) // as finish.lua
	require.NoError(t, run.Fail(t.Context()))
	_, result, err := g.Begin(t.Context(), "x", "")
	require.NoError(t, err)
	require.Equal(t, "stored", string(result))
}

// The state may change between two requests. Another host stores a result while
// the request for the lock is on its way.
func TestResultBeforeTheLock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	warm(t, s)
	proxy := netfault.New(t, s.Addr())
	a, b := once.New(host(t, proxy.Addr()), once.Options{Lease: unhurried}), once.New(host(t, s.Addr()), once.Options{Lease: unhurried})
	calm(t, proxy, a)
	held := proxy.Hold(nth(2))
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		value, err := a.Do(t.Context(), "x", gives("of a"))
		require.NoError(t, err)
		require.Equal(t, "of b", string(value))
	})
	require.NoError(t, held.Wait(t.Context()))
	_, err := b.Do(t.Context(), "x", gives("of b"))
	require.NoError(t, err)
	redistest.Eventually(t, "the lock is free", func() bool { return s.Client(t).Exists(context.Background(), "x").Val() == 0 })
	require.NoError(t, held.Deliver(t.Context()))
}

// The same with a run that ends without a result. With Strict, no other run may follow it.
func TestUnknownBeforeTheLock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	warm(t, s)
	proxy := netfault.New(t, s.Addr())
	strict := once.Options{Strict: true, Lease: unhurried}
	a, b := once.New(host(t, proxy.Addr()), strict), once.New(host(t, s.Addr()), strict)
	calm(t, proxy, a)
	held := proxy.Hold(nth(2))
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		_, err := a.Do(t.Context(), "x", gives("of a"))
		require.ErrorIs(t, err, once.ErrUnknown)
	})
	require.NoError(t, held.Wait(t.Context()))
	run, _, err := b.Begin(t.Context(), "x", "")
	require.NoError(t, err)
	require.NoError(t, run.Abandon(t.Context()))
	require.NoError(t, held.Deliver(t.Context()))
}

// The lock is deleted while the request that begins the run is on its way, and another host has it.
func TestLockDeletedBeforeTheRun(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	warm(t, s)
	proxy := netfault.New(t, s.Addr())
	a, b := once.New(host(t, proxy.Addr()), once.Options{Lease: unhurried}), once.New(host(t, s.Addr()), once.Options{Lease: unhurried})
	calm(t, proxy, a)
	held := proxy.Hold(nth(3))
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		_, err := a.Do(t.Context(), "x", func(context.Context) ([]byte, error) {
			t.Error("the other host runs")
			return nil, nil
		})
		require.ErrorIs(t, err, rlock.ErrLeaseLost)
	})
	require.NoError(t, held.Wait(t.Context()))
	require.NoError(t, s.Client(t).Del(t.Context(), "x").Err())
	run, _, err := b.Begin(t.Context(), "x", "")
	require.NoError(t, err)
	require.NoError(t, held.Deliver(t.Context()))
	all.Wait()
	require.NoError(t, run.Finish(t.Context(), []byte("of b")))
}

// A run ends when a call has read that it is in progress, and before that call listens. The channel is
// subscribed already, for another group, so no confirmation of the server makes the call read again.
func TestEndBeforeTheSubscription(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	run, _, err := once.New(host(t, s.Addr()), once.Options{Lease: time.Minute}).Begin(t.Context(), "x", "")
	require.NoError(t, err)
	rdb := redis.NewClient(options(s.Addr()))
	var finish atomic.Pointer[func()]
	rdb.AddHook(redistest.Hook{Process: func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if f := finish.Swap(nil); f != nil {
			(*f)()
		}
		return err
	}})
	locks := client(t, rdb)
	first, second := once.New(locks, once.Options{}), once.New(locks, once.Options{})
	got := make(chan struct{})
	go func() {
		defer close(got)
		_, _ = first.Do(context.Background(), "x", gives("never"))
	}()
	subscribed(t, s, "x", 1)
	time.Sleep(50 * time.Millisecond)
	end := func() {
		_ = run.Finish(t.Context(), []byte("result"))
		<-got // the message has come
	}
	finish.Store(&end)
	began := time.Now()
	value, err := second.Do(t.Context(), "x", gives("never"))
	require.NoError(t, err)
	require.Equal(t, "result", string(value))
	require.Less(t, time.Since(began), 4*time.Second, "not by a timer")
}

func TestEveryRequestTwice(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	rdb.AddHook(redistest.SendTwice())
	a, b := once.New(client(t, rdb), once.Options{Strict: true}), once.New(host(t, s.Addr()), once.Options{Strict: true})
	for n := range 50 {
		name := strconv.Itoa(n)
		run, _, err := a.Begin(t.Context(), name, "")
		require.NoError(t, err)
		if n%2 == 0 {
			require.NoError(t, run.Finish(t.Context(), []byte("of a")))
		} else {
			_ = run.Fail(t.Context()) // the second Unlock finds no lock
		}
		value, err := b.Do(t.Context(), name, gives("of b"))
		require.NoError(t, err)
		require.Equal(t, map[bool]string{true: "of a", false: "of b"}[n%2 == 0], string(value))
	}
}

// A message may be lost. A waiter looks of its own accord.
func TestDeafWaiter(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := netfault.New(t, s.Addr())
	a, b := once.New(host(t, s.Addr()), once.Options{}), once.New(host(t, proxy.Addr()), once.Options{})
	run, _, err := a.Begin(t.Context(), "x", "")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		value, err := b.Do(t.Context(), "x", gives("never"))
		require.NoError(t, err)
		require.Equal(t, "result", string(value))
	})
	subscribed(t, s, "x", 1)
	proxy.DropDown(true, "subscribe")
	require.NoError(t, run.Finish(t.Context(), []byte("result")))
	began := time.Now()
	all.Wait()
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestSlotMoves(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "a cluster")
	cluster := redistest.StartCluster(t, 3, 0)
	var hosts []*once.Group
	for range 2 {
		hosts = append(hosts, once.New(client(t, cluster.Client(t)), once.Options{}))
	}
	for _, name := range []string{"x", "with{tag}y", "{all}"} {
		slot := cluster.Slot(name)
		to := cluster.Another(slot)
		run, _, err := hosts[0].Begin(t.Context(), name, "")
		require.NoError(t, err)
		got := make(chan string, 1)
		go func() {
			value, err := hosts[1].Do(context.Background(), name, gives("another"))
			got <- fmt.Sprint(string(value), err)
		}()
		move := cluster.BeginMove(slot, to)
		move.MoveKeys(name) // the companion is still where it was
		stored := make(chan error, 1)
		go func() { stored <- run.Finish(context.Background(), []byte("result")) }()
		time.Sleep(300 * time.Millisecond)
		move.MoveKeys()
		move.Finish()
		require.NoError(t, <-stored)
		require.Equal(t, "result<nil>", <-got)
		value, err := hosts[1].Do(t.Context(), name, gives("another"))
		require.NoError(t, err)
		require.Equal(t, "result", string(value))
	}
}

func TestShardedChannels(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "a cluster")
	redistest.Since7(t, "SPUBLISH")
	cluster := redistest.StartCluster(t, 1, 0)
	a, b := once.New(client(t, cluster.Client(t)), once.Options{}), once.New(client(t, cluster.Client(t)), once.Options{})
	run, _, err := a.Begin(t.Context(), "x", "")
	require.NoError(t, err)
	got := make(chan time.Time, 1)
	go func() {
		_, _ = b.Do(context.Background(), "x", gives("another"))
		got <- time.Now()
	}()
	channel := "rlock_channel:{x}:companion"
	redistest.Eventually(t, "it waits", func() bool {
		return cluster.Client(t).PubSubShardNumSub(context.Background(), channel).Val()[channel] == 1
	})
	finished := time.Now()
	require.NoError(t, run.Finish(t.Context(), []byte("result")))
	require.Less(t, (<-got).Sub(finished), time.Second, "by the message, not by a timer")
}

// A host is killed during its run. Exactly one of the others runs again, or none if that is unknown.
func TestKilledHost(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"tolerant", "strict"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			child := redistest.Spawn(t, "computes", s.Addr(), kind, "x")
			child.Expect("computes", 20*time.Second)
			var ran atomic.Int64
			var all sync.WaitGroup
			for range 3 {
				g := once.New(host(t, s.Addr()), once.Options{Strict: kind == "strict"})
				for range 10 {
					all.Go(func() {
						value, err := g.Do(t.Context(), "x", func(context.Context) ([]byte, error) { ran.Add(1); return []byte("second"), nil })
						if kind == "strict" {
							require.ErrorIs(t, err, once.ErrUnknown)
							return
						}
						require.NoError(t, err)
						require.Equal(t, "second", string(value))
					})
				}
			}
			subscribed(t, s, "x", 3)
			child.Kill()
			killed := time.Now()
			all.Wait()
			took := time.Since(killed)
			t.Log("all had an answer after", took, "at a lease of", lease)
			require.Less(t, took, 2*lease, "by the rest of the lease, not by the timer for lost messages")
			require.EqualValues(t, map[string]int64{"tolerant": 1}[kind], ran.Load())
		})
	}
}

// 1,000 callers in 8 processes wait for one result, on a network of 40 ms. After the end of the run each
// client reads once, and nearly all callers have the result after less than 3 round trips, and what a busy machine
// adds.
func TestCrowd(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "8 processes")
	t.Run("finished", func(t *testing.T) { crowd(t, false) })
	t.Run("killed", func(t *testing.T) { crowd(t, true) })
}

func crowd(t *testing.T, killed bool) {
	const processes, each, rtt = 8, 125, 40 * time.Millisecond
	s := redistest.Start(t)
	proxy := netfault.New(t, s.Addr())
	proxy.Delay(rtt/2, rtt/2)
	warm(t, s)
	var run *once.Run
	var child *redistest.Child
	if killed {
		child = redistest.Spawn(t, "computes", s.Addr(), "tolerant", "x")
		child.Expect("computes", 20*time.Second)
	} else {
		var err error
		g := once.New(host(t, proxy.Addr()), once.Options{Lease: time.Minute}) // the hosts need not look for a dead one meanwhile
		run, _, err = g.Begin(t.Context(), "x", "")
		require.NoError(t, err)
	}
	var hosts []*redistest.Child
	for range processes {
		c := redistest.Spawn(t, "waits", proxy.Addr(), "x", strconv.Itoa(each))
		c.Expect("waits", 30*time.Second)
		hosts = append(hosts, c)
	}
	subscribed(t, s, "x", processes)
	time.Sleep(5 * rtt) // each reads once more when its subscription is there
	m := s.Monitor(t)
	_, _, err := once.New(host(t, s.Addr()), once.Options{}).Begin(t.Context(), "x", "")
	_, busy := errors.AsType[*once.InFlightError](err)
	require.True(t, busy, "%v", err)
	var peek string // the SHA-1 of the script
	for _, c := range m.Commands() {
		if strings.EqualFold(c.Args[0], "evalsha") && len(c.Args) == 6 && c.Args[3] == "rlock_companion:{x}" {
			peek = c.Args[1]
		}
	}
	end := time.Now()
	if killed {
		child.Kill()
	} else {
		require.NoError(t, run.Finish(t.Context(), []byte("result")))
	}
	var waits []time.Duration
	for _, c := range hosts {
		for got := range strings.FieldsSeq(c.Expect("got", 30*time.Second)) {
			at, what, _ := strings.Cut(got, ":")
			ns, err := strconv.ParseInt(at, 10, 64)
			require.NoError(t, err)
			require.Equal(t, map[bool]string{false: "result:<nil>", true: "again:<nil>"}[killed], what)
			waits = append(waits, time.Unix(0, ns).Sub(end))
		}
	}
	require.Len(t, waits, processes*each)
	slices.Sort(waits)
	reads, messages := 0, 0
	for _, c := range m.Commands() {
		switch {
		case strings.EqualFold(c.Args[0], "publish") && c.Args[2] == "done":
			messages++
		case strings.EqualFold(c.Args[0], "evalsha") && c.Args[1] == peek:
			reads++
		}
	}
	p99 := waits[len(waits)*99/100]
	t.Logf("%d callers in %d processes: p50 %v, p99 %v, longest %v after the end; %d messages to the channel, %d reads", len(waits), processes, waits[len(waits)/2], p99, waits[len(waits)-1], messages, reads)
	runs, err := s.Client(t).Get(t.Context(), "runs").Int()
	require.Equal(t, 1, messages)
	if killed {
		require.NoError(t, err)
		require.Equal(t, 1, runs)
		return
	}
	require.ErrorIs(t, err, redis.Nil, "no caller has run anything")
	require.GreaterOrEqual(t, reads, processes)
	require.Less(t, reads, 2*processes, "one each; a busy machine may get a copy of a read")
	require.Less(t, p99, 3*rtt+2*time.Second, "by the message; most of it is the machine's, if it is busy")
}
