package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

func TestQuorumLock(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	mu, other := all.lock(t), all.lock(t)
	held, hold := all.lockAll(t, mu)
	nested, inner := lock(t, held, mu)
	redistest.Eventually(t, "a majority knows of both", func() bool { // one may be too slow on a busy machine, and is not asked again
		return strings.Count(strings.Join(all.holds(t, hold.Owner()), ""), "2") >= 2
	})
	require.Equal(t, 2, mu.HoldCount(nested))
	var state rlock.State
	redistest.Eventually(t, "the servers show it", func() bool { // a busy machine may be too slow for an answer in time
		var err error
		state, err = other.Inspect(t.Context())
		return inTime(t, err)
	})
	require.Equal(t, map[string]int64{hold.Owner(): 2}, state.Holds)
	require.InDelta(t, quorumLease, state.TTL, float64(quorumLease/2))

	var busy *rlock.NotAcquiredError
	redistest.Eventually(t, "the servers refuse", func() bool {
		_, _, err := other.TryLock(t.Context())
		return errors.As(err, &busy)
	})
	require.Positive(t, busy.TTL)

	waited := make(chan error)
	go func() { waited <- other.Do(context.Background(), func(context.Context) error { return nil }) }()
	for _, srv := range all {
		awaitListener(t, srv.Client(t), "a")
	}
	<-time.After(quorumLease + quorumLease/2) // renewals
	require.NoError(t, nested.Err())
	require.NoError(t, inner.Unlock(nested))
	require.NoError(t, hold.Unlock(held))
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrNotHeld)
	require.NoError(t, <-waited)
	all.free(t)
}

// If a minority of the servers forgets the grant, or gives the lock to somebody else, the
// holder keeps it. If a majority does at once, the lock is lost.
func TestQuorumForgetfulServers(t *testing.T) {
	redistest.Long(t, "waits for two leases of a quorum")
	t.Parallel()
	all := newServers(t, 3)
	mu := all.lock(t)
	held, hold := all.lockAll(t, mu)
	first, second := all[0].Client(t), all[1].Client(t)
	require.NoError(t, first.FlushAll(t.Context()).Err())
	<-time.After(2 * quorumLease)
	require.NoError(t, held.Err())
	redistest.Eventually(t, "two servers forget it before the hold takes its share of the first again", func() bool {
		for _, rdb := range []*redis.Client{first, second} {
			require.NoError(t, rdb.FlushAll(t.Context()).Err())
		}
		return held.Err() != nil
	})
	require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost)
	require.ErrorIs(t, hold.Unlock(held), rlock.ErrLeaseLost)
	all.free(t)
}

// A server that restarts without its data is the one that lets a second owner in,
// unless it is not counted until the lost lease has ended.
func TestQuorumDelayedRestart(t *testing.T) {
	t.Parallel()
	for _, delayed := range []bool{true, false} {
		t.Run("delayed="+strconv.FormatBool(delayed), func(t *testing.T) {
			t.Parallel()
			all := newServers(t, 5)
			held, hold := all.lockAll(t, all.lock(t, rlock.WithoutRenewal()))
			forget := func(srv *redistest.Server) {
				require.NoError(t, srv.Client(t).FlushAll(t.Context()).Err())
			}
			forget(all[0]) // two that the first owner did not reach
			forget(all[1])
			if delayed {
				all[2].Restart()
			} else {
				forget(all[2]) // as if it had restarted, and nobody minded
			}
			_, second, err := all.lock(t).TryLockFor(t.Context(), 10*time.Second)
			require.NoError(t, err)
			if delayed {
				require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost, "two owners")
			} else {
				require.NoError(t, held.Err(), "the test does not show what it should")
			}
			require.NoError(t, second.Unlock(t.Context()))
			_ = hold.Unlock(held)
		})
	}
}

func TestQuorumForceUnlock(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	mu := all.lock(t)
	for name, remove := range map[string]func(owner string) (bool, error){
		"any":      func(string) (bool, error) { return mu.ForceUnlock(t.Context()) },
		"by owner": func(owner string) (bool, error) { return mu.UnlockOwner(t.Context(), owner) },
	} {
		// A new grant each time: after a call without an answer nobody knows what it has removed. The same
		// holds for an Unlock whose release was sent twice on a busy machine.
		redistest.Eventually(t, name, func() bool {
			held, hold := lock(t, t.Context(), all.lock(t))
			removed, err := remove(hold.Owner())
			if !inTime(t, err) {
				_ = hold.Unlock(held)
				return false
			}
			require.True(t, removed, name)
			all.free(t)
			redistest.Eventually(t, name, func() bool {
				removed, err := remove(hold.Owner())
				require.False(t, removed, name)
				return inTime(t, err)
			})
			err = hold.Unlock(held)
			if err != nil {
				require.ErrorIs(t, err, rlock.ErrLeaseLost, name)
			}
			return err != nil
		})
	}
}

// Two of three servers have a share, and one of these is slow to say so: the lock is not shown
// as free because a majority has answered.
func TestQuorumInspectBesideASlowServer(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	slow := netfault.New(t, all[1].Addr())
	clients := all.clients(t, rlock.Options{LeaseTime: quorumLease})
	clients[1] = clientOn(t, all[1].Client(t, func(o *redis.Options) { o.Addr = slow.Addr() }), &rlock.Options{LeaseTime: quorumLease})
	mu := rlock.NewQuorumLock("a", clients)
	held, hold := all.lockAll(t, all.lock(t))
	require.NoError(t, all[2].Client(t).FlushAll(t.Context()).Err())
	slow.Delay(0, 60*time.Millisecond)
	redistest.Eventually(t, "it is inspected", func() bool {
		state, err := mu.Inspect(t.Context())
		if !inTime(t, err) {
			return false
		}
		require.Contains(t, state.Holds, hold.Owner())
		return true
	})
	require.NoError(t, hold.Unlock(held))
}

func TestQuorumInspectCountsWaiters(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	mu := all.lock(t)
	held, hold := all.lockAll(t, mu)
	ctx, cancel := context.WithCancel(t.Context())
	next := begin(ctx, all.lock(t))
	redistest.Eventually(t, "its ticket is counted", func() bool {
		state, err := mu.Inspect(t.Context())
		return inTime(t, err) && state.Waiters == 1
	})
	cancel()
	<-next.done
	require.NoError(t, hold.Unlock(held))
}

func TestQuorumOptionsThatCannotWork(t *testing.T) {
	t.Parallel()
	srv := newServer(t)
	a, b, c := newClient(t, srv, nil), newClient(t, srv, nil), newClient(t, newServer(t), nil)
	rdb := srv.Client(t)
	d, e := clientOn(t, rdb, nil), clientOn(t, rdb, nil)
	for name, clients := range map[string][]*rlock.Client{
		"none":           nil,
		"nil":            {a, nil, c},
		"one":            {a},
		"two":            {a, c},
		"a client twice": {a, c, a},
		"a redis twice":  {c, d, e},
		"a server twice": {a, b, c},
		"four":           {a, b, c, d},
	} {
		mu := rlock.NewQuorumLock("a", clients)
		// A server that is given twice is found out as soon as both answer in one round.
		redistest.Eventually(t, name, func() bool {
			held, hold, err := mu.TryLock(t.Context())
			require.Error(t, err)
			require.Nil(t, hold)
			require.Equal(t, t.Context(), held)
			return errors.Is(err, rlock.ErrInvalidOption)
		})
		_, _, err := mu.Lock(t.Context())
		require.ErrorIs(t, err, rlock.ErrInvalidOption, name)
		require.NotErrorIs(t, err, rlock.ErrUnavailable, name)
		require.Zero(t, mu.HoldCount(t.Context()))
		_, err = rlock.Guard(func(int) *rlock.Lock { return mu }, func(context.Context, int) (int, error) { return 0, nil })(t.Context(), 0)
		require.ErrorIs(t, err, rlock.ErrInvalidOption, name)
	}
	servers{srv}.free(t)
}

// quorumLease is that of the tests: servers are counted when they are a second
// older, which their start has to wait for. A busy machine may stand still for half of it.
const quorumLease = 5 * time.Second

type servers []*redistest.Server

// newServers runs n servers, and returns when a quorum lock counts them.
func newServers(tb testing.TB, n int) (all servers) {
	tb.Helper()
	for range n {
		all = append(all, newServer(tb))
	}
	for _, srv := range all {
		awaitAge(tb, srv, quorumLease+time.Second)
	}
	return all
}

var uptime = regexp.MustCompile(`uptime_in_seconds:(\d+)`)

func awaitAge(tb testing.TB, srv *redistest.Server, age time.Duration) {
	tb.Helper()
	rdb := srv.Client(tb)
	old := func() bool {
		seconds, err := strconv.Atoi(uptime.FindStringSubmatch(rdb.Info(context.Background(), "server").Val())[1])
		require.NoError(tb, err)
		return time.Duration(seconds)*time.Second >= age
	}
	for began := time.Now(); !old(); time.Sleep(10 * time.Millisecond) {
		require.Less(tb, time.Since(began), time.Minute, "the server is old enough")
	}
}

// clients returns one for each server: those of a process.
func (all servers) clients(tb testing.TB, opts rlock.Options) (clients []*rlock.Client) {
	tb.Helper()
	if opts.LeaseTime == 0 {
		opts.LeaseTime = quorumLease
	}
	for _, srv := range all {
		rdb := srv.Client(tb, func(o *redis.Options) {
			o.PoolSize, o.PipelinePoolSize = 4096, 4096 // after as many failures go-redis leaves a goroutine for a second
		})
		clients = append(clients, clientOn(tb, rdb, &opts))
	}
	return clients
}

// lock returns the quorum lock "a" of another process.
func (all servers) lock(tb testing.TB, opts ...rlock.LockOption) *rlock.Lock {
	tb.Helper()
	return rlock.NewQuorumLock("a", all.clients(tb, rlock.Options{}), opts...)
}

// holds returns the hold counts of owner on the servers; 0 on one that is down.
func (all servers) holds(tb testing.TB, owner string) (n []string) {
	tb.Helper()
	for _, srv := range all {
		n = append(n, srv.Client(tb).HGet(tb.Context(), "a", owner).Val())
	}
	return n
}

// free waits until nothing is left of the lock.
func (all servers) free(tb testing.TB) {
	tb.Helper()
	for _, srv := range all {
		rdb := srv.Client(tb)
		redistest.Eventually(tb, "the share is given back", func() bool {
			return rdb.Exists(context.Background(), "a").Val() == 0
		})
	}
}

// inTime reports whether a call has had its answers, as one on a busy machine may not. Any
// other error fails the test.
func inTime(t *testing.T, err error) bool {
	t.Helper()
	if errors.Is(err, rlock.ErrUnavailable) {
		return false
	}
	require.NoError(t, err)
	return true
}

// lockAll locks mu on all servers. A lock is granted by those that answer first, and on a
// busy machine another may be too slow, which is not asked again.
func (all servers) lockAll(t *testing.T, mu *rlock.Lock) (context.Context, *rlock.Hold) {
	t.Helper()
	want := slices.Repeat([]string{"1"}, len(all))
	for range 10 {
		held, hold := lock(t, t.Context(), mu)
		for soon := time.Now().Add(time.Second); time.Now().Before(soon); time.Sleep(5 * time.Millisecond) {
			if slices.Equal(want, all.holds(t, hold.Owner())) {
				return held, hold
			}
		}
		require.NoError(t, hold.Unlock(held))
	}
	require.FailNow(t, "never granted by all servers")
	panic("unreachable")
}

// Who waits until servers have run for long enough does not ask them all the time, nor wake
// others by giving back what it has got of them.
func TestQuorumWaitersBesideYoungServers(t *testing.T) {
	t.Parallel()
	all := servers{newServer(t), newServer(t), newServer(t)}
	var waiting sync.WaitGroup
	for range 3 {
		mu := rlock.NewQuorumLock("a", all.clients(t, rlock.Options{LeaseTime: time.Minute}))
		waiting.Go(func() {
			_, _, err := mu.TryLockFor(t.Context(), 2*time.Second)
			assert.Error(t, err)
		})
	}
	waiting.Wait()
	require.Less(t, all[0].CommandCalls(t)["evalsha"], int64(200))
}

// One of the clients of a quorum lock has its queue in memory, the same one in whatever
// order the clients are given. When this client is closed, waits and holds end. The same
// clients in another order make the same lock.
func TestQuorumHostCloses(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	clients := all.clients(t, rlock.Options{})
	mu := rlock.NewQuorumLock("a", []*rlock.Client{clients[1], clients[0], clients[2]})
	held, hold := all.lockAll(t, mu)
	redistest.Eventually(t, "the client knows", func() bool { // unless a renewal comes between
		before := all[0].CommandCalls(t)["evalsha"]
		_, _, err := rlock.NewQuorumLock("a", clients).TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		return all[0].CommandCalls(t)["evalsha"] == before
	})
	first, second := begin(t.Context(), mu), begin(t.Context(), mu)
	time.Sleep(20 * time.Millisecond) // most likely they wait by then
	closed := make(chan error)
	host := hostOf(t, clients, hold)
	go func() { closed <- host.Close(t.Context()) }()
	for _, w := range []*waiting{first, second} {
		<-w.done
		require.ErrorIs(t, w.err, rlock.ErrClosed)
	}
	<-held.Done()
	require.ErrorIs(t, context.Cause(held), rlock.ErrClosed)
	require.NoError(t, hold.Unlock(held))
	require.NoError(t, <-closed)
	all.free(t)
}

// hostOf returns the client that names the owners of a quorum lock, and has its queue in memory.
func hostOf(t *testing.T, clients []*rlock.Client, of *rlock.Hold) *rlock.Client {
	t.Helper()
	for _, c := range clients {
		held, hold := lock(t, t.Context(), c.NewLock("id"))
		require.NoError(t, hold.Unlock(held))
		if id, _, _ := strings.Cut(hold.Owner(), ":"); strings.HasPrefix(of.Owner(), id+":") {
			return c
		}
	}
	require.Fail(t, "no client of the lock has named its owner")
	return nil
}

// A worker is cancelled, and its process closes one client after the other, each with its
// connection, as deferred calls do: the one that has the queue in memory comes last. Whatever the
// worker has left, also by a request under way, is released on each server before that.
func TestQuorumCloseReleasesWhatCallersLeft(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	for n := range 60 {
		name := fmt.Sprint("n", n)
		shiftUnderAQuorumLock(t, all, name)
		for _, srv := range all {
			require.Zero(t, srv.Client(t).Exists(context.Background(), name).Val(), "round %d", n)
		}
	}
}

// shiftUnderAQuorumLock is such a process.
func shiftUnderAQuorumLock(t *testing.T, all servers, name string) {
	var clients []*rlock.Client
	for _, srv := range all {
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
		c, err := rlock.New(rdb, &rlock.Options{LeaseTime: quorumLease})
		require.NoError(t, err)
		defer func() {
			require.NoError(t, closeSoon(c))
			require.NoError(t, rdb.Close())
		}()
		clients = append(clients, c)
	}
	mu := rlock.NewQuorumLock(name, clients)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond+rand.N(5*time.Millisecond))
	defer cancel()
	for ctx.Err() == nil {
		_ = mu.Do(ctx, func(context.Context) error { return nil })
	}
}

// A share of one server is no lock. It is removed all the same.
func TestQuorumForceUnlockOfAShare(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	mu := all.lock(t)
	put := func(servers servers) {
		for _, srv := range servers {
			require.NoError(t, srv.Client(t).HSet(t.Context(), "a", "somebody:1", 1).Err())
		}
	}
	for n, held := range []bool{false, false, true, true} {
		redistest.Eventually(t, "all answer in time", func() bool {
			put(all[:n])
			was, err := mu.ForceUnlock(t.Context())
			return inTime(t, err) && was == held
		})
		all.free(t)
	}
	put(all[1:]) // a majority, of which one does not answer
	all[2].Stop()
	redistest.Eventually(t, "the others do", func() bool {
		put(all[1:2])
		was, err := mu.ForceUnlock(t.Context())
		return inTime(t, err) && was
	})
	all[2].Cont()
	all.free(t)
}

// The servers restart empty, one after the other, while a hold lasts. The hold takes its share again
// on each, and nobody else gets the lock meanwhile.
func TestQuorumHoldOutlivesRollingRestarts(t *testing.T) {
	t.Parallel()
	rounds := 10
	if testing.Short() {
		rounds = 4
	}
	all := newServers(t, 3)
	mu, other := all.lock(t), all.lock(t)
	held, hold := all.lockAll(t, mu)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var second atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if _, theirs, err := other.TryLock(ctx); err == nil {
				second.Store(true)
				_ = theirs.Unlock(context.Background())
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	for n := range rounds {
		srv := all[n%len(all)]
		srv.Kill()
		srv.Restart()
		rdb := srv.Client(t)
		redistest.Eventually(t, "the hold has its share again", func() bool {
			return rdb.HExists(t.Context(), "a", hold.Owner()).Val() || held.Err() != nil
		})
		require.NoError(t, context.Cause(held), "restart %d", n)
	}
	cancel()
	<-ended
	require.False(t, second.Load(), "a second holder")
	require.NoError(t, hold.Unlock(held))
	all.free(t)
}

// A server that stands still for several leases, and forgets nothing, has let the share lapse. The hold
// has it again before the next server stands still.
func TestQuorumHoldOutlivesServersThatStandStill(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "several leases")
	all := newServers(t, 3)
	mu := all.lock(t)
	held, hold := all.lockAll(t, mu)
	for _, srv := range all {
		srv.Stop()
		time.Sleep(quorumLease + quorumLease/2) // the lease there ends
		srv.Cont()
		rdb := srv.Client(t)
		redistest.Eventually(t, "the hold has its share again", func() bool {
			return rdb.HExists(t.Context(), "a", hold.Owner()).Val() || held.Err() != nil
		})
		require.NoError(t, context.Cause(held))
	}
	require.NoError(t, hold.Unlock(held))
	all.free(t)
}

// A share that somebody else has is not taken, and the hold goes on without it.
func TestQuorumHoldLeavesTheSharesOfOthers(t *testing.T) {
	t.Parallel()
	all := newServers(t, 3)
	mu := all.lock(t)
	held, hold := all.lockAll(t, mu)
	rdb := all[0].Client(t)
	require.NoError(t, rdb.Del(t.Context(), "a").Err())
	require.NoError(t, rdb.HSet(t.Context(), "a", "other:1", "1").Err())
	until := hold.Until()
	for range 2 {
		redistest.Eventually(t, "renewed", func() bool { return hold.Until().After(until) })
		until = hold.Until()
	}
	require.Equal(t, map[string]string{"other:1": "1"}, hgetall(t, rdb, "a"))
	err := hold.Unlock(held)
	require.False(t, errors.Is(err, rlock.ErrLeaseLost), "%v", err)
	require.NoError(t, err)
	require.NoError(t, rdb.Del(t.Context(), "a").Err())
}

// quorumLines are what the log says of the servers of a quorum lock.
func quorumLines(log *logBuffer) (lines []string) {
	for line := range strings.Lines(log.String()) {
		if _, text, ok := strings.Cut(line, "rlock: quorum: "); ok {
			text, _, _ = strings.Cut(text, `"`)
			lines = append(lines, text)
		}
	}
	return lines
}

// The log tells of a server that does not answer once, whether calls ask it or only renewals, and once
// when it answers again.
func TestFakeTimeQuorumTellsOfAServerInTrouble(t *testing.T) {
	for name, fault := range map[string]func(*fakeRedis){
		"silent":  func(f *fakeRedis) { f.deafUp.Store(true) },
		"refuses": func(f *fakeRedis) { f.SetError("LOADING Redis is loading the dataset in memory") },
	} {
		for _, renewals := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T) {
					var log logBuffer
					var all []*fakeRedis
					var clients []*rlock.Client
					for _, id := range []string{"x", "y", "z"} {
						f := newFakeRedis(t)
						runs(f, id, 31*time.Second)
						f.late.Store(int64(time.Millisecond)) // a renewal that is not sent before the others are answered is not sent at all
						all, clients = append(all, f), append(clients, f.client(t, &rlock.Options{Logger: log.logger()}))
					}
					mu := rlock.NewQuorumLock("a", clients)
					work := func() {
						if renewals {
							time.Sleep(2 * time.Minute)
							return
						}
						for range 100 {
							held, hold := lock(t, t.Context(), mu)
							require.NoError(t, hold.Unlock(held))
							time.Sleep(100 * time.Millisecond)
						}
					}
					held, hold := lock(t, t.Context(), mu)
					if !renewals {
						require.NoError(t, hold.Unlock(held))
					}
					work()
					require.Empty(t, quorumLines(&log))
					fault(all[2])
					work()
					synctest.Wait()
					require.Equal(t, []string{"server 127.0.0.1:1 does not answer: 2 of 3 left"}, quorumLines(&log))
					all[2].cutAll()
					all[2].heal()
					runs(all[2], "z", time.Hour)
					work()
					synctest.Wait()
					require.Equal(t, "server 127.0.0.1:1 answers again", strings.Join(quorumLines(&log)[1:], "|"))
					if renewals {
						require.NoError(t, hold.Unlock(held))
					}
				})
			})
		}
	}
}

// Where too few answer, the error says how many, and which do not.
func TestFakeTimeQuorumErrorCountsServers(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		all, _, mu := fakeServers(t)
		for _, f := range all[:2] {
			f.SetError("LOADING Redis is loading the dataset in memory")
		}
		_, _, err := mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.ErrorContains(t, err, "1 of 3 servers answered, 2 are needed: 127.0.0.1:1: LOADING")
		require.NotContains(t, err.Error(), "\n")
		for _, f := range all[:2] {
			f.SetError("")
			f.deafUp.Store(true)
		}
		_, _, err = mu.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrUnavailable)
		require.ErrorContains(t, err, "1 of 3 servers answered, 2 are needed: 127.0.0.1:1: no answer")
	})
}

// The log says for how long a server is not counted that has just started.
func TestFakeTimeQuorumTellsOfAYoungServer(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T) {
		var log logBuffer
		var clients []*rlock.Client
		for n, id := range []string{"x", "y", "z"} {
			f := newFakeRedis(t)
			runs(f, id, 31*time.Second-time.Duration(n/2)*10*time.Second)
			clients = append(clients, f.client(t, &rlock.Options{Logger: log.logger()}))
		}
		mu := rlock.NewQuorumLock("a", clients)
		for range 3 {
			require.NoError(t, mu.Do(t.Context(), func(context.Context) error { return nil }))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"server 127.0.0.1:1 has just started, and may have forgotten who holds a lock: it is not counted for another 10s"}, quorumLines(&log))
	})
}
