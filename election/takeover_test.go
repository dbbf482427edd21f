package election_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-rlock/rlock/election"
	"github.com/go-rlock/rlock/internal/companion"
	"github.com/go-rlock/rlock/internal/netfault"
	"github.com/go-rlock/rlock/internal/redistest"
	"github.com/go-rlock/rlock/rlock"
)

// candidate campaigns in a process of its own until its standard input ends, and writes to a journal
// when its work as a leader began and when it ended: stop after the end of the context.
func candidate(args []string) {
	addr, journal := args[0], args[1]
	delay, _ := time.ParseDuration(args[2])
	stop, _ := time.ParseDuration(args[3])
	file, err := os.OpenFile(journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	note := func(what string, number int64, at time.Time) {
		if _, err := fmt.Fprintf(file, "%s %d %d\n", what, number, at.UnixMicro()); err != nil {
			panic(err)
		}
	}
	locks, err := rlock.New(redis.NewClient(&redis.Options{Addr: addr}), &rlock.Options{LeaseTime: lease})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	e := election.New(locks, "e", strconv.Itoa(os.Getpid()), election.WithTakeoverDelay(delay))
	_ = e.Run(ctx, func(ctx context.Context, term *election.Term) error {
		last := time.Now()
		note("begin", term.Number(), last)
		for ctx.Err() == nil { // a step of the work each time
			last = time.Now()
			time.Sleep(time.Millisecond)
		}
		if stop > 0 {
			time.Sleep(stop)
			last = time.Now()
		}
		note("end", term.Number(), last)
		return ctx.Err()
	})
	_ = locks.Close(context.Background())
}

// term is the work of a leader; end is zero if the process was killed.
type term struct {
	number     int64
	begin, end time.Time
}

// terms reads a journal, in the order of their beginnings.
func terms(t *testing.T, journal string) (all []term) {
	text, err := os.ReadFile(journal)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	for line := range bytes.Lines(text) {
		var what string
		var number, at int64
		_, err := fmt.Sscan(string(line), &what, &number, &at)
		require.NoError(t, err)
		i := slices.IndexFunc(all, func(x term) bool { return x.number == number })
		if what == "begin" {
			require.Negative(t, i)
			all = append(all, term{number: number, begin: time.UnixMicro(at)})
		} else {
			all[i].end = time.UnixMicro(at)
		}
	}
	slices.SortFunc(all, func(a, b term) int { return a.begin.Compare(b.begin) })
	return all
}

// Three processes; the work of a leader needs 1.5 s to stop, the lease is 2 s.
func TestNeverTwoLeaders(t *testing.T) {
	t.Parallel()
	const stop = 1500 * time.Millisecond
	const delay = stop + lease/3 + 200*time.Millisecond
	const cutOff = stop + lease*9/10 + 200*time.Millisecond
	type world struct {
		srv    *redistest.Server
		leader *redistest.Child
		proxy  *netfault.Proxy // of the leader
	}
	removal := func(t *testing.T, w world) {
		w.proxy.DropUp(true)
		w.proxy.DropDown(true)
		_, err := newLocks(t, w.srv.Addr(), lease).NewLock("e").ForceUnlock(t.Context())
		require.NoError(t, err)
		time.Sleep(2 * lease)
		w.proxy.Heal()
		w.proxy.CutAll()
	}
	for _, c := range []struct {
		name        string
		delay, stop time.Duration
		strike      func(*testing.T, world)
		two         bool // leaders, for some time: what the delay is for
	}{
		{"shutdown", 0, stop, func(t *testing.T, w world) { require.NoError(t, w.leader.Stdin.Close()) }, false},
		{"shutdown, with a delay", delay, stop, func(t *testing.T, w world) { require.NoError(t, w.leader.Stdin.Close()) }, false},
		{"the lock is deleted, no delay", 0, stop, func(t *testing.T, w world) { w.srv.Client(t).Del(t.Context(), "e") }, true},
		{"the lock is deleted", delay, stop, func(t *testing.T, w world) { w.srv.Client(t).Del(t.Context(), "e") }, false},
		{"FLUSHALL", delay, stop, func(t *testing.T, w world) { w.srv.Client(t).FlushAll(t.Context()) }, false},
		{"the server is silent", delay, stop, func(_ *testing.T, w world) { w.srv.Stop(); time.Sleep(2 * lease); w.srv.Cont() }, false},
		{"partition, no delay", 0, stop, partition(func(w world) *netfault.Proxy { return w.proxy }), true},
		{"partition", delay, stop, partition(func(w world) *netfault.Proxy { return w.proxy }), false},
		{"cut off, and the lock is removed, a third", stop + lease/3, stop, removal, true},
		{"cut off, and the lock is removed", cutOff, stop, removal, false},
		// A process that stands still cannot stop its work. When it continues, its next look at the context ends it.
		{"SIGSTOP", 0, 0, func(_ *testing.T, w world) { w.leader.Stop(); time.Sleep(2 * lease); w.leader.Cont() }, false},
		{"SIGKILL", 0, stop, func(_ *testing.T, w world) { w.leader.Kill() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.name != "the lock is deleted" {
				redistest.Long(t, "leases run out, twice")
			}
			srv := redistest.Start(t)
			journal := filepath.Join(t.TempDir(), "journal")
			hosts := make(map[string]world)
			for range 3 {
				proxy := netfault.New(t, srv.Addr())
				child := redistest.Spawn(t, "candidate", proxy.Addr(), journal, c.delay.String(), c.stop.String())
				hosts[strconv.Itoa(child.Pid())] = world{srv, child, proxy}
			}
			observer := election.New(newLocks(t, srv.Addr(), lease), "e", "")
			for n := range 2 {
				redistest.Eventually(t, "the next leader works", func() bool { return len(terms(t, journal)) > n })
				time.Sleep(300 * time.Millisecond)
				leader, err := observer.Leader(t.Context())
				require.NoError(t, err)
				c.strike(t, hosts[leader.Value])
			}
			redistest.Eventually(t, "the last leader works", func() bool { return len(terms(t, journal)) > 2 })
			for _, h := range hosts {
				_ = h.leader.Stdin.Close()
			}
			for _, h := range hosts {
				if c.name == "SIGKILL" {
					_ = h.leader.Wait(10 * time.Second)
				} else {
					require.NoError(t, h.leader.Wait(10*time.Second))
				}
			}
			all := terms(t, journal)
			both := -time.Hour
			for i, x := range all[1:] {
				require.Greater(t, x.number, all[i].number, "terms grow")
				if !all[i].end.IsZero() {
					both = max(both, all[i].end.Sub(x.begin))
				}
			}
			t.Logf("two leaders for %v, in %d terms; without a leader %v", max(both, 0), len(all), -both)
			if c.two {
				require.Positive(t, both, "the test would notice two leaders")
			} else {
				require.LessOrEqual(t, both, time.Duration(0))
			}
		})
	}
}

// partition cuts a process off for twice the lease.
func partition[W any](proxy func(W) *netfault.Proxy) func(*testing.T, W) {
	return func(_ *testing.T, w W) {
		p := proxy(w)
		p.DropUp(true)
		p.DropDown(true)
		time.Sleep(2 * lease)
		p.Heal()
		p.CutAll() // what was swallowed is lost
	}
}

// The wait for a leader that has not resigned, in each case in which the first answer of Redis is not the end of it.
// 1. A leads, and the lock is deleted. 2. B gets the lock, and must wait, because A may still work.
func TestTakeoverDelay(t *testing.T) {
	t.Parallel()
	const delay = 500 * time.Millisecond
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	ctx := t.Context()
	proxy := netfault.New(t, srv.Addr())
	a := election.New(newLocks(t, srv.Addr(), time.Minute), "e", "a", election.WithTakeoverDelay(delay))
	b := election.New(newLocks(t, proxy.Addr(), time.Minute), "e", "b", election.WithTakeoverDelay(delay))
	took := func(e *election.Election) (context.Context, *election.Term, time.Duration) {
		began := time.Now()
		held, term := campaign(t, ctx, e)
		return held, term, time.Since(began)
	}

	held, term, d := took(a)
	require.GreaterOrEqual(t, d, delay, "Redis may have lost its data")
	require.NoError(t, term.Resign(held))
	held, term, d = took(b)
	require.Less(t, d, delay, "after a resignation")
	require.NoError(t, term.Resign(held))

	// The reply to the first request is lost, and the repeated request finds B itself in the companion.
	held, term, _ = took(a)
	require.NoError(t, rdb.Del(ctx, "e").Err())
	require.NoError(t, rdb.ScriptFlush(ctx).Err()) // the first answer is NOSCRIPT, and the request with the source is cut
	proxy.CutReplies(1, func(args []string) bool { return args[0] == "eval" && slices.Contains(args, companion.Key("e")) })
	next, second, d := took(b)
	require.GreaterOrEqual(t, d, delay)
	require.EqualValues(t, 1, proxy.Stats().RepliesCut)
	require.ErrorIs(t, term.Resign(held), rlock.ErrLeaseLost)
	leader, err := a.Leader(ctx)
	require.NoError(t, err, "the late resignation of a former leader")
	require.Equal(t, "b", leader.Value)

	// A candidate that leaves while it waits has not resigned: the leader before may still work.
	require.NoError(t, rdb.Del(ctx, "e").Err())
	short, cancel := context.WithTimeout(ctx, delay/2)
	defer cancel()
	_, _, err = a.Campaign(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, rdb.Exists(ctx, "e").Val())
	go func() { // nobody leads during the wait
		time.Sleep(delay / 2)
		_, err := b.Leader(ctx)
		if err == nil || a.IsLeader(ctx) == nil {
			panic("leads while it waits")
		}
	}()
	held, term, d = took(a)
	require.GreaterOrEqual(t, d, delay)
	require.ErrorIs(t, second.Resign(next), rlock.ErrLeaseLost)
	require.NoError(t, term.Resign(held))

	// A leader that has lost the lock, and has stopped, says so: the next one need not wait.
	held, term, d = took(a)
	require.Less(t, d, delay)
	require.NoError(t, rdb.Del(ctx, "e").Err())
	require.ErrorIs(t, term.Proclaim(held, "x"), rlock.ErrLeaseLost)
	require.ErrorIs(t, context.Cause(held), rlock.ErrLeaseLost, "the work stops at once")
	require.ErrorIs(t, term.Resign(held), rlock.ErrLeaseLost)
	held, term, d = took(b)
	require.Less(t, d, delay)
	require.NoError(t, term.Resign(held))
}

// A late or repeated request of a former term changes nothing. etcd has two such faults: a repeated resignation
// ends a newer term, and a candidate that has given up leads later.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	ctx := t.Context()
	proxy := netfault.New(t, srv.Addr())
	a := election.New(newLocks(t, proxy.Addr(), lease), "e", "a")
	b := election.New(newLocks(t, srv.Addr(), lease), "e", "b")
	warm, first := campaign(t, ctx, a) // the server knows the scripts
	require.NoError(t, first.Resign(warm))

	held, old := campaign(t, ctx, a)
	kept := proxy.Hold(netfault.Arg("late value"))
	proclaimed := make(chan error)
	go func() { proclaimed <- old.Proclaim(held, "late value") }()
	require.NoError(t, kept.Wait(ctx))
	require.NoError(t, old.Resign(held))
	next, term := campaign(t, ctx, b)
	require.NoError(t, kept.Deliver(ctx))
	require.ErrorIs(t, <-proclaimed, rlock.ErrUnavailable) // the context of the term has ended, and the outcome was not known
	require.NoError(t, term.Resign(next))

	held, old = campaign(t, ctx, a)
	kept = proxy.Hold(netfault.Arg(companion.Key("e"))) // the note of the resignation
	require.NoError(t, old.Resign(held))
	next, term = campaign(t, ctx, b)
	require.NoError(t, kept.Deliver(ctx))
	for range 3 {
		require.ErrorIs(t, old.Resign(held), rlock.ErrNotHeld)
	}
	leader, err := a.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, election.Leader{Value: "b", Owner: leader.Owner, Term: term.Number()}, leader)
	require.NoError(t, next.Err())
	require.NoError(t, b.IsLeader(ctx))
	require.NoError(t, term.Resign(next))
}

// All of it twice, by a hook of the application.
func TestSentTwice(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	rdb.AddHook(redistest.SendTwice())
	a := election.New(locksOn(t, rdb, nil), "e", "a", election.WithTakeoverDelay(time.Millisecond))
	b := election.New(newLocks(t, srv.Addr(), lease), "e", "b")
	var last int64
	for range 10 {
		for _, e := range []*election.Election{a, b} {
			held, term := campaign(t, t.Context(), e)
			require.Greater(t, term.Number(), last)
			last = term.Number()
			require.NoError(t, term.Proclaim(held, "again"))
			leader, err := b.Leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, last, leader.Term)
			require.Equal(t, "again", leader.Value)
			if err := term.Resign(held); e == b { // such a hook makes an Unlock look like a loss
				require.NoError(t, err)
			}
		}
	}
}

// A candidate whose context ends at any moment never leads afterwards.
func TestNoZombies(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxy := netfault.New(t, srv.Addr())
	zombie := election.New(newLocks(t, proxy.Addr(), 30*time.Second), "e", "zombie")
	other := election.New(newLocks(t, srv.Addr(), 30*time.Second), "e", "other")
	proxy.CutRandom(0.05, 1, netfault.Command("evalsha"))
	for n := range 40 {
		held, term := campaign(t, t.Context(), other)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n%20)*time.Millisecond/2)
		ended := make(chan error)
		go func() {
			held, term, err := zombie.Campaign(ctx)
			if err == nil {
				err = term.Resign(held)
			}
			ended <- err
		}()
		time.Sleep(time.Duration(n%7) * time.Millisecond)
		require.NoError(t, term.Resign(held))
		<-ended
		cancel()
		redistest.Eventually(t, "the lock is free", func() bool {
			return srv.Client(t).Exists(t.Context(), "e").Val() == 0
		})
		_, err := other.Leader(t.Context())
		require.ErrorIs(t, err, election.ErrNoLeader)
	}
	require.Positive(t, proxy.Stats().RepliesCut)
}

// While a leader is dead, the next one waits for the lease, and not longer.
func TestKilledLeader(t *testing.T) {
	t.Parallel()
	redistest.Long(t, "leases run out")
	best := time.Hour
	for range 3 {
		srv := redistest.Start(t)
		journal := filepath.Join(t.TempDir(), "journal")
		leader := redistest.Spawn(t, "candidate", srv.Addr(), journal, "0s", "0s")
		redistest.Eventually(t, "the first leader works", func() bool { return len(terms(t, journal)) == 1 })
		e := election.New(newLocks(t, srv.Addr(), lease), "e", "heir")
		next := make(chan time.Time)
		go func() {
			_ = e.Run(t.Context(), func(context.Context, *election.Term) error {
				next <- time.Now()
				return nil
			})
		}()
		time.Sleep(500 * time.Millisecond)
		killed := time.Now()
		leader.Kill()
		took := (<-next).Sub(killed)
		t.Logf("SIGKILL to the next leader: %v, with a lease of %v", took, lease)
		best = min(best, took)
	}
	require.LessOrEqual(t, best, lease+100*time.Millisecond)
}
